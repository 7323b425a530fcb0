//! The tasks of a query within the quotas of its tenant.
//!
//! Invariant: a query begins with the share of its driver and of one task, so that one of its tasks
//! can always run; whatever waits for more holds nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use snowmelt_tasks::{SandboxSum, TaskQuota, TaskShare};
use snowmelt_types::{ErrorReport, QueryId};

use super::guards::HeldRoom;
use super::rooms::{RoomAmount, RoomHolder};
use super::tenant::TenantQuotas;

/// The share of a query in the quotas of its tenant.
#[derive(Debug)]
pub(crate) struct QueryShare {
    of: Arc<TenantQuotas>,
    who: Arc<str>,
    kept: Arc<KeptShare>,
}

/// The share of the driver and of one task.
#[derive(Debug, Default)]
struct KeptShare {
    rooms: Mutex<Vec<HeldRoom>>,
    /// Whether the share of the task is there and no task has it.
    is_free: AtomicBool,
}

/// The share of the one task, until it is dropped.
struct KeptTask {
    of: Arc<TenantQuotas>,
    kept: Arc<KeptShare>,
}

impl Drop for KeptTask {
    fn drop(&mut self) {
        self.kept.is_free.store(true, Ordering::Release);
        self.of.wake();
    }
}

impl QueryShare {
    pub(super) fn new(of: Arc<TenantQuotas>, id: &QueryId) -> Self {
        let who = Arc::from(format!("query {id}"));
        Self { of, who, kept: Arc::default() }
    }

    fn holder(&self, sum: SandboxSum) -> RoomHolder {
        let amount = RoomAmount {
            instances: sum.sandboxes,
            memory: sum.memory.bytes(),
            cpu_millis: sum.cpu_millis,
        };
        RoomHolder { who: Arc::clone(&self.who), amount, shared_by: 1 }
    }

    fn kept_task(&self) -> Option<TaskShare> {
        let taken = self.kept.is_free.swap(false, Ordering::AcqRel);
        let task = || KeptTask { of: Arc::clone(&self.of), kept: Arc::clone(&self.kept) };
        taken.then(|| Box::new(task()) as TaskShare)
    }
}

#[async_trait]
impl TaskQuota for QueryShare {
    fn begin(&self, all: SandboxSum) -> Result<(), ErrorReport> {
        let room = HeldRoom::take(Arc::clone(&self.of), self.holder(all))?;
        self.kept.rooms.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        self.kept.is_free.store(true, Ordering::Release);
        Ok(())
    }

    fn take(&self, sum: SandboxSum) -> Option<TaskShare> {
        let room = HeldRoom::more(Arc::clone(&self.of), self.holder(sum))?;
        Some(Box::new(room))
    }

    async fn wait(&self, sum: SandboxSum) -> TaskShare {
        loop {
            let mut freed = std::pin::pin!(self.of.freed());
            freed.as_mut().enable();
            if let Some(share) = self.kept_task().or_else(|| self.take(sum)) {
                return share;
            }
            freed.await;
        }
    }
}
