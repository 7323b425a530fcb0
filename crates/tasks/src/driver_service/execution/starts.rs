//! Starts attempts: asks whether a host has room for one, and grants it what it needs there.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use snowmelt_types::{ErrorReport, HostName};
use snowmelt_wire::{FileGrant, Grants, RequestFailure, TaskAsk};
use tokio_util::task::AbortOnDropHandle;

use super::loss::explain;
use crate::driver_service::DriverReporter;
use crate::driver_service::hosts::{QueryCluster, TaskCount, refused_udf};
use crate::driver_service::outputs::{CopyTrees, Input, OutputPlace, Places, Spot, copies, inputs};
use crate::driver_service::permissions::DriverScope;
use crate::peers::TaskNeeds;
use crate::peers::messages::{Copied, InputAt, ParentCopy, RelativeHost, StartTask};
use crate::peers::outputs::KeptOutputs;
use crate::peers::stream_ends::Streams;
use crate::remote::session::Session;
use crate::remote::starting::{AttemptRelay, NotPlaced, NotStarted, PlacedAttempt, place};
use crate::runner::{QueryRunner, StartedTask, TaskRoom};
use crate::task_quota::TaskShare;

/// The context that all starts of a query share.
pub(super) struct Starts<'q> {
    pub runner: &'q QueryRunner,
    pub scope: &'q DriverScope,
    pub reporter: &'q dyn DriverReporter,
    pub cluster: QueryCluster,
    pub places: Places,
    pub copies: CopyTrees,
    // `None` if another query had this name, which cannot be.
    pub kept: Option<KeptOutputs>,
    // Whether the user was told that a function does not run on all hosts.
    pub noted: Mutex<bool>,
}

/// An attempt that runs. Dropping it ends the attempt.
pub(super) struct Attempt {
    pub task: u32,
    pub has_output: bool,
    pub inputs: Vec<Input>,
    pub runs: Runs,
    /// The count of the attempt on its host.
    pub counted: TaskCount,
    /// The share of the attempt in the quota of its tenant; that of a gang is kept by the gang.
    pub share: Option<TaskShare>,
    _broken: Option<AbortOnDropHandle<()>>,
}

/// The running task of an attempt, on this host or another one.
pub(super) enum Runs {
    Here(Box<StartedTask>),
    There(Arc<Session>, AttemptRelay),
}

/// A task that is to be started, as one attempt.
pub(super) struct AttemptRequest {
    pub ask: TaskAsk,
    pub plan: Bytes,
    /// The number of the attempt, which is unique in the query.
    pub number: u64,
    pub inputs: Vec<Input>,
}

/// The reason why another host does not take an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotTaken {
    NoRoom,
    /// The host cannot run the attempt.
    Unfit,
}

/// An attempt that runs, and the connection to its worker.
pub(super) type RunningAttempt = (Attempt, OwnedFd);

impl Starts<'_> {
    /// Starts an attempt in room on this host.
    pub async fn start_here(
        &self,
        asked: &AttemptRequest,
        room: TaskRoom,
        counted: TaskCount,
        streams: Streams,
    ) -> Result<RunningAttempt, RequestFailure> {
        let grant = |grant: &FileGrant| {
            let file = self.scope.open_listed(&grant.path)?;
            Ok::<_, RequestFailure>((grant.clone(), OwnedFd::from(file)))
        };
        let files = asked.ask.files.iter().map(grant).collect::<Result<Vec<_>, _>>()?;
        let kept = self.kept.as_ref().map(KeptOutputs::all);
        let (copied, others) = copies::here(self.runner, &self.copies, kept, &asked.inputs).await;
        let inputs = [copied, inputs::here(kept, &others)?].into_iter().flatten().collect();
        let hosts = match inputs::elsewhere(&self.runner.query, &others).await {
            Ok(hosts) => hosts,
            Err(failed) => return Err(self.explain(failed, &asked.inputs, None).await),
        };
        let sockets = hosts.iter().filter_map(|(_, socket)| socket.try_clone().ok()).collect();
        let broken = inputs::break_with(&asked.inputs, sockets);
        let grants = Grants { files, inputs, hosts, streams, ..Grants::default() };
        let ask = asked.ask.clone();
        let plan = asked.plan.clone();
        let (started, socket) = self.runner.start(ask, room, plan, grants).await?;
        let attempt = Attempt {
            task: asked.ask.task,
            has_output: asked.ask.output,
            inputs: asked.inputs.clone(),
            runs: Runs::Here(Box::new(started)),
            counted,
            share: None,
            _broken: broken,
        };
        Ok((attempt, socket.into()))
    }

    /// Asks another host for room.
    pub async fn place_there(
        &self,
        asked: &AttemptRequest,
        session: &Arc<Session>,
    ) -> Result<Result<PlacedAttempt, NotTaken>, RequestFailure> {
        if let Some((udf, why)) = refused_udf(session, &asked.ask) {
            self.note_refused(session, &udf, why);
            return Ok(Err(NotTaken::Unfit));
        }
        let there = OutputPlace::There(Arc::clone(session));
        // From now on other hosts copy from this one what several tasks read whole.
        let mut asking = self.copies.asking(&asked.inputs);
        let at = |input: &Input| {
            let at = seen_from(&there, &input.place)?;
            let is_copied = input.is_shared && at != RelativeHost::Here;
            let spot = is_copied.then(|| asking.spot(&there, input));
            let copied = spot.map(|spot| copied(&there, spot));
            Some(InputAt { task: input.task, attempt: input.attempt, at, copied })
        };
        let task = StartTask {
            query: self.runner.query.clone(),
            attempt: asked.number,
            ask: asked.ask.clone(),
            inputs: asked.inputs.iter().filter_map(at).collect(),
        };
        let placed = place(session, &task, &asked.plan).await;
        asking.answered(placed.is_ok());
        match placed {
            Ok(placed) => {
                self.cluster.uses(&self.runner.tenant, session.name());
                Ok(Ok(placed))
            }
            // A host that cannot be reached gets no tasks either, until its next report.
            Err(NotPlaced::NoRoom | NotPlaced::Lost) => Ok(Err(NotTaken::NoRoom)),
            Err(NotPlaced::FileMissing(path)) => {
                tracing::info!(host = %session.name(), path, "a host does not have a file");
                self.cluster.lacks(session.name(), path);
                Ok(Err(NotTaken::Unfit))
            }
            Err(NotPlaced::Failed(failed)) => {
                Err(self.explain(failed, &asked.inputs, Some(session.name())).await)
            }
        }
    }

    /// Waits until an attempt runs that has room on another host; `None` if the room was lost.
    pub async fn start_there(
        &self,
        asked: &AttemptRequest,
        placed: PlacedAttempt,
        counted: TaskCount,
    ) -> Result<Option<RunningAttempt>, RequestFailure> {
        let session = Arc::clone(placed.session());
        let (relayed, socket) = match placed.started().await {
            Ok(started) => started,
            Err(NotStarted::Lost) => return Ok(None),
            Err(NotStarted::Failed(failed)) => {
                return Err(self.explain(failed, &asked.inputs, Some(session.name())).await);
            }
        };
        let end = relayed.end();
        let broken = inputs::end_with(&asked.inputs, move || end.cancel());
        let attempt = Attempt {
            task: asked.ask.task,
            has_output: asked.ask.output,
            inputs: asked.inputs.clone(),
            runs: Runs::There(session, relayed),
            counted,
            share: None,
            _broken: broken,
        };
        Ok(Some((attempt, socket.into())))
    }

    /// Returns the room that a task with these UDFs needs.
    pub fn needs(&self, udfs: &[String]) -> TaskNeeds {
        let (memory, cpu) = self.runner.sandboxes_of(udfs);
        let is_here_only = self.cluster.is_here_only(udfs);
        TaskNeeds { tenant: self.runner.tenant.clone(), memory, cpu, is_here_only }
    }

    /// Returns the real reason why an attempt failed.
    pub async fn explain(
        &self,
        failed: RequestFailure,
        inputs: &[Input],
        reader: Option<&HostName>,
    ) -> RequestFailure {
        explain(&self.places, &self.cluster, failed, inputs, reader).await
    }

    /// Tells the user which hosts run no tasks of the query any more.
    pub fn note_failures(&self) {
        for why in self.cluster.take_failures() {
            self.reporter.note(&format!("{why}: the query runs on the others"));
        }
    }

    /// Tells the user once that functions of the query cannot run on all hosts.
    fn note_refused(&self, session: &Session, udf: &str, why: &ErrorReport) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *noted, true) {
            let host = session.name();
            let why = &why.message;
            self.reporter.note(&format!("`{udf}` does not run on the host {host}: {why}"));
        }
    }
}

/// Describes a host's copy of an output, as the host is told: its number and its parent.
fn copied(host: &OutputPlace, Spot { number, parent }: Spot<OutputPlace>) -> Copied {
    let parent =
        parent.and_then(|(place, copy)| Some(ParentCopy { at: seen_from(host, &place)?, copy }));
    Copied { number, parent }
}

/// Returns the address of the place `place` as the host `host` sees it; `None` if the address is
/// not known.
fn seen_from(host: &OutputPlace, place: &OutputPlace) -> Option<RelativeHost> {
    match place {
        OutputPlace::Here => Some(RelativeHost::Control),
        place if place.is(host) => Some(RelativeHost::Here),
        OutputPlace::There(other) => {
            let name = other.name().clone();
            let address = other.peer().address()?;
            Some(RelativeHost::Host { name, address })
        }
    }
}
