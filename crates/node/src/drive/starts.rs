//! The starts of attempts: where there is room for one, and what it is granted there.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use snowmelt_types::{ErrorReport, HostName};
use snowmelt_wire::{Failed, FileGrant, Grants, TaskAsk};
use tokio_util::task::AbortOnDropHandle;

use super::DriverReporter;
use super::cluster::{Choice, Cluster, Counted, refused_udf};
use super::copies::{self, CopyTrees};
use super::copy_tree::Spot;
use super::inputs;
use super::loss::explain;
use super::opening::Opened;
use super::places::{Input, Place, Places};
use super::scope::Scope;
use super::turns::{Found, Steps};
use crate::query_room::TaskRoom;
use crate::remote::messages::{At, Copied, InputAt, ParentCopy, StartTask};
use crate::remote::outputs::KeptOutputs;
use crate::remote::session::Session;
use crate::remote::starting::{NotPlaced, NotStarted, Placed, Relayed, place};
use crate::remote::stream_ends::Streams;
use crate::runner::{QueryRunner, Started};

/// What all starts of a query need.
pub(super) struct Starts<'q> {
    pub runner: &'q QueryRunner,
    pub scope: &'q Scope,
    pub reporter: &'q dyn DriverReporter,
    pub cluster: Cluster,
    pub places: Places,
    pub copies: CopyTrees,
    // None if another query had this name, which cannot be.
    pub kept: Option<KeptOutputs>,
    // Whether the user was told that a function does not run on all hosts.
    pub noted: Mutex<bool>,
}

/// An attempt that runs. Dropping it ends it.
pub(super) struct Attempt {
    pub task: u32,
    pub has_output: bool,
    pub inputs: Vec<Input>,
    pub runs: Runs,
    /// Counts it on its host.
    pub counted: Counted,
    _broken: Option<AbortOnDropHandle<()>>,
}

/// Where an attempt runs.
pub(super) enum Runs {
    Here(Box<Started>),
    There(Arc<Session>, Relayed),
}

/// A task that is to be started.
pub(super) struct Asked {
    pub ask: TaskAsk,
    pub plan: Bytes,
    /// The number of the attempt, which is unique in the query.
    pub number: u64,
    pub inputs: Vec<Input>,
}

/// Where an attempt has room.
pub(super) enum Room {
    Here(Box<TaskRoom>, Counted),
    There(Placed, Counted),
}

/// The start of an attempt.
pub(super) struct Start<'a, 'q> {
    pub starts: &'a Starts<'q>,
    pub asked: &'a Asked,
}

/// An attempt that runs, and the connection to its worker.
pub(super) type Begun = (Attempt, OwnedFd);

impl Starts<'_> {
    /// Starts an attempt in room on this host.
    pub async fn start_here(
        &self,
        asked: &Asked,
        room: TaskRoom,
        counted: Counted,
        streams: Streams,
    ) -> Result<Begun, Failed> {
        let grant = |grant: &FileGrant| {
            let file = self.scope.open_listed(&grant.path)?;
            Ok::<_, Failed>((grant.clone(), OwnedFd::from(file)))
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
        let (ask, plan) = (asked.ask.clone(), asked.plan.clone());
        let (started, socket) = self.runner.start(ask, room, plan, grants).await?;
        let attempt = Attempt {
            task: asked.ask.task,
            has_output: asked.ask.output,
            inputs: asked.inputs.clone(),
            runs: Runs::Here(Box::new(started)),
            counted,
            _broken: broken,
        };
        Ok((attempt, socket.into()))
    }

    /// Asks another host for room; `None` if it does not take the attempt.
    pub async fn place_there(
        &self,
        asked: &Asked,
        session: &Arc<Session>,
    ) -> Result<Option<Placed>, Failed> {
        if let Some((udf, why)) = refused_udf(session, &asked.ask) {
            self.note_refused(session, &udf, why);
            return Ok(None);
        }
        let there = Place::There(Arc::clone(session));
        // From now on other hosts copy from this one what several tasks read whole.
        let mut asking = self.copies.asking(&asked.inputs);
        let at = |input: &Input| {
            let at = seen_from(&there, &input.place)?;
            let is_copied = input.is_shared && at != At::Here;
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
            Ok(placed) => Ok(Some(placed)),
            Err(NotPlaced::NoRoom | NotPlaced::Lost) => Ok(None),
            Err(NotPlaced::FileMissing(path)) => {
                tracing::info!(host = %session.name(), path, "a host does not have a file");
                self.cluster.lacks(session.name(), path);
                Ok(None)
            }
            Err(NotPlaced::Failed(failed)) => {
                Err(self.explain(failed, &asked.inputs, Some(session.name())).await)
            }
        }
    }

    /// Waits until an attempt runs that has room on another host; `None` if that was lost.
    pub async fn start_there(
        &self,
        asked: &Asked,
        placed: Placed,
        counted: Counted,
    ) -> Result<Option<Begun>, Failed> {
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
            _broken: broken,
        };
        Ok(Some((attempt, socket.into())))
    }

    /// The real reason why an attempt failed.
    pub async fn explain(
        &self,
        failed: Failed,
        inputs: &[Input],
        reader: Option<&HostName>,
    ) -> Failed {
        explain(&self.places, &self.cluster, failed, inputs, reader).await
    }

    /// Says which hosts run no tasks of the query.
    fn note_failures(&self) {
        for why in self.cluster.take_failures() {
            self.reporter.note(&format!("{why}: the query runs on the others"));
        }
    }

    /// Says once that functions of the query cannot run on all hosts.
    fn note_refused(&self, session: &Session, udf: &str, why: &ErrorReport) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *noted, true) {
            let (host, why) = (session.name(), &why.message);
            self.reporter.note(&format!("`{udf}` does not run on the host {host}: {why}"));
        }
    }
}

/// What a host is told of its copy.
fn copied(host: &Place, Spot { number, parent }: Spot<Place>) -> Copied {
    let from =
        |(place, copy): (Place, u64)| Some(ParentCopy { at: seen_from(host, &place)?, copy });
    Copied { number, parent: parent.and_then(from) }
}

/// Where a host is, seen from another one; `None` if its address is not known.
fn seen_from(host: &Place, place: &Place) -> Option<At> {
    match place {
        Place::Here => Some(At::Control),
        place if place.is(host) => Some(At::Here),
        Place::There(other) => {
            let (name, address) = (other.name().clone(), other.peer().address()?);
            Some(At::Host { name, address })
        }
    }
}

#[async_trait]
impl Steps for Start<'_, '_> {
    type Place = Room;
    type Begun = Begun;
    type Error = Failed;

    async fn at_once(&self) -> Result<Found<Room>, Failed> {
        let Self { starts, asked } = self;
        starts.note_failures();
        // The round of the best host that is expected to have a session soon.
        let mut expected = None;
        for (round, choice) in starts.cluster.choices(&asked.ask, &asked.inputs) {
            if expected.is_some_and(|better| better < round) {
                return Ok(Found::Soon);
            }
            let counted = starts.cluster.count(&choice);
            let room = match &choice {
                Choice::Here => {
                    let room = starts.runner.reserve_at_once(&asked.ask);
                    room.map(|room| Room::Here(Box::new(room), counted))
                }
                Choice::There(peer) => match starts.cluster.session(peer) {
                    Opened::Session(session) => {
                        let placed = starts.place_there(asked, &session).await?;
                        placed.map(|placed| Room::There(placed, counted))
                    }
                    Opened::Soon => {
                        expected.get_or_insert(round);
                        None
                    }
                    Opened::Later | Opened::Never => None,
                },
            };
            if let Some(room) = room {
                return Ok(Found::Place(room));
            }
        }
        Ok(Found::NoRoom)
    }

    async fn here(&self) -> Result<Room, Failed> {
        let room = self.starts.runner.reserve(&self.asked.ask).await?;
        Ok(Room::Here(Box::new(room), self.starts.cluster.count(&Choice::Here)))
    }

    async fn start(&self, room: Room) -> Result<Option<Begun>, Failed> {
        let Self { starts, asked } = self;
        match room {
            Room::Here(room, counted) => {
                starts.start_here(asked, *room, counted, Vec::new()).boxed().await.map(Some)
            }
            Room::There(placed, counted) => starts.start_there(asked, placed, counted).await,
        }
    }
}
