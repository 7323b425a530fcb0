//! Runs all tasks of a query concurrently and stores the results of complete attempts.
//!
//! The task of a lost worker is retried from its inputs. Since an attempt counts only when it is
//! complete, a retry cannot duplicate rows (Lambada 3.3). The first permanent failure ends the
//! query; dropping the other attempts cancels them.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, TryStreamExt};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::TaskProgress;

use super::attempt::{Attempt, OnProgress};
use super::queue::{MEMORY_BYTES, Spool};
use super::{Reporter, RunProgress, TaskError, TaskResult, TaskRunner};
use crate::plan::{FragmentTask, PlannedQuery};
use crate::{Error, Result};

/// A task that is done.
pub(super) struct Finished {
    pub(super) task: u32,
    pub(super) retries: u32,
    /// Bytes of its results on the wire.
    pub(super) bytes: u64,
    pub(super) result: TaskResult,
}

/// Runs all tasks. The results go to the fragments' queues.
pub(super) async fn run_all(
    query: Arc<PlannedQuery>,
    runner: Arc<dyn TaskRunner>,
    reporter: Arc<dyn Reporter>,
    retries: u32,
) -> Result<Vec<Finished>> {
    let (query, runner) = (query.as_ref(), runner.as_ref());
    let spool = Spool::new(MEMORY_BYTES, runner.spool().map_err(Error::Spool)?);
    let tracker = Arc::new(ProgressTracker::new(query, reporter));
    runner.expect(&mut query.tasks.iter().map(|task| &task.planned));
    let running: FuturesUnordered<BoxFuture<'_, _>> = query
        .tasks
        .iter()
        .map(|task| run_one(query, task, runner, &spool, &tracker, retries).boxed())
        .collect();
    let mut finished: Vec<Finished> = running.try_collect().await?;
    finished.sort_by_key(|finished| finished.task);
    Ok(finished)
}

async fn run_one(
    query: &PlannedQuery,
    task: &FragmentTask,
    runner: &dyn TaskRunner,
    spool: &Arc<Spool>,
    tracker: &Arc<ProgressTracker>,
    retries: u32,
) -> Result<Finished> {
    let planned = &task.planned;
    let queue = &query.cut.fragments[task.fragment].queue;
    let mut number = 0;
    loop {
        let on_progress = tracker.callback(planned.task);
        let mut attempt = Attempt::new(number, Arc::clone(spool), on_progress, Arc::clone(queue));
        match runner.run(planned, &mut attempt).await {
            Ok(result) => {
                let bytes = attempt.bytes;
                check_partitions(task, &attempt)?;
                queue.commit(attempt, &planned.partitions)?;
                tracker.done(planned.task, &result.done.progress);
                return Ok(Finished { task: planned.task, retries: number, bytes, result });
            }
            Err(TaskError::Lost { why }) if number < retries => {
                drop(attempt);
                if queue.is_streaming() {
                    queue.restart(&planned.partitions);
                }
                tracker.retried(planned.task, &why);
                number += 1;
            }
            Err(TaskError::Lost { why }) => {
                return Err(retries_exhausted(planned.task, number, *why));
            }
            Err(TaskError::Failed(report)) => return Err(Error::Task(report)),
        }
    }
}

/// Checks that a worker posted only partitions of its task.
fn check_partitions(task: &FragmentTask, attempt: &Attempt) -> Result<()> {
    let planned = &task.planned.partitions;
    match attempt.parts.keys().find(|partition| !planned.contains(partition)) {
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

/// Sums the progress of all tasks for the reporter.
struct ProgressTracker {
    reporter: Arc<dyn Reporter>,
    bytes_total: u64,
    state: Mutex<State>,
}

struct State {
    tasks: Vec<TaskProgress>,
    done: u32,
}

impl ProgressTracker {
    fn new(query: &PlannedQuery, reporter: Arc<dyn Reporter>) -> Self {
        let tasks = vec![TaskProgress::default(); query.tasks.len()];
        let state = Mutex::new(State { tasks, done: 0 });
        let tracker = Self { reporter, bytes_total: query.bytes_total(), state };
        tracker.update(|_| ());
        tracker
    }

    fn callback(self: &Arc<Self>, task: u32) -> OnProgress {
        let tracker = Arc::clone(self);
        Arc::new(move |progress| tracker.update(|state| state.set(task, progress.clone())))
    }

    fn done(&self, task: u32, progress: &TaskProgress) {
        self.update(|state| {
            state.set(task, progress.clone());
            state.done += 1;
        });
    }

    /// Discards the progress of a lost attempt.
    fn retried(&self, task: u32, why: &ErrorReport) {
        self.update(|state| state.set(task, TaskProgress::default()));
        self.reporter.note(&format!("task {task} is retried: {}", why.message));
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let progress = state.sum(self.bytes_total);
        drop(state);
        self.reporter.progress(progress);
    }
}

impl State {
    fn set(&mut self, task: u32, progress: TaskProgress) {
        if let Some(entry) = self.tasks.get_mut(task as usize) {
            *entry = progress;
        }
    }

    fn sum(&self, bytes_total: u64) -> RunProgress {
        let tasks = self.tasks.len() as u32;
        let sum = |of: fn(&TaskProgress) -> u64| self.tasks.iter().map(of).sum();
        RunProgress {
            tasks,
            running: tasks - self.done,
            done: self.done,
            rows: sum(|task| task.rows_read),
            bytes: sum(|task| task.bytes_read),
            bytes_total,
            udf_rows: sum(|task| task.udf_rows),
        }
    }
}
