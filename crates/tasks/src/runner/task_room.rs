//! Reserves the room of a query: for its driver, for one task at any time, and for more tasks where
//! there is room.
//!
//! A task reserves its worker and the instances of its UDFs together, so no two queries have halves
//! and wait for each other's other half. Tasks for which there is no room wait, so they run in
//! waves.
//!
//! No query waits for ever, for these reasons. A query begins only when it has room for its driver,
//! for the driver's own instances, and for one task (the kept room); it waits for these in one
//! request, and holds nothing meanwhile. From then on one of its tasks can always run, whatever
//! others hold: in the kept room, which is returned when that task has ended. A task that waits
//! holds nothing either, so each task gets the kept room at last. Nothing else that a query needs
//! waits for room.
//!
//! So a task can do without room of its own. It gets room that nobody else waits for or requests: a
//! long query with many tasks does not keep short calls waiting, and idle instances of functions
//! stay.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use snowmelt_ledger::{Amount, Reservation, Use, WaitingRequest};
use snowmelt_node::{
    Error, FIRST_ZYGOTE, InstanceLease, InstanceRooms, MayEnd, QUERY_PATIENCE, Result, Unit,
    WorkerLease, WorkerSpec, ZygoteRoom, zygote,
};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport};
use snowmelt_wire::TaskAsk;
use tokio::sync::OwnedSemaphorePermit;

use super::query_room::{QueueCount, RoomPermit, SandboxOrigin, TaskRoom};
use super::query_runner::QueryRunner;
use super::udf::UdfBinding;

/// The most tasks of a query that wait for room; each costs the server its request.
const MAX_WAITING: usize = 65_536;

/// The sandboxes that a task needs of its host.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    /// The names of the UDFs that the task calls.
    pub udfs: &'a [String],
    pub spec: WorkerSpec,
}

impl QueryRunner {
    /// Returns the specification of a task's worker.
    pub(crate) fn spec(&self, ask: &TaskAsk) -> WorkerSpec {
        self.worker_spec(!ask.s3.is_empty())
    }

    /// Returns the sandboxes that a task needs of its host.
    pub(crate) fn needs<'a>(&self, ask: &'a TaskAsk) -> Needs<'a> {
        Needs { udfs: &ask.udfs, spec: self.spec(ask) }
    }

    /// Returns the specification of a worker with or without a network.
    pub(crate) fn worker_spec(&self, network: bool) -> WorkerSpec {
        WorkerSpec { memory: self.limits.memory, cpu: self.limits.cpu, network }
    }

    /// Returns the number of tasks that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.room.waiting.load(Ordering::Relaxed)
    }

    /// Returns memory and processor of the sandboxes of a task with these UDFs.
    pub(crate) fn sandboxes_of(&self, udfs: &[String]) -> (ByteSize, CpuMillis) {
        let worker = Amount::one(self.limits.memory, self.limits.cpu);
        let Amount { memory, cpu_millis, .. } = worker + self.udf_amount(udfs.iter());
        (memory, CpuMillis(u32::try_from(cpu_millis).unwrap_or(u32::MAX)))
    }

    /// Returns whether no task runs in the kept room.
    pub(crate) fn kept_room_is_free(&self) -> bool {
        self.room.free.available_permits() > 0
    }

    /// Waits until no other task runs in the kept room, and takes it for a task.
    pub(crate) async fn kept_task_room(&self, ask: &TaskAsk) -> Result<TaskRoom> {
        let needs = self.needs(ask);
        match Arc::clone(&self.room.free).acquire_owned().await {
            Ok(permit) => Ok(self.in_kept_room(&needs, permit)),
            Err(_) => self.task_room(ask).await,
        }
    }

    /// Waits until the query has room for its driver and one task, and leases the driver. What the
    /// quota of its tenant has not is refused.
    pub(crate) async fn admit(&self, spec: &WorkerSpec) -> Result<WorkerLease> {
        self.begin_share(spec).map_err(|reached| Error::Report(Box::new(reached)))?;
        let asked = Instant::now();
        let account = self.host.node.account();
        let beside = self.task_amount(self.names()) + self.udf_amount(self.names());
        let ask = |amount| account.ask(&self.tenant, Use::Driver, amount);
        if let Some(idle) = self.host.node.idle_worker(spec, asked) {
            if let Ok(room) = account.at_once(&ask(beside)) {
                self.keep(room);
                return Ok(idle.used_for(Use::Driver));
            }
            idle.put_back();
        }
        // A query that needs more than the host has gets all of it, and so runs alone: the limits
        // of its sandboxes are maximums, and their sum is rarely used.
        let all = account.ledger.capacity().clamp(spec.amount() + beside);
        let mut room = account.within(ask(all), QUERY_PATIENCE).await?;
        let driver = room.take(spec.amount(), Use::Driver);
        self.keep(room);
        let leased = self.host.node.lease_worker(spec, Some(driver), asked).await?;
        Ok(leased.used_for(Use::Driver))
    }

    fn keep(&self, mut room: Reservation) {
        let own = self.udfs.iter().map(|(name, udf)| {
            let amount = self.host.node.account().instance(&udf.udf.limits);
            (name.clone(), room.take(amount, Use::Udf))
        });
        *lock(&self.room.own) = own.collect();
        let all = room.amount();
        *lock(&self.room.kept) = Some(room.take(all, Use::Task));
        self.room.free.add_permits(1);
    }

    /// Takes the room of an instance that the driver calls itself.
    pub(crate) async fn own_room(&self, name: &str) -> Result<InstanceRooms> {
        let own = lock(&self.room.own).remove(name);
        let Some(udf) = self.udfs.get(name).map(|bound| &bound.udf) else {
            return Ok(InstanceRooms { each: vec![None], zygote: ZygoteRoom::default() });
        };
        match own {
            Some(room) => {
                Ok(InstanceRooms { each: vec![Some(room)], zygote: self.kept_zygote(&udf.unit) })
            }
            None => {
                let node = &self.host.node;
                node.rooms(&udf.unit, &udf.limits, Use::Udf, 1).await
            }
        }
    }

    /// Reserves the room of a task, if there is some now.
    pub(crate) fn reserve_at_once(&self, ask: &TaskAsk) -> Option<TaskRoom> {
        self.room_at_once(&self.needs(ask), MayEnd::Idle)
    }

    /// Waits for the room of a task: its own, or the kept room.
    pub(crate) async fn task_room(&self, ask: &TaskAsk) -> Result<TaskRoom> {
        let needs = self.needs(ask);
        // A second attempt takes no room that a task without any waits for.
        if ask.twin && self.waiting() > 0 {
            return Err(no_room_for_twin());
        }
        if let Some(room) = self.room_at_once(&needs, MayEnd::Idle) {
            return Ok(room);
        }
        if ask.twin {
            return Err(no_room_for_twin());
        }
        if self.room.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            self.room.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(too_many_tasks());
        }
        let _counted = QueueCount(&self.room.waiting);
        let _turn = self.room.turn.lock().await;
        self.wait_for_room(&needs).await
    }

    /// Waits for an idle worker, for the kept room, or for room that nobody else requests: a task
    /// can do without room of its own, because it can run in the kept room.
    async fn wait_for_room(&self, needs: &Needs<'_>) -> Result<TaskRoom> {
        let account = self.host.node.account();
        let amount = self.task_amount(needs.udfs.iter());
        let whole = account.ask(&self.tenant, Use::Worker, amount);
        if !self.has_kept_room() {
            return Ok(self.in_own_room(needs, account.within(whole, QUERY_PATIENCE).await?));
        }
        // None for a task with UDFs that is larger than the host.
        let mut waiting = account.ledger.wait_for_spare(whole).ok();
        loop {
            // Before the attempt, so that no worker after it is missed.
            let idle = account.idle_worker();
            if let Some(room) = self.room_at_once(needs, MayEnd::IdleWorkers) {
                return Ok(room);
            }
            tokio::select! {
                biased;
                Ok(permit) = Arc::clone(&self.room.free).acquire_owned() => {
                    return Ok(self.in_kept_room(needs, permit));
                }
                Some(room) = granted(&mut waiting) => return Ok(self.in_own_room(needs, room)),
                () = idle => {}
            }
        }
    }

    /// Takes the idle sandboxes that a task can use, and reserves room for the rest. If there is no
    /// such room now, the idle sandboxes are given back.
    fn room_at_once(&self, needs: &Needs<'_>, may_end: MayEnd) -> Option<TaskRoom> {
        let account = self.host.node.account();
        let Needs { udfs, spec } = needs;
        let worker = self.host.node.idle_worker(spec, Instant::now());
        let idle: Vec<_> =
            udfs.iter().map(|name| self.udfs.get(name)?.idle(&self.host.node)).collect();
        let missing = udfs.iter().zip(&idle).filter(|(_, idle)| idle.is_none());
        let missing: Vec<&String> = missing.map(|(name, _)| name).collect();
        let mut amount = self.amount_of_udfs(missing.iter().copied());
        if worker.is_none() {
            amount += spec.amount();
        }
        let whole = account.ask(&self.tenant, Use::Worker, amount);
        let mut room = match amount == Amount::default() {
            true => None,
            false => match account.at_once_ending(&whole, may_end) {
                Ok(room) => Some(room),
                Err(_) => {
                    worker.into_iter().for_each(WorkerLease::put_back);
                    idle.into_iter().flatten().for_each(InstanceLease::give_back);
                    return None;
                }
            },
        };
        Some(self.divide(needs, &mut room, worker, idle))
    }

    fn in_own_room(&self, needs: &Needs<'_>, room: Reservation) -> TaskRoom {
        let idle = needs.udfs.iter().map(|_| None).collect();
        self.divide(needs, &mut Some(room), None, idle)
    }

    pub(crate) fn in_kept_room(&self, needs: &Needs<'_>, permit: OwnedSemaphorePermit) -> TaskRoom {
        let idle = needs.udfs.iter().map(|_| None).collect();
        let kept = Some(RoomPermit(permit));
        TaskRoom { kept, ..self.divide(needs, &mut None, None, idle) }
    }

    /// Gives each sandbox that is to be started its part of the room.
    pub(crate) fn divide(
        &self,
        needs: &Needs<'_>,
        room: &mut Option<Reservation>,
        worker: Option<WorkerLease>,
        idle: Vec<Option<InstanceLease>>,
    ) -> TaskRoom {
        let worker = match worker {
            Some(idle) => SandboxOrigin::Idle(idle),
            None => SandboxOrigin::New(part(room, needs.spec.amount(), Use::Worker)),
        };
        let udfs =
            needs.udfs.iter().zip(idle).map(|(name, idle)| match (idle, self.udfs.get(name)) {
                (Some(idle), _) => SandboxOrigin::Idle(idle),
                (None, Some(bound)) => SandboxOrigin::New(self.divide_udf(&bound.udf, room)),
                // The start of it fails.
                (None, None) => SandboxOrigin::New(InstanceRooms {
                    each: vec![None],
                    ..InstanceRooms::default()
                }),
            });
        TaskRoom { worker, udfs: udfs.collect(), kept: None }
    }

    fn divide_udf(&self, udf: &UdfBinding, room: &mut Option<Reservation>) -> InstanceRooms {
        let own = part(room, self.host.node.account().instance(&udf.limits), Use::Udf);
        let zygote = match room {
            Some(room) if self.host.node.needs_zygote(&udf.unit) => {
                ZygoteRoom::new(Some(room.take(zygote(), Use::Zygote)))
            }
            Some(_) => ZygoteRoom::default(),
            None => self.kept_zygote(&udf.unit),
        };
        InstanceRooms { each: vec![own], zygote }
    }

    /// Returns room for the zygote that an instance in the kept room needs: a part of the room that
    /// was reserved for it.
    fn kept_zygote(&self, unit: &Unit) -> ZygoteRoom {
        if !self.host.node.needs_zygote(unit) {
            return ZygoteRoom::default();
        }
        let mut kept = lock(&self.room.kept);
        let kept = kept.as_mut().filter(|kept| kept.amount().memory >= FIRST_ZYGOTE);
        ZygoteRoom::new(kept.map(|kept| kept.take(zygote(), Use::Zygote)))
    }

    /// Returns how many further tasks could be started now.
    pub(crate) fn tasks_with_room(&self) -> usize {
        self.host.node.ledger().how_many(self.task_amount(self.names()))
    }

    fn has_kept_room(&self) -> bool {
        lock(&self.room.kept).is_some()
    }

    fn names(&self) -> impl Iterator<Item = &String> + Clone {
        self.udfs.keys()
    }

    /// Returns the room of a worker, of instances of these UDFs, and of the zygotes that these
    /// need.
    fn task_amount<'n>(&self, names: impl Iterator<Item = &'n String> + Clone) -> Amount {
        let worker = Amount::one(self.limits.memory, self.limits.cpu);
        worker + self.amount_of_udfs(names)
    }

    /// Returns the room of instances of these UDFs, and of the zygotes that these need.
    pub(crate) fn amount_of_udfs<'n>(
        &self,
        names: impl Iterator<Item = &'n String> + Clone,
    ) -> Amount {
        self.udf_amount(names.clone()) + self.zygotes(names)
    }

    fn udf_amount<'n>(&self, names: impl Iterator<Item = &'n String>) -> Amount {
        let bound = names.filter_map(|name| self.udfs.get(name));
        let each = bound.map(|bound| self.host.node.account().instance(&bound.udf.limits));
        each.fold(Amount::default(), |sum, one| sum + one)
    }

    fn zygotes<'n>(&self, names: impl Iterator<Item = &'n String>) -> Amount {
        let units = names.filter_map(|name| Some(&self.udfs.get(name)?.udf.unit));
        let lacking = units.filter(|unit| self.host.node.needs_zygote(unit));
        zygote().times(lacking.count() as u64)
    }
}

/// Waits for the room that was requested; `None` if there is nothing to wait for.
async fn granted(waiting: &mut Option<WaitingRequest>) -> Option<Reservation> {
    waiting.as_mut()?.await.ok()
}

fn part(room: &mut Option<Reservation>, amount: Amount, use_: Use) -> Option<Reservation> {
    room.as_mut().map(|room| room.take(amount, use_))
}

fn too_many_tasks() -> Error {
    let message = format!("more than {MAX_WAITING} tasks of the query wait for room");
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message);
    Error::Report(Box::new(report.hint("use fewer workers (--workers)")))
}

fn no_room_for_twin() -> Error {
    let message = "there is no room for a second attempt of a slow task";
    Error::Report(Box::new(ErrorReport::new(Code::WORKER_LOST, message)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
