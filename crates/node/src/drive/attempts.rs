//! The attempts of the tasks of one query: on which hosts they run, and the outputs that they leave.
//!
//! A task takes the first room that there is on any host, in the order of `placement`. If there is
//! none, it waits for room here or for another task of the query to end. Since the query keeps room
//! for one task on this host, each task runs at last.
//!
//! Invariant: an attempt that reads outputs of a host ends when that host is lost.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use snowmelt_types::{Code, ErrorReport, HostName};
use snowmelt_wire::{Failed, FileGrant, Grants, SandboxUse, TaskAsk};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::task::AbortOnDropHandle;

use super::DriverReporter;
use super::cluster::{Choice, Cluster, Counted, refused_udf};
use super::inputs;
use super::loss::explain;
use super::places::{Input, Place, Places};
use super::scope::{Scope, refused};
use crate::query_room::TaskRoom;
use crate::remote::messages::{At, InputAt, StartTask};
use crate::remote::outputs::KeptOutputs;
use crate::remote::session::{NotStarted, Relayed, Session};
use crate::runner::{QueryRunner, Started};

/// After which time hosts without room are asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// The attempts of one query.
pub(super) struct Attempts<'q> {
    runner: &'q QueryRunner,
    scope: &'q Scope,
    reporter: &'q dyn DriverReporter,
    cluster: Cluster,
    running: Mutex<HashMap<u64, Attempt>>,
    places: Places,
    // None if another query had this name, which cannot be.
    kept: Option<KeptOutputs>,
    next: AtomicU64,
    // One task waits for room, the others for that.
    turn: AsyncMutex<()>,
    waiting: AtomicUsize,
    freed: Notify,
    noted: Mutex<bool>,
}

/// An attempt that runs. Dropping it ends it.
struct Attempt {
    task: u32,
    has_output: bool,
    inputs: Vec<Input>,
    runs: Runs,
    _broken: Option<AbortOnDropHandle<()>>,
    _counted: Counted,
}

enum Runs {
    Here(Box<Started>),
    There(Arc<Session>, Relayed),
}

/// Counts a task that waits.
struct CountedWait<'w>(&'w AtomicUsize);

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A task that is to be started.
struct Asked {
    ask: TaskAsk,
    plan: Bytes,
    number: u64,
    inputs: Vec<Input>,
}

type Begun = (Attempt, OwnedFd);

impl<'q> Attempts<'q> {
    pub fn new(
        runner: &'q QueryRunner,
        scope: &'q Scope,
        reporter: &'q dyn DriverReporter,
    ) -> Self {
        Self {
            runner,
            scope,
            reporter,
            cluster: Cluster::new(runner),
            running: Mutex::default(),
            places: Places::default(),
            kept: runner.node.inner.kept_outputs.keep(&runner.query),
            next: AtomicU64::new(1),
            turn: AsyncMutex::default(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            noted: Mutex::default(),
        }
    }

    /// Announces the functions that tasks will call. Where tasks run on several hosts, each is
    /// started for its own task: how many are needed here is not known.
    pub fn expect(&self, udfs: &[String]) {
        if !self.cluster.has_others() {
            self.runner.expect(udfs);
        }
    }

    /// Tasks that wait for room.
    pub fn waiting(&self) -> usize {
        self.runner.waiting() + self.waiting.load(Ordering::Relaxed)
    }

    /// Starts an attempt. Gives its number, and the connection to its worker.
    pub async fn start(&self, ask: TaskAsk, plan: Bytes) -> Result<(u64, OwnedFd), Failed> {
        let inputs = self.places.inputs(&ask)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = Asked { ask, plan, number, inputs };
        let (attempt, socket) = self.begin(&asked).await?;
        self.running().insert(number, attempt);
        Ok((number, socket))
    }

    async fn begin(&self, asked: &Asked) -> Result<Begun, Failed> {
        if !self.cluster.has_others() {
            let room = self.runner.reserve(&asked.ask).await?;
            let counted = self.cluster.count(&Choice::Here);
            return self.start_here(asked, room, counted).boxed().await;
        }
        // A second attempt takes no room that a task without any waits for.
        let may_begin = !asked.ask.twin || self.waiting() == 0;
        if may_begin && let Some(begun) = self.at_once(asked).await? {
            return Ok(begun);
        }
        if asked.ask.twin {
            let message = "there is no room for a second attempt of a slow task";
            return Err(Failed::lost(ErrorReport::new(Code::WORKER_LOST, message)));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = CountedWait(&self.waiting);
        let _turn = self.turn.lock().await;
        let mut room = std::pin::pin!(self.runner.reserve(&asked.ask));
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the attempt, so that no end after it is missed.
            freed.as_mut().enable();
            if let Some(begun) = self.at_once(asked).await? {
                return Ok(begun);
            }
            tokio::select! {
                room = &mut room => {
                    let counted = self.cluster.count(&Choice::Here);
                    return self.start_here(asked, room?, counted).boxed().await;
                }
                () = freed => {}
                () = tokio::time::sleep(ASKED_AGAIN) => {}
            }
        }
    }

    /// Starts a task on the first host that has room now.
    async fn at_once(&self, asked: &Asked) -> Result<Option<Begun>, Failed> {
        for choice in self.cluster.choices(&asked.ask, &asked.inputs) {
            let counted = self.cluster.count(&choice);
            let begun = match &choice {
                Choice::Here => match self.runner.reserve_at_once(&asked.ask) {
                    Some(room) => Some(self.start_here(asked, room, counted).boxed().await?),
                    None => None,
                },
                Choice::There(peer) => match self.cluster.session(peer, self.runner).await {
                    Some(session) => self.start_there(asked, session, counted).boxed().await?,
                    None => None,
                },
            };
            if begun.is_some() {
                return Ok(begun);
            }
        }
        Ok(None)
    }

    async fn start_here(
        &self,
        asked: &Asked,
        room: TaskRoom,
        counted: Counted,
    ) -> Result<Begun, Failed> {
        let grant = |grant: &FileGrant| {
            let file = self.scope.open_listed(&grant.path)?;
            Ok::<_, Failed>((grant.clone(), OwnedFd::from(file)))
        };
        let files = asked.ask.files.iter().map(grant).collect::<Result<Vec<_>, _>>()?;
        let inputs = inputs::here(self.kept.as_ref().map(KeptOutputs::all), &asked.inputs)?;
        let hosts = match inputs::elsewhere(&self.runner.query, &asked.inputs).await {
            Ok(hosts) => hosts,
            Err(failed) => return Err(self.explain(failed, &asked.inputs, None).await),
        };
        let sockets = hosts.iter().filter_map(|(_, socket)| socket.try_clone().ok()).collect();
        let broken = inputs::break_with(&asked.inputs, sockets);
        let grants = Grants { files, inputs, hosts, ..Grants::default() };
        let (ask, plan) = (asked.ask.clone(), asked.plan.clone());
        let (started, socket) = self.runner.start(ask, room, plan, grants).await?;
        let attempt = Attempt {
            task: asked.ask.task,
            has_output: asked.ask.output,
            inputs: asked.inputs.clone(),
            runs: Runs::Here(Box::new(started)),
            _broken: broken,
            _counted: counted,
        };
        Ok((attempt, socket.into()))
    }

    async fn start_there(
        &self,
        asked: &Asked,
        session: Arc<Session>,
        counted: Counted,
    ) -> Result<Option<Begun>, Failed> {
        if let Some((udf, why)) = refused_udf(&session, &asked.ask) {
            self.note_refused(&session, &udf, why);
            return Ok(None);
        }
        let at = |input: &Input| {
            let at = match &input.place {
                Place::Here => At::Control,
                Place::There(other) if other.name() == session.name() => At::Here,
                Place::There(other) => {
                    let name = other.name().clone();
                    At::Host { address: other.peer().address()?, name }
                }
            };
            Some(InputAt { task: input.task, attempt: input.attempt, at })
        };
        let task = StartTask {
            query: self.runner.query.clone(),
            attempt: asked.number,
            ask: asked.ask.clone(),
            inputs: asked.inputs.iter().filter_map(at).collect(),
        };
        let (relayed, socket) = match session.start(&task, &asked.plan).await {
            Ok(started) => started,
            Err(NotStarted::NoRoom | NotStarted::Lost) => return Ok(None),
            Err(NotStarted::FileMissing(path)) => {
                tracing::info!(host = %session.name(), path, "a host does not have a file");
                self.cluster.lacks(session.name(), path);
                return Ok(None);
            }
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
            _broken: broken,
            _counted: counted,
        };
        Ok(Some((attempt, socket.into())))
    }

    /// Ends an attempt: keeps its output if it has a result, and says otherwise why not.
    pub async fn end(
        &self,
        number: u64,
        failure: Option<Failed>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), Failed> {
        let attempt = self.running().remove(&number);
        let attempt = attempt.ok_or_else(|| refused("it ended a task that does not run"))?;
        let Attempt { task, has_output, inputs, runs, _counted, .. } = attempt;
        let (host, ended) = match runs {
            Runs::Here(started) => {
                let ended = self.end_here(*started, number, failure).await;
                (self.cluster.own_name(), ended.map(|used| (used, Place::Here)))
            }
            Runs::There(session, _relayed) => {
                let ended = self.end_there(&session, number, failure).await;
                (Some(session.name().clone()), ended.map(|used| (used, Place::There(session))))
            }
        };
        drop(_counted);
        self.freed.notify_waiters();
        let is_remote = host.as_ref() != self.cluster.own_name().as_ref();
        let ((worker, udfs), place) = match ended {
            Ok(ended) => ended,
            Err(failed) => {
                let reader = host.as_ref().filter(|_| is_remote);
                return Err(self.explain(failed, &inputs, reader).await);
            }
        };
        if has_output && !self.places.add(task, number, place.clone()) {
            // Its index belongs to its output, so that of another attempt must not count: the driver
            // is told that it is lost.
            self.drop_output(number, place);
            let message = format!("another attempt of task {task} was complete before");
            return Err(Failed::lost(ErrorReport::new(Code::WORKER_LOST, message)));
        }
        let name = host.map(|host| host.as_str().to_owned());
        let on_host = |used: SandboxUse| SandboxUse { host: name.clone(), ..used };
        Ok((on_host(worker), udfs.into_iter().map(on_host).collect()))
    }

    async fn end_here(
        &self,
        mut started: Started,
        number: u64,
        failure: Option<Failed>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), Failed> {
        let output = started.take_output();
        let used = self.runner.ended(started, failure).await?;
        if let (Some(output), Some(kept)) = (output, &self.kept) {
            kept.add(number, output);
        }
        Ok(used)
    }

    async fn end_there(
        &self,
        session: &Session,
        number: u64,
        failure: Option<Failed>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), Failed> {
        let end = session.ended(number, failure).await?;
        let used: Vec<_> = std::iter::once(&end.worker).chain(&end.udfs).cloned().collect();
        self.runner.add_remote(&used, end.written);
        Ok((end.worker, end.udfs))
    }

    /// The outputs of these tasks are not read any more.
    pub fn release(&self, tasks: &[u32]) {
        for (attempt, place) in self.places.release(tasks) {
            self.drop_output(attempt, place);
        }
    }

    fn drop_output(&self, attempt: u64, place: Place) {
        match (place, &self.kept) {
            (Place::Here, Some(kept)) => kept.release(&[attempt]),
            (Place::Here, None) => {}
            (Place::There(session), _) => session.release(vec![attempt]),
        }
    }

    async fn explain(&self, failed: Failed, inputs: &[Input], reader: Option<&HostName>) -> Failed {
        explain(&self.places, &self.cluster, failed, inputs, reader).await
    }

    /// Says once that functions of the query cannot run on all hosts.
    fn note_refused(&self, session: &Session, udf: &str, why: &ErrorReport) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *noted, true) {
            let (host, why) = (session.name(), &why.message);
            self.reporter.note(&format!("`{udf}` does not run on the host {host}: {why}"));
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, Attempt>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
