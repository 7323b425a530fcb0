//! The gangs of one query: tasks that stream rows to each other, so that they run at the same time.
//!
//! The tasks of a gang are spread over the hosts (`slots`). Each host reserves room for its part at
//! once, or refuses; if one host refuses, all hosts give their room back, and the gang is tried
//! without the host that refused. So room is there for all tasks or for none, and no gang waits for
//! room: two queries that ask at the same time cannot wait for each other. Then the hosts connect
//! the tasks. The platform decodes nothing that is streamed, and the bytes on their way are bounded
//! by the buffers of the sockets.
//!
//! Invariant: a gang that is over, or was given up before it began, has nothing on any host.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::join_all;
use snowmelt_types::{Code, ErrorReport, HostName};
use snowmelt_wire::{GangAsk, MAX_STREAMS, RequestFailure, TaskAsk};

use super::slots::{GangHost, GangSlot, GangSlots, Without};
use super::starts::Starts;
use crate::driver_service::hosts::TaskCount;
use crate::driver_service::permissions::refused;
use crate::peers::messages::{GangPart, NotConnected, PartReserved, RelativeHost, STREAMS};
use crate::peers::stream_ends::Streams;
use crate::remote::gang_part::GangParts;
use crate::remote::session::Session;
use crate::remote::streams;
use crate::runner::{QueryRunner, TaskRoom};
use crate::task_quota::TaskShare;

/// The gangs of one query.
#[derive(Debug)]
pub(super) struct Gangs {
    here: Arc<GangParts>,
    next: AtomicU64,
    /// The number of streams of gangs that are not over.
    streams: Arc<AtomicUsize>,
    live: Mutex<HashMap<u64, LiveGang>>,
}

#[derive(Debug)]
struct LiveGang {
    /// The slots of tasks that have not started.
    slots: GangSlots,
    _whole: GangReservation,
    _streams: Claimed,
    /// The shares of all its tasks in the quota of their tenant.
    _share: Option<TaskShare>,
}

/// The reservation of a task of a gang, which the task takes when it starts.
pub(super) enum MemberReservation {
    Here(Box<TaskRoom>, Streams, TaskCount),
    There(Arc<Session>, TaskCount),
}

/// The reservations of a gang on all its hosts. Dropping it ends the gang there.
#[derive(Debug)]
struct GangReservation {
    gang: u64,
    here: Arc<GangParts>,
    sessions: Vec<Arc<Session>>,
}

impl Drop for GangReservation {
    fn drop(&mut self) {
        self.here.end(self.gang);
        self.sessions.iter().for_each(|session| session.end_gang(self.gang));
    }
}

/// A number of streams, counted against the most that a query may have.
#[derive(Debug)]
struct Claimed(Arc<AtomicUsize>, usize);

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Gangs {
    pub fn new(runner: &QueryRunner) -> Self {
        let here = Arc::new(GangParts::new(&runner.host.streams, &runner.query));
        Self { here, next: AtomicU64::new(0), streams: Arc::default(), live: Mutex::default() }
    }

    /// Reserves room for all tasks of a gang, and connects them. Returns the number of the gang, or
    /// `None` if there is no room for all of them now.
    pub async fn reserve(
        &self,
        starts: &Starts<'_>,
        ask: &GangAsk,
    ) -> Result<Option<u64>, RequestFailure> {
        check(ask)?;
        let Some(claimed) = self.claim(ask.streams()) else { return Ok(None) };
        let tasks = ask.senders.iter().chain(&ask.receivers).map(|task| &*task.udfs);
        let Ok(share) = starts.runner.share_at_once(tasks) else { return Ok(None) };
        let mut without = Without::default();
        // Ends, because each turn adds a host.
        while let Some(mut slots) = GangSlots::of(&starts.cluster, ask, &without).await {
            if !slots.place(starts, ask, &mut without) {
                continue;
            }
            if let Some(whole) = self.begin(starts, ask, &slots, &mut without).await {
                let gang = whole.gang;
                let live = LiveGang { slots, _whole: whole, _streams: claimed, _share: share };
                self.live().insert(gang, live);
                return Ok(Some(gang));
            }
        }
        Ok(None)
    }

    /// Reserves the slots of a gang on all hosts, and connects them. Returns `None` if a host does
    /// not take part; the next attempt does without that host.
    async fn begin(
        &self,
        starts: &Starts<'_>,
        ask: &GangAsk,
        slots: &GangSlots,
        without: &mut Without,
    ) -> Option<GangReservation> {
        let gang = self.next.fetch_add(1, Ordering::Relaxed);
        let mut whole =
            GangReservation { gang, here: Arc::clone(&self.here), sessions: Vec::new() };
        let mut there = Vec::new();
        for (host, part) in slots.parts(gang, ask) {
            match host {
                GangHost::There(session, _) => there.push((session, part)),
                GangHost::Here if self.here.reserve(starts.runner, &part) => {}
                GangHost::Here => {
                    without.here = true;
                    return None;
                }
            }
        }
        whole.sessions = there.iter().map(|(session, _)| Arc::clone(session)).collect();
        let is_reserved = reserve_there(starts, there, without).await;
        let is_connected = is_reserved && self.connect(starts, ask, slots, &whole, without).await;
        is_connected.then_some(whole)
    }

    /// Has all hosts connect the tasks that send from there. False if a host fails.
    async fn connect(
        &self,
        starts: &Starts<'_>,
        ask: &GangAsk,
        slots: &GangSlots,
        whole: &GangReservation,
        without: &mut Without,
    ) -> bool {
        let dial = |at: RelativeHost| {
            let session = whole.sessions.iter().find(|session| is_at(&at, session)).cloned();
            async move {
                let unknown = || ErrorReport::new(Code::SERVER_UNREACHABLE, "the host is unknown");
                session.ok_or_else(unknown)?.peer().connect(STREAMS).await
            }
            .boxed()
        };
        let query = &starts.runner.query;
        let ends = self.here.ends();
        let here = async {
            let links = slots.links(whole.gang, ask, None);
            Some(streams::connect(ends, query, &links, &dial).await)
        };
        let there = whole.sessions.iter().map(|session| {
            let links = slots.links(whole.gang, ask, Some(session.name()));
            async move { (Some(session.name()), session.connect_gang(links).await) }
        });
        let (here, there) = futures::join!(here, join_all(there));
        let mut is_connected = true;
        for (from, connected) in there.into_iter().chain([(None, here)]) {
            if !matches!(connected, Some(Ok(()))) {
                is_connected = false;
                not_connected(starts, from, connected.and_then(Result::err), without);
            }
        }
        is_connected
    }

    /// Takes the reservation of a task of a gang, which starts now.
    pub fn take(&self, gang: u64, ask: &TaskAsk) -> Result<MemberReservation, RequestFailure> {
        let slot = self.live().get_mut(&gang).and_then(|gang| gang.slots.take(ask.task));
        match slot {
            Some(GangSlot { host: GangHost::There(session, _), counted }) => {
                Ok(MemberReservation::There(session, counted))
            }
            Some(GangSlot { host: GangHost::Here, counted }) => {
                let taken = self.here.take(gang, ask);
                let other = "a task of a gang needs something else than was reserved";
                let (room, streams) = taken.ok_or_else(|| refused(other))?;
                Ok(MemberReservation::Here(Box::new(room), streams, counted))
            }
            None => Err(refused("it ran a task of a gang that does not have it")),
        }
    }

    /// Ends a gang that is over.
    pub fn disband(&self, gang: u64) {
        // Ended outside the lock.
        let gang = self.live().remove(&gang);
        drop(gang);
    }

    /// Counts streams, if the query may have that many more.
    fn claim(&self, streams: usize) -> Option<Claimed> {
        let more = |before: usize| before.checked_add(streams).filter(|sum| *sum <= MAX_STREAMS);
        self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Claimed(Arc::clone(&self.streams), streams))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, LiveGang>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves the parts of other hosts. False if one of the hosts refuses its part.
async fn reserve_there(
    starts: &Starts<'_>,
    parts: Vec<(Arc<Session>, GangPart)>,
    without: &mut Without,
) -> bool {
    let asking = parts.into_iter().map(|(session, part)| async move {
        let reserved = session.reserve_gang(part).await;
        (session, reserved)
    });
    let mut is_reserved = true;
    for (session, reserved) in join_all(asking).await {
        let name = session.name();
        match reserved {
            Some(PartReserved::Reserved) => continue,
            Some(PartReserved::FilesMissing { paths }) => {
                paths.into_iter().for_each(|path| starts.cluster.lacks(name, path));
                without.for_files.insert(name.clone());
            }
            Some(PartReserved::NoRoom) | None => {
                without.others.insert(name.clone());
            }
        }
        is_reserved = false;
    }
    is_reserved
}

fn is_at(at: &RelativeHost, session: &Session) -> bool {
    matches!(at, RelativeHost::Host { name, .. } if name == session.name())
}

/// Notes which hosts a gang does without because their tasks could not be connected. If there is no
/// reason in `failed`, the host `from` did not answer.
fn not_connected(
    starts: &Starts<'_>,
    from: Option<&HostName>,
    failed: Option<NotConnected>,
    without: &mut Without,
) {
    let mut hosts: BTreeSet<HostName> = from.cloned().into_iter().collect();
    if let Some(NotConnected { host, is_unreachable, why }) = failed {
        hosts.extend(host);
        tracing::info!(?hosts, error = %why.message, "tasks of a gang were not connected");
        if is_unreachable {
            starts.cluster.set_apart(hosts.iter());
        }
    }
    without.here |= hosts.is_empty();
    without.others.extend(hosts);
}

fn check(ask: &GangAsk) -> Result<(), RequestFailure> {
    let all = ask.senders.iter().chain(&ask.receivers).map(|task| task.task);
    let distinct: BTreeSet<u32> = all.collect();
    let is_right = distinct.len() == ask.senders.len() + ask.receivers.len()
        && (1..=MAX_STREAMS).contains(&ask.streams());
    match is_right {
        true => Ok(()),
        false => Err(refused("it asked for a gang that no query has")),
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_wire::GangTask;

    use super::*;

    fn tasks(numbers: std::ops::Range<u32>) -> Vec<GangTask> {
        numbers.map(|task| GangTask { task, ..GangTask::default() }).collect()
    }

    #[test]
    fn a_gang_has_some_tasks_of_each_kind_and_each_once() {
        check(&GangAsk { senders: tasks(0..32), receivers: tasks(32..64) }).unwrap();
        for (senders, receivers) in [(0..0, 0..1), (0..1, 0..0), (0..2, 1..3), (0..33, 33..66)] {
            assert!(
                check(&GangAsk { senders: tasks(senders), receivers: tasks(receivers) }).is_err()
            );
        }
    }
}
