//! The room on the host: what a start asks of the ledger, and what makes room for it.
//!
//! Invariant: every sandbox owns its reservation, so the room is given back when the sandbox is
//! destroyed. What was started in room that somebody else keeps (the task of a query) owns none,
//! and is not kept idle. Taking something idle again touches no ledger.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_ledger::{Amount, Ask, Capacity, Ledger, NoRoom, Reservation, Use};
use snowmelt_sandbox::Total;
use snowmelt_types::{ByteSize, Tenant};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::instances::instance::Instance;
use crate::pool::Pool;
use crate::workers::worker::Worker;
use crate::{Error, InstanceLimits, Result, Unit, machine_memory};

/// How long the start of an instance waits for room. Most calls end sooner than that, and a caller
/// that waits longer is better told so: it may try again or elsewhere.
pub(crate) const INSTANCE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a query waits for its driver and one task. Queries run for minutes, and who cancels one
/// drops this too.
pub const QUERY_PATIENCE: Duration = Duration::from_secs(600);

/// What a first zygote reserves until its memory is measured: a bare interpreter with the runtime
/// has about 12 MiB.
pub const FIRST_ZYGOTE: ByteSize = ByteSize::mib(16);

/// The default of [`crate::Options::overcommit`]. A memory limit is a maximum that most functions
/// stay far below: a Python instance with its defaults (512 MiB) has about 20 MiB of its own. If
/// each reserved its limit, a host of 4 GiB would hold 8 of them. If they use more all the same, the
/// kernel ends functions first, because the sandboxes have a limit together.
pub const OVERCOMMIT: u32 = 8;

/// Of the limit of processes of all sandboxes, what is counted for each: its own process, its
/// threads, and the process that set it up.
const PROCESSES_EACH: u32 = 8;

/// Of the capacity, what zygotes have at most (1/N): they save time, and must not keep instances
/// from starting on a small host.
const ZYGOTES_AT_MOST: u64 = 4;

/// What the sandboxes of a host have together.
pub fn capacity(total: &Total) -> Capacity {
    let processes = total.process_limit().unwrap_or(u32::MAX);
    Capacity {
        memory: total.memory_limit().unwrap_or_else(machine_memory),
        instances: (processes / PROCESSES_EACH).max(1),
        cpu: None,
    }
}

/// The ledger of a host, and what is idle on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Account {
    /// What is reserved.
    pub ledger: Ledger,
    overcommit: u64,
    instances: Arc<Pool<Arc<Instance>>>,
    workers: Arc<Pool<Worker>>,
    // Tasks of queries wait for idle workers too.
    worker_is_idle: Arc<Notify>,
}

/// What may be ended to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayEnd {
    /// Whatever is idle.
    Idle,
    /// Idle workers only.
    IdleWorkers,
}

/// Room for instances, and for the zygote that has to be started for them.
#[derive(Debug, Default)]
pub struct Rooms {
    /// For each instance; none for one that runs in room that somebody else keeps.
    pub each: Vec<Option<Reservation>>,
    /// For their zygote, if they need one that does not run.
    pub zygote: ZygoteRoom,
}

/// Room for a first zygote, taken by whoever starts it.
#[derive(Debug, Default)]
pub struct ZygoteRoom(Mutex<Option<Reservation>>);

impl ZygoteRoom {
    /// This room, if there is any.
    pub fn new(room: Option<Reservation>) -> Self {
        Self(Mutex::new(room))
    }

    pub(crate) fn take(&self) -> Option<Reservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, room: Reservation) {
        // What it replaces is dropped outside the lock.
        let replaced = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(room);
        drop(replaced);
    }
}

impl Account {
    pub(crate) fn new(
        capacity: Capacity,
        overcommit: u32,
        instances: Arc<Pool<Arc<Instance>>>,
        workers: Arc<Pool<Worker>>,
    ) -> Self {
        let (ledger, overcommit) = (Ledger::new(capacity), overcommit.max(1).into());
        Self { ledger, overcommit, instances, workers, worker_is_idle: Arc::default() }
    }

    /// The most memory of zygotes.
    pub(crate) fn zygotes(&self, budget: ByteSize) -> ByteSize {
        budget.min(ByteSize(self.ledger.capacity().memory.bytes() / ZYGOTES_AT_MOST))
    }

    /// What an instance of a function or UDF reserves: a part of its limit.
    pub fn instance(&self, limits: &InstanceLimits) -> Amount {
        let memory = ByteSize(limits.memory.bytes() / self.overcommit);
        Amount::one(memory, limits.cpu)
    }

    /// The memory limits of instances that reserve so many bytes together.
    pub fn limits_in(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.overcommit)
    }

    /// Room at once, if nobody waits; what is idle makes room.
    pub fn at_once(&self, ask: &Ask) -> Result<Reservation, NoRoom> {
        self.at_once_ending(ask, MayEnd::Idle)
    }

    /// Room at once, if nobody waits; what may be ended makes room.
    pub fn at_once_ending(&self, ask: &Ask, may_end: MayEnd) -> Result<Reservation, NoRoom> {
        let evict = || match may_end {
            MayEnd::Idle => self.evict_oldest(),
            MayEnd::IdleWorkers => self.workers.evict_oldest().is_some(),
        };
        loop {
            match self.ledger.try_reserve(ask) {
                Err(no_room) if !self.may_fit(ask) || !evict() => return Err(no_room),
                Err(_) => {}
                reserved => return reserved,
            }
        }
    }

    /// Room at once for as many as there is, and `most` at most; what is idle makes room.
    pub(crate) fn up_to(&self, each: &Ask, most: usize) -> Vec<Reservation> {
        let mut rooms = self.ledger.try_reserve_up_to(each, most);
        while rooms.len() < most && self.may_fit(each) && self.evict_oldest() {
            rooms.extend(self.ledger.try_reserve_up_to(each, most - rooms.len()));
        }
        rooms
    }

    /// Room at once, or when it is this request's turn; what is idle makes room.
    pub async fn within(&self, ask: Ask, patience: Duration) -> Result<Reservation, NoRoom> {
        if let Ok(room) = self.at_once(&ask) {
            return Ok(room);
        }
        let waiting = self.ledger.wait(ask)?;
        self.make_room();
        waiting.until(Instant::now() + patience).await
    }

    /// Ends what is idle as long as somebody waits. To be called whenever somebody begins to wait,
    /// and whenever something becomes idle.
    pub(crate) fn make_room(&self) {
        while self.ledger.is_wanted() && self.evict_oldest() {}
    }

    /// Ends when a worker has become idle after this call.
    pub fn idle_worker(&self) -> Notified<'_> {
        self.worker_is_idle.notified()
    }

    /// A worker has become idle.
    pub(crate) fn worker_is_idle(&self) {
        self.worker_is_idle.notify_waiters();
    }

    fn may_fit(&self, ask: &Ask) -> bool {
        !self.ledger.is_wanted() && self.ledger.capacity().holds(ask.amount)
    }

    /// Ends the instance or the worker that is idle longest, of all tenants.
    fn evict_oldest(&self) -> bool {
        match (self.instances.oldest(), self.workers.oldest()) {
            (Some(instance), Some(worker)) if worker < instance => {
                self.workers.evict_oldest().is_some()
            }
            (Some(_), _) => self.instances.evict_oldest().is_some(),
            (None, Some(_)) => self.workers.evict_oldest().is_some(),
            (None, None) => false,
        }
    }
}

impl Account {
    /// Room for as many new instances as there is, and `most` at most, and for their `first` zygote,
    /// without ending anything idle: for what is started before it is needed.
    pub fn ahead(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        use_: Use,
        (most, first): (usize, Option<Amount>),
    ) -> Rooms {
        let ask = |use_, amount| self.ask(&unit.tenant, use_, amount);
        let zygote = first.map(|amount| self.ledger.try_reserve(&ask(Use::Zygote, amount)));
        let Ok(zygote) = zygote.transpose() else { return Rooms::default() };
        let rooms = self.ledger.try_reserve_up_to(&ask(use_, self.instance(limits)), most);
        Rooms { each: rooms.into_iter().map(Some).collect(), zygote: ZygoteRoom::new(zygote) }
    }

    /// Room at once for as many new instances as there is, and `most` at most, and for their `first`
    /// zygote; none if there is no room for any.
    pub(crate) fn rooms_at_once(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        use_: Use,
        (most, first): (usize, Option<Amount>),
    ) -> Option<Rooms> {
        let ask = |use_, amount| self.ask(&unit.tenant, use_, amount);
        let zygote = match first {
            Some(amount) => Some(self.at_once(&ask(Use::Zygote, amount)).ok()?),
            None => None,
        };
        let each = self.up_to(&ask(use_, self.instance(limits)), most);
        let each: Vec<_> = each.into_iter().map(Some).collect();
        (!each.is_empty()).then(|| Rooms { each, zygote: ZygoteRoom::new(zygote) })
    }

    /// A request for room.
    pub fn ask(&self, tenant: &Tenant, use_: Use, amount: Amount) -> Ask {
        Ask { tenant: tenant.clone(), use_, amount }
    }
}

/// What a first zygote reserves.
pub fn zygote() -> Amount {
    // Its processor time is that of its imports, which end before it is forked.
    Amount { memory: FIRST_ZYGOTE, cpu_millis: 0, instances: 1 }
}

impl From<NoRoom> for Error {
    fn from(no_room: NoRoom) -> Self {
        Self::NoRoom(Box::new(no_room))
    }
}
