//! The room of a gang: for all of its tasks at once, or for none.
//!
//! A gang never waits for room, and holds none before it has all. So it keeps no other query
//! waiting for a part that it could give, and two gangs cannot wait for each other. Its query can
//! do without a gang, because its stages can also run one after another.

use std::sync::Arc;
use std::time::Instant;

use snowmelt_ledger::{Amount, Use};
use snowmelt_node::{InstanceLease, MayEnd, WorkerLease};
use tokio::sync::OwnedSemaphorePermit;

use super::query_room::{SandboxOrigin, TaskRoom};
use super::query_runner::QueryRunner;
use super::task_room::Needs;

/// The idle sandboxes that a task can use.
struct IdleSandboxes {
    worker: Option<WorkerLease>,
    udfs: Vec<Option<InstanceLease>>,
}

impl IdleSandboxes {
    fn put_back(self) {
        self.worker.into_iter().for_each(WorkerLease::put_back);
        self.udfs.into_iter().flatten().for_each(InstanceLease::give_back);
    }
}

impl QueryRunner {
    /// Reserves the room of some tasks, if there is room for all of them now, and returns it in
    /// their order. One of them gets the kept room, unless another task runs in it.
    pub(crate) fn gang_room(&self, tasks: &[Needs<'_>]) -> Option<Vec<TaskRoom>> {
        // A gang takes no room that a task waits for which could run alone.
        if self.waiting() > 0 {
            return None;
        }
        let kept = self.kept_room_at_once();
        let others = &tasks[usize::from(kept.is_some()).min(tasks.len())..];
        let idle: Vec<IdleSandboxes> = others.iter().map(|task| self.idle(task)).collect();
        let missing = others.iter().zip(&idle).map(|(task, idle)| self.missing(task, idle));
        let amount = missing.fold(Amount::default(), |sum, one| sum + one);
        let account = self.host.node.account();
        let whole = account.ask(&self.tenant, Use::Worker, amount);
        let mut room = match amount == Amount::default() {
            true => None,
            false => match account.at_once_ending(&whole, MayEnd::Idle) {
                Ok(room) => Some(room),
                Err(_) => {
                    idle.into_iter().for_each(IdleSandboxes::put_back);
                    return None;
                }
            },
        };
        let in_kept = kept.zip(tasks.first()).map(|(permit, task)| self.in_kept_room(task, permit));
        let divided = others
            .iter()
            .zip(idle)
            .map(|(task, idle)| self.divide(task, &mut room, idle.worker, idle.udfs));
        Some(in_kept.into_iter().chain(divided).collect())
    }

    fn kept_room_at_once(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room.free).try_acquire_owned().ok()
    }

    fn idle(&self, task: &Needs<'_>) -> IdleSandboxes {
        let worker = self.host.node.idle_worker(&task.spec, Instant::now());
        let udfs =
            task.udfs.iter().map(|name| self.udfs.get(name)?.idle(&self.host.node)).collect();
        IdleSandboxes { worker, udfs }
    }

    /// Returns the room that a task needs for sandboxes that are not idle.
    fn missing(&self, task: &Needs<'_>, idle: &IdleSandboxes) -> Amount {
        let worker = match idle.worker {
            Some(_) => Amount::default(),
            None => task.spec.amount(),
        };
        let udfs = task.udfs.iter().zip(&idle.udfs).filter(|(_, idle)| idle.is_none());
        worker + self.amount_of_udfs(udfs.map(|(name, _)| name))
    }
}

impl TaskRoom {
    /// Gives back idle sandboxes that no task has used.
    pub(crate) fn put_back(self) {
        if let SandboxOrigin::Idle(worker) = self.worker {
            worker.put_back();
        }
        for udf in self.udfs {
            if let SandboxOrigin::Idle(instance) = udf {
                instance.give_back();
            }
        }
    }
}
