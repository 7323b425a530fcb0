//! The attempts of the tasks of one query: the hosts on which they run, and their outputs.
//!
//! A task takes the first room on any host, in the order of `order`. If there is none, the task
//! waits until there is room (in the queue of the cluster, where that decides) or until another
//! task of the query ends. Since the query keeps room for one task on this host, each task runs in
//! the end.
//!
//! Invariant: an attempt that reads outputs of a host ends when that host is lost, also while it
//! waits for room or starts.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{GangAsk, RequestFailure, SandboxUse, TaskAsk};

use super::gangs::{Gangs, MemberReservation};
use super::host_choice::AttemptStart;
use super::placement_order::{PlaceSearch, Steps, TaskTurns};
use super::starts::{Attempt, AttemptRequest, RunningAttempt, Runs, Starts};
use crate::driver_service::DriverReporter;
use crate::driver_service::hosts::{HostChoice, QueryCluster};
use crate::driver_service::outputs::{CopyTrees, OutputPlace, Places, inputs};
use crate::driver_service::permissions::{DriverScope, refused};
use crate::remote::session::Session;
use crate::runner::{NoShare, QueryRunner, StartedTask};

/// The attempts of one query.
pub(in crate::driver_service) struct Attempts<'q> {
    starts: Starts<'q>,
    running: Mutex<HashMap<u64, Attempt>>,
    next: AtomicU64,
    turns: TaskTurns,
    gangs: Gangs,
}

impl<'q> Attempts<'q> {
    pub fn new(
        runner: &'q QueryRunner,
        scope: &'q DriverScope,
        reporter: &'q dyn DriverReporter,
    ) -> Self {
        let turns = TaskTurns::default();
        let starts = Starts {
            runner,
            scope,
            reporter,
            cluster: QueryCluster::new(runner, turns.freed()),
            places: Places::default(),
            copies: CopyTrees::default(),
            kept: runner.host.outputs.keep(&runner.query),
            noted: Mutex::default(),
        };
        let running = Mutex::default();
        let next = AtomicU64::new(1);
        Self { starts, running, next, turns, gangs: Gangs::new(runner) }
    }

    /// Announces the functions that tasks will call. Where tasks run on several hosts, each
    /// instance is started for its own task, because it is not known how many are needed here.
    pub fn expect(&self, udfs: &[String]) {
        if !self.starts.cluster.has_others() {
            self.starts.runner.expect(udfs);
        }
    }

    /// Returns the number of tasks that wait for room.
    pub fn waiting(&self) -> usize {
        self.starts.runner.waiting() + self.turns.waiting()
    }

    /// Reserves room for all tasks of a gang, and connects them. Returns `None` if there is no room
    /// now.
    pub async fn reserve(&self, gang: &GangAsk) -> Result<Option<u64>, RequestFailure> {
        // A gang takes no room that a task waits for which could run alone.
        match self.turns.waiting() {
            0 => self.gangs.reserve(&self.starts, gang).await,
            _ => Ok(None),
        }
    }

    /// Ends a gang that is over.
    pub fn disband(&self, gang: u64) {
        self.gangs.disband(gang);
        self.turns.freed().notify_waiters();
    }

    /// Starts an attempt. Returns its number, and the connection to its worker.
    pub async fn start(&self, ask: TaskAsk, plan: Bytes) -> Result<(u64, OwnedFd), RequestFailure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if !ask.twin
            && let Some((before, place)) = self.starts.places.begin(ask.task, number)
        {
            self.drop_output(before, place);
        }
        let inputs = self.starts.places.inputs(&ask)?;
        let asked = AttemptRequest { ask, plan, number, inputs };
        let begun = inputs::unless_lost(&asked.inputs, self.begin_in_share(&asked)).await;
        let Some(begun) = begun else {
            let why = ErrorReport::new(Code::WORKER_LOST, "a host with outputs was lost");
            return Err(self.starts.explain(RequestFailure::lost(why), &asked.inputs, None).await);
        };
        let (attempt, socket) = begun?;
        self.running().insert(number, attempt);
        Ok((number, socket))
    }

    /// Begins an attempt once it has its share in the quota of its tenant.
    async fn begin_in_share(
        &self,
        asked: &AttemptRequest,
    ) -> Result<RunningAttempt, RequestFailure> {
        let AttemptRequest { ask, .. } = asked;
        let runner = self.starts.runner;
        let share = match (ask.gang, ask.twin) {
            // The gang has it.
            (Some(_), _) => None,
            (None, true) => {
                let one = std::iter::once(&*ask.udfs);
                runner.share_at_once(one).map_err(|NoShare| no_room_for_twin())?
            }
            (None, false) => runner.share(&ask.udfs).await,
        };
        let mut begun = self.begin(asked).await?;
        begun.0.share = share;
        Ok(begun)
    }

    async fn begin(&self, asked: &AttemptRequest) -> Result<RunningAttempt, RequestFailure> {
        if let Some(gang) = asked.ask.gang {
            return self.begin_in_gang(gang, asked).await;
        }
        let cluster = &self.starts.cluster;
        if !cluster.has_others() && !cluster.places_tasks() {
            let room = self.starts.runner.reserve(&asked.ask).await?;
            let counted = self.starts.cluster.count(&HostChoice::Here);
            return self.starts.start_here(asked, room, counted, Vec::new()).boxed().await;
        }
        let start = AttemptStart { starts: &self.starts, asked };
        if !asked.ask.twin {
            return self.turns.begin(&start).await;
        }
        // A second attempt takes no room that a task without any waits for.
        if self.waiting() == 0
            && let PlaceSearch::Place(room) = start.look(&mut start.ask()).await?
            && let Some(begun) = start.start(room).await?
        {
            return Ok(begun);
        }
        Err(no_room_for_twin())
    }

    /// Starts an attempt in the room of its gang.
    async fn begin_in_gang(
        &self,
        gang: u64,
        asked: &AttemptRequest,
    ) -> Result<RunningAttempt, RequestFailure> {
        let (session, counted) = match self.gangs.take(gang, &asked.ask)? {
            MemberReservation::Here(room, streams, counted) => {
                return self.starts.start_here(asked, *room, counted, streams).boxed().await;
            }
            MemberReservation::There(session, counted) => (session, counted),
        };
        let begun = match self.starts.place_there(asked, &session).await? {
            Ok(placed) => self.starts.start_there(asked, placed, counted).await?,
            Err(_) => None,
        };
        begun.ok_or_else(|| {
            let message = format!("the room of a gang on the host {} was lost", session.name());
            RequestFailure::lost(ErrorReport::new(Code::WORKER_LOST, message))
        })
    }

    /// Ends an attempt: keeps its output if it has a result, and otherwise returns why it failed.
    pub async fn end(
        &self,
        number: u64,
        failure: Option<RequestFailure>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), RequestFailure> {
        let attempt = self.running().remove(&number);
        let attempt = attempt.ok_or_else(|| refused("it ended a task that does not run"))?;
        let Attempt { task, has_output, inputs, runs, counted, share, .. } = attempt;
        let (host, ended) = match runs {
            Runs::Here(started) => {
                let ended = self.end_here(*started, number, failure).await;
                (self.starts.cluster.own_name(), ended.map(|used| (used, OutputPlace::Here)))
            }
            Runs::There(session, _relayed) => {
                let ended = self.end_there(&session, number, failure).await;
                (
                    Some(session.name().clone()),
                    ended.map(|used| (used, OutputPlace::There(session))),
                )
            }
        };
        drop((counted, share));
        self.turns.freed().notify_waiters();
        let is_remote = host.as_ref() != self.starts.cluster.own_name().as_ref();
        let ((worker, udfs), place) = match ended {
            Ok(ended) => ended,
            Err(failed) => {
                let reader = host.as_ref().filter(|_| is_remote);
                return Err(self.starts.explain(failed, &inputs, reader).await);
            }
        };
        if has_output && !self.starts.places.add(task, number, place.clone()) {
            // Its index belongs to its output, so that of another attempt must not count: the
            // driver is told that it is lost.
            self.drop_output(number, place);
            let message = format!("another attempt of task {task} was complete before");
            return Err(RequestFailure::lost(ErrorReport::new(Code::WORKER_LOST, message)));
        }
        let name = host.map(|host| host.as_str().to_owned());
        let on_host = |used: SandboxUse| SandboxUse { host: name.clone(), ..used };
        Ok((on_host(worker), udfs.into_iter().map(on_host).collect()))
    }

    async fn end_here(
        &self,
        mut started: StartedTask,
        number: u64,
        failure: Option<RequestFailure>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), RequestFailure> {
        let output = started.take_output();
        let used = self.starts.runner.ended(started, failure).await?;
        if let (Some(output), Some(kept)) = (output, &self.starts.kept) {
            kept.add(number, output);
        }
        Ok(used)
    }

    async fn end_there(
        &self,
        session: &Session,
        number: u64,
        failure: Option<RequestFailure>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), RequestFailure> {
        let end = session.ended(number, failure).await?;
        let used: Vec<_> = std::iter::once(&end.worker).chain(&end.udfs).cloned().collect();
        self.starts.runner.add_remote(&used, end.written);
        Ok((end.worker, end.udfs))
    }

    /// Removes the outputs of these tasks, which are not read any more.
    pub fn release(&self, tasks: &[u32]) {
        let next = self.next.load(Ordering::Relaxed);
        for (attempt, place) in self.starts.places.release(tasks, next) {
            self.drop_output(attempt, place);
        }
    }

    fn drop_output(&self, attempt: u64, place: OutputPlace) {
        for place in std::iter::once(place).chain(self.starts.copies.remove(attempt)) {
            match (place, &self.starts.kept) {
                (OutputPlace::Here, Some(kept)) => kept.release(&[attempt]),
                (OutputPlace::Here, None) => {}
                (OutputPlace::There(session), _) => session.release(vec![attempt]),
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, Attempt>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_room_for_twin() -> RequestFailure {
    let message = "there is no room for a second attempt of a slow task";
    RequestFailure::lost(ErrorReport::new(Code::WORKER_LOST, message))
}
