//! The shares of a query's tasks in the quota of its tenant.
//!
//! A task takes its share before it looks for room on a host, so one that waits for its share holds
//! nothing.

use std::sync::Arc;

use snowmelt_node::WorkerSpec;
use snowmelt_types::{ByteSize, ErrorReport};

use super::query_runner::QueryRunner;
use crate::task_quota::{SandboxSum, TaskQuota, TaskShare};

impl QueryRunner {
    /// Counts the query's sandboxes within this quota.
    pub fn within(mut self, quota: Arc<dyn TaskQuota>) -> Self {
        self.room.quota = Some(quota);
        self
    }

    /// Takes the shares of the driver, of the functions that it calls itself, and of one task.
    pub(crate) fn begin_share(&self, driver: &WorkerSpec) -> Result<(), ErrorReport> {
        let Some(quota) = &self.room.quota else { return Ok(()) };
        let own = self.udfs.keys().fold(of_worker(driver), |sum, udf| sum.plus(self.of_udf(udf)));
        quota.begin(own.plus(self.of_task(self.udfs.keys())))
    }

    /// Waits for the share of a task with these UDFs; `None` where none counts.
    pub(crate) async fn share(&self, udfs: &[String]) -> Option<TaskShare> {
        match &self.room.quota {
            Some(quota) => Some(quota.wait(self.of_task(udfs.iter())).await),
            None => None,
        }
    }

    /// Takes the shares of tasks that run together, if there are some now.
    ///
    /// # Errors
    /// [`NoShare`] if there are none.
    pub(crate) fn share_at_once<'n>(
        &self,
        tasks: impl Iterator<Item = &'n [String]>,
    ) -> Result<Option<TaskShare>, NoShare> {
        let Some(quota) = &self.room.quota else { return Ok(None) };
        let sums = tasks.map(|udfs| self.of_task(udfs.iter()));
        let sum = sums.fold(SandboxSum::default(), SandboxSum::plus);
        quota.take(sum).map(Some).ok_or(NoShare)
    }

    fn of_task<'n>(&self, udfs: impl Iterator<Item = &'n String>) -> SandboxSum {
        let worker = of_worker(&self.worker_spec(false));
        udfs.fold(worker, |sum, udf| sum.plus(self.of_udf(udf)))
    }

    fn of_udf(&self, name: &str) -> SandboxSum {
        let limits = self.udfs.get(name).map(|bound| &bound.udf.limits);
        limits.map_or_else(SandboxSum::default, |limits| SandboxSum {
            sandboxes: 1,
            memory: ByteSize(limits.memory.bytes()),
            cpu_millis: limits.cpu.0.into(),
        })
    }
}

/// The answer to tasks for which there is no share now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoShare;

fn of_worker(spec: &WorkerSpec) -> SandboxSum {
    SandboxSum { sandboxes: 1, memory: spec.memory, cpu_millis: spec.cpu.0.into() }
}
