//! The tasks of a query that follows others on the same runner: their numbers go on where those of the
//! earlier queries end.

use std::fs::File;
use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_plan::tasks::PlannedTask;
use snowmelt_types::ErrorReport;
use snowmelt_wire::{GangAsk, TaskStreams, UdfConnection};

use super::{Attempt, TaskError, TaskResult, TaskRunner};

/// A runner of tasks whose numbers begin at another one.
pub(crate) struct NumberedRunner {
    inner: Arc<dyn TaskRunner>,
    first: u32,
}

impl NumberedRunner {
    pub(crate) fn new(inner: Arc<dyn TaskRunner>, first: u32) -> Self {
        Self { inner, first }
    }

    fn numbered(&self, task: &PlannedTask) -> PlannedTask {
        let mut task = task.clone();
        task.task += self.first;
        task.reads.iter_mut().for_each(|read| read.task += self.first);
        if let Some(TaskStreams::Send(receivers)) = &mut task.streams {
            receivers.iter_mut().for_each(|receiver| receiver.task += self.first);
        }
        task
    }
}

#[async_trait]
impl TaskRunner for NumberedRunner {
    fn expect(&self, tasks: &mut dyn Iterator<Item = &PlannedTask>) {
        self.inner.expect(tasks);
    }

    async fn reserve(&self, gang: &GangAsk) -> Option<u64> {
        let mut gang = gang.clone();
        let tasks = gang.senders.iter_mut().chain(&mut gang.receivers);
        tasks.for_each(|task| task.task += self.first);
        self.inner.reserve(&gang).await
    }

    fn disband(&self, gang: u64) {
        self.inner.disband(gang);
    }

    async fn run(
        &self,
        task: &PlannedTask,
        attempt: &mut Attempt,
    ) -> Result<TaskResult, TaskError> {
        let ran = self.inner.run(&self.numbered(task), attempt).await;
        ran.map_err(|error| match error {
            TaskError::LostInputs { tasks, why } => {
                let own = |task: u32| task.saturating_sub(self.first);
                TaskError::LostInputs { tasks: tasks.into_iter().map(own).collect(), why }
            }
            other => other,
        })
    }

    fn release(&self, tasks: &[u32]) {
        let numbered: Vec<u32> = tasks.iter().map(|task| task + self.first).collect();
        self.inner.release(&numbered);
    }

    async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport> {
        self.inner.connect(udf).await
    }

    fn spool(&self) -> std::io::Result<File> {
        self.inner.spool()
    }
}
