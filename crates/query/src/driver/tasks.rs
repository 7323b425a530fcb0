//! Runs one task until an attempt is complete.
//!
//! The task of a lost worker is retried from its inputs. Since an attempt counts only when it is
//! complete, a retry cannot duplicate rows (Lambada 3.3).

use std::sync::Arc;

use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::OutputPartition;

use super::attempt::Attempt;
use super::progress::ProgressTracker;
use super::queue::Spool;
use super::{PlannedTask, TaskError, TaskResult, TaskRunner};
use crate::exchange::output_split;
use crate::plan::{Stage, count};
use crate::{Error, Result};

/// A task that is done.
pub(super) struct Finished {
    pub(super) stage: usize,
    pub(super) task: u32,
    pub(super) retries: u32,
    /// Bytes of its results on the wire, or of its output.
    pub(super) bytes: u64,
    pub(super) result: TaskResult,
}

/// What the tasks of a query share.
pub(super) struct Shared {
    pub(super) runner: Arc<dyn TaskRunner>,
    pub(super) spool: Arc<Spool>,
    pub(super) tracker: Arc<ProgressTracker>,
    pub(super) retries: u32,
}

/// Runs a task of stage number `index`, and runs it again while its workers are lost.
pub(super) async fn run_one(
    shared: &Shared,
    index: usize,
    stage: &Stage,
    planned: PlannedTask,
) -> Result<Finished> {
    let queue = stage.queue();
    let mut number = 0;
    loop {
        let on_progress = shared.tracker.callback(planned.task);
        let spool = Arc::clone(&shared.spool);
        let mut attempt = Attempt::new(number, spool, on_progress, queue.cloned());
        match shared.runner.run(&planned, &mut attempt).await {
            Ok(result) => {
                let output = &result.done.output;
                check_partitions(&planned, stage, &attempt, output)?;
                let written = output.iter().map(OutputPartition::bytes).sum::<u64>();
                let bytes = attempt.bytes + written;
                if let Some(queue) = queue {
                    queue.commit(attempt, &planned.partitions)?;
                }
                shared.tracker.done(planned.task, &result.done.progress);
                let task = planned.task;
                return Ok(Finished { stage: index, task, retries: number, bytes, result });
            }
            Err(TaskError::Lost { why }) if number < shared.retries => {
                drop(attempt);
                if let Some(queue) = queue.filter(|queue| queue.is_streaming()) {
                    queue.restart(&planned.partitions);
                }
                shared.tracker.retried(planned.task, &why);
                number += 1;
            }
            Err(TaskError::Lost { why }) => {
                return Err(retries_exhausted(planned.task, number, *why));
            }
            Err(TaskError::LostInputs { why, .. } | TaskError::Failed(why)) => {
                return Err(Error::Task(why));
            }
        }
    }
}

/// Checks that a worker posted only partitions of its task, and wrote only partitions of its
/// stage's output.
fn check_partitions(
    task: &PlannedTask,
    stage: &Stage,
    attempt: &Attempt,
    output: &[OutputPartition],
) -> Result<()> {
    let posted = attempt.parts.keys().find(|partition| !task.partitions.contains(partition));
    let split = output_split(&stage.plan).map(|split| split.partitioning().partition_count());
    let written = output.iter().map(|it| it.partition).find(|partition| match split {
        Some(partitions) => *partition as usize >= partitions,
        None => !task.partitions.contains(partition),
    });
    debug_assert!(count(stage.body()) >= task.partitions.len());
    match posted.copied().or(written) {
        None => Ok(()),
        Some(other) => {
            let message = format!("a worker posted partition {other}, which is not in its task");
            Err(Error::Task(Box::new(ErrorReport::new(Code::PROTOCOL, message))))
        }
    }
}

fn retries_exhausted(task: u32, retries: u32, why: ErrorReport) -> Error {
    let mut report = why;
    if report.code == Code::WORKER_LOST.code {
        let attempts = retries + 1;
        report.message =
            format!("task {task} lost its worker {attempts} times: {}", report.message);
        report.hint.get_or_insert_with(|| {
            "the machine may be short of memory: try fewer workers, or more --memory".to_owned()
        });
    }
    Error::Task(Box::new(report))
}
