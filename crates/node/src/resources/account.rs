//! The room on the host: what a start asks of the ledger, and what makes room for it.
//!
//! Invariant: every sandbox owns its reservation, so the room is given back when the sandbox is
//! destroyed. A sandbox that was started in room that somebody else keeps (the task of a query)
//! owns none, and is not kept idle. Taking an idle sandbox into use again touches no ledger.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_ledger::{Amount, Capacity, Ledger, NoRoom, Reservation, RoomRequest, Use};
use snowmelt_sandbox::Total;
use snowmelt_types::{ByteSize, Tenant};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::pool::ItemPool;
use crate::{Error, InstanceLimits, Result, machine_memory};

/// How long the start of an instance waits for room. Most calls end sooner than that, and a caller
/// that waits longer is better told so: the caller may try again or elsewhere.
pub(crate) const INSTANCE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a query waits for room for its driver and one task. Queries run for minutes, and a
/// client that cancels a query ends this wait too.
pub const QUERY_PATIENCE: Duration = Duration::from_secs(600);

/// The memory that a first zygote (one that is not forked from another zygote) reserves until its
/// memory is measured: a bare interpreter with the runtime has about 12 MiB.
pub const FIRST_ZYGOTE: ByteSize = ByteSize::mib(16);

/// The default of [`crate::Options::overcommit`]. A memory limit is a maximum that most functions
/// stay far below: a Python instance with its defaults (512 MiB) has about 20 MiB of its own. If
/// each instance reserved its limit, a host of 4 GiB would hold 8 of them. If instances use more
/// than they reserve all the same, the kernel ends functions first, because all sandboxes together
/// have a limit.
pub const OVERCOMMIT: u32 = 8;

/// The number of processes that is counted for each sandbox, out of the limit of processes of all
/// sandboxes: its own process, its threads, and the process that set it up.
const PROCESSES_EACH: u32 = 8;

/// The part (1/N) of the host's capacity of memory that zygotes may have at most: they save time,
/// and must not keep instances from starting on a small host.
const ZYGOTES_AT_MOST: u64 = 4;

/// Returns the capacity that the sandboxes of a host share: their memory limit (all memory of the
/// machine if there is none), and as many instances as the limit of processes allows.
pub fn capacity(total: &Total) -> Capacity {
    let processes = total.process_limit().unwrap_or(u32::MAX);
    Capacity {
        memory: total.memory_limit().unwrap_or_else(machine_memory),
        instances: (processes / PROCESSES_EACH).max(1),
        cpu: None,
    }
}

/// The ledger of a host, and the idle instances and workers on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Account {
    /// The reservations of all sandboxes on the host.
    pub ledger: Ledger,
    overcommit: u64,
    instances: Arc<dyn IdlePool>,
    workers: Arc<dyn IdlePool>,
    // Tasks of queries wait for idle workers too.
    worker_is_idle: Arc<Notify>,
}

/// The idle sandboxes of one kind, which may be ended to make room.
pub(crate) trait IdlePool: Debug + Send + Sync {
    /// Returns since when the sandbox that is idle longest is idle; `None` if none is idle.
    fn oldest(&self) -> Option<Instant>;

    /// Ends the sandbox that is idle longest; `false` if none is idle.
    fn end_oldest(&self) -> bool;
}

impl<T: Debug + Send> IdlePool for ItemPool<T> {
    fn oldest(&self) -> Option<Instant> {
        Self::oldest(self)
    }

    fn end_oldest(&self) -> bool {
        self.evict_oldest().is_some()
    }
}

/// The sandboxes that may be ended to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayEnd {
    /// All that are idle: instances and workers.
    Idle,
    /// Idle workers only.
    IdleWorkers,
}

/// Room for instances, and for the zygote that has to be started for them.
#[derive(Debug, Default)]
pub struct InstanceRooms {
    /// The reservation of each instance; `None` for an instance that runs in room that somebody
    /// else keeps.
    pub each: Vec<Option<Reservation>>,
    /// The room for the zygote of these instances, if they need one that does not run yet.
    pub zygote: ZygoteRoom,
}

/// Room for a first zygote, taken by whoever starts it.
#[derive(Debug, Default)]
pub struct ZygoteRoom(Mutex<Option<Reservation>>);

impl ZygoteRoom {
    /// Wraps the room for a zygote; `None` where there is none to take.
    pub fn new(room: Option<Reservation>) -> Self {
        Self(Mutex::new(room))
    }

    pub(crate) fn take(&self) -> Option<Reservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, room: Reservation) {
        // The replaced reservation is dropped outside the lock.
        let replaced = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(room);
        drop(replaced);
    }
}

impl Account {
    pub(crate) fn new(
        capacity: Capacity,
        overcommit: u32,
        instances: Arc<dyn IdlePool>,
        workers: Arc<dyn IdlePool>,
    ) -> Self {
        let ledger = Ledger::new(capacity);
        let overcommit = overcommit.max(1).into();
        Self { ledger, overcommit, instances, workers, worker_is_idle: Arc::default() }
    }

    /// Returns the most memory that all zygotes may have: `budget`, but at most their part of the
    /// capacity.
    pub(crate) fn zygotes(&self, budget: ByteSize) -> ByteSize {
        budget.min(ByteSize(self.ledger.capacity().memory.bytes() / ZYGOTES_AT_MOST))
    }

    /// Returns the amount that an instance of a function or UDF reserves: 1/overcommit of its
    /// memory limit, and its processor share.
    pub fn instance(&self, limits: &InstanceLimits) -> Amount {
        let memory = ByteSize(limits.memory.bytes() / self.overcommit);
        Amount::one(memory, limits.cpu)
    }

    /// Returns the sum of the memory limits of instances that reserve `bytes` bytes together.
    pub fn limits_in(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.overcommit)
    }

    /// Reserves room at once, if no other request waits for room; idle sandboxes are ended to make
    /// room.
    pub fn at_once(&self, ask: &RoomRequest) -> Result<Reservation, NoRoom> {
        self.at_once_ending(ask, MayEnd::Idle)
    }

    /// Reserves room at once, if no other request waits for room; the sandboxes that `may_end`
    /// names are ended to make room.
    pub fn at_once_ending(
        &self,
        ask: &RoomRequest,
        may_end: MayEnd,
    ) -> Result<Reservation, NoRoom> {
        let evict = || match may_end {
            MayEnd::Idle => self.evict_oldest(),
            MayEnd::IdleWorkers => self.workers.end_oldest(),
        };
        loop {
            match self.ledger.try_reserve(ask) {
                // Nothing idle is ended in vain: not for a request that the host could never hold,
                // nor past others that wait.
                Err(no_room) if !self.may_fit(ask) || !evict() => return Err(no_room),
                Err(_) => {}
                reserved => return reserved,
            }
        }
    }

    /// Reserves room at once for as many requests like `each` as there is room for, `most` at most;
    /// idle sandboxes are ended to make room.
    pub(crate) fn up_to(&self, each: &RoomRequest, most: usize) -> Vec<Reservation> {
        let mut rooms = self.ledger.try_reserve_up_to(each, most);
        while rooms.len() < most && self.may_fit(each) && self.evict_oldest() {
            rooms.extend(self.ledger.try_reserve_up_to(each, most - rooms.len()));
        }
        rooms
    }

    /// Reserves room at once, or when it is this request's turn, `patience` from now at the latest;
    /// idle sandboxes are ended to make room.
    pub async fn within(
        &self,
        ask: RoomRequest,
        patience: Duration,
    ) -> Result<Reservation, NoRoom> {
        if let Ok(room) = self.at_once(&ask) {
            return Ok(room);
        }
        // In the queue first, then room is made: what becomes idle in between is ended for it as
        // well.
        let waiting = self.ledger.wait(ask)?;
        self.make_room();
        waiting.until(Instant::now() + patience).await
    }

    /// Ends idle sandboxes as long as a request waits for room. To be called whenever a request
    /// begins to wait, and whenever a sandbox becomes idle.
    pub(crate) fn make_room(&self) {
        while self.ledger.is_wanted() && self.evict_oldest() {}
    }

    /// Waits until a worker has become idle after this call.
    pub fn idle_worker(&self) -> Notified<'_> {
        self.worker_is_idle.notified()
    }

    /// Wakes everybody who waits for an idle worker, because a worker has become idle.
    pub(crate) fn worker_is_idle(&self) {
        self.worker_is_idle.notify_waiters();
    }

    fn may_fit(&self, ask: &RoomRequest) -> bool {
        !self.ledger.is_wanted() && self.ledger.capacity().holds(ask.amount)
    }

    /// Ends the instance or the worker that is idle longest, of all tenants; `false` if none is
    /// idle.
    fn evict_oldest(&self) -> bool {
        match (self.instances.oldest(), self.workers.oldest()) {
            (Some(instance), Some(worker)) if worker < instance => self.workers.end_oldest(),
            (Some(_), _) => self.instances.end_oldest(),
            (None, Some(_)) => self.workers.end_oldest(),
            (None, None) => false,
        }
    }
}

impl Account {
    /// Reserves room for as many new instances as there is, `most` at most, and for their `first`
    /// zygote, without ending anything idle: for instances that are started before they are needed.
    /// Without room for the zygote there is none for the instances.
    pub fn ahead(
        &self,
        tenant: &Tenant,
        limits: &InstanceLimits,
        use_: Use,
        most: usize,
        first: Option<Amount>,
    ) -> InstanceRooms {
        let ask = |use_, amount| self.ask(tenant, use_, amount);
        let zygote = first.map(|amount| self.ledger.try_reserve(&ask(Use::Zygote, amount)));
        // The zygote first: instances without it could not be forked.
        let Ok(zygote) = zygote.transpose() else { return InstanceRooms::default() };
        let rooms = self.ledger.try_reserve_up_to(&ask(use_, self.instance(limits)), most);
        InstanceRooms {
            each: rooms.into_iter().map(Some).collect(),
            zygote: ZygoteRoom::new(zygote),
        }
    }

    /// Reserves room at once for as many new instances as there is, `most` at most, and for their
    /// `first` zygote; `None` if there is no room for the zygote or for any instance. Idle
    /// sandboxes are ended to make room.
    pub(crate) fn rooms_at_once(
        &self,
        tenant: &Tenant,
        limits: &InstanceLimits,
        use_: Use,
        most: usize,
        first: Option<Amount>,
    ) -> Option<InstanceRooms> {
        let ask = |use_, amount| self.ask(tenant, use_, amount);
        let zygote = match first {
            Some(amount) => Some(self.at_once(&ask(Use::Zygote, amount)).ok()?),
            None => None,
        };
        let each = self.up_to(&ask(use_, self.instance(limits)), most);
        let each: Vec<_> = each.into_iter().map(Some).collect();
        (!each.is_empty()).then(|| InstanceRooms { each, zygote: ZygoteRoom::new(zygote) })
    }

    /// Makes a request for room; reserves nothing yet.
    pub fn ask(&self, tenant: &Tenant, use_: Use, amount: Amount) -> RoomRequest {
        RoomRequest { tenant: tenant.clone(), use_, amount }
    }
}

/// Returns the amount that a first zygote (one that is not forked from another zygote) reserves.
pub fn zygote() -> Amount {
    // The processor time of a first zygote is that of its imports, which end before it is forked.
    Amount { memory: FIRST_ZYGOTE, cpu_millis: 0, instances: 1 }
}

impl From<NoRoom> for Error {
    fn from(no_room: NoRoom) -> Self {
        Self::NoRoom(Box::new(no_room))
    }
}
