//! Runs attempts of tasks, and checks their results.
//!
//! Since an attempt counts only when it is complete, a second one cannot duplicate rows (Lambada
//! 3.3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{AbortHandle, BoxFuture, abortable};
use snowmelt_execute::exchange::output_split;
use snowmelt_execute::tree::count;
use snowmelt_plan::results::Spool;
use snowmelt_plan::stages::Stage;
use snowmelt_plan::tasks::PlannedTask;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{OutputPartition, TaskStreams};

use super::progress::ProgressTracker;
use super::records::Finished;
use crate::driver::runner::{Attempt, AttemptClock, Reserving};
use crate::driver::{TaskError, TaskResult, TaskRunner};
use crate::{Error, Result};

/// The state that all tasks of a query share.
pub(crate) struct QueryContext {
    pub(crate) runner: Arc<dyn TaskRunner>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) tracker: Arc<ProgressTracker>,
}

/// The attempts of a task that has begun.
pub(crate) struct TaskAttempts {
    pub(crate) stage: usize,
    pub(crate) planned: Arc<PlannedTask>,
    /// Number of attempts that were asked for.
    tried: Arc<AtomicU32>,
    /// Number of attempts whose workers were lost.
    pub(crate) lost: u32,
    /// Number of attempts besides the first one and the ones after lost workers.
    pub(crate) further: u32,
    /// Number of attempts that were to race another one.
    pub(crate) twins: u32,
    /// True if the task was planned before it was known what it reads.
    pub(crate) reads_later: bool,
    /// The attempts that run.
    pub(crate) live: Vec<Live>,
    /// How long the attempt that counts took.
    pub(crate) took: Option<Duration>,
}

/// An attempt that runs.
pub(crate) struct Live {
    pub(crate) id: u64,
    number: Arc<AtomicU32>,
    pub(crate) twin: bool,
    pub(crate) clock: Arc<AttemptClock>,
    /// The tasks whose outputs the attempt reads, each with the number of times that its output was
    /// made by then.
    pub(crate) inputs: Vec<(u32, u32)>,
    /// When the attempt was asked for, since the query was accepted.
    pub(crate) since: Duration,
    abort: AbortHandle,
}

/// How an attempt is started.
pub(crate) enum How {
    Alone,
    /// Beside another attempt of the same task.
    Twin,
    /// Together with all tasks of a gang, with which it exchanges rows.
    Gang(Reserving, TaskStreams),
}

/// The end of an attempt that was not cancelled.
pub(crate) struct AttemptEnd {
    pub(crate) id: u64,
    pub(crate) task: u32,
    pub(crate) attempt: Attempt,
    /// The result of the attempt. `None` if there was no room for its gang.
    pub(crate) result: Option<Result<TaskResult, TaskError>>,
}

/// A running attempt; `None` if it was cancelled.
pub(crate) type AttemptRun<'q> = BoxFuture<'q, Option<AttemptEnd>>;

impl TaskAttempts {
    pub(crate) fn new(stage: usize, planned: PlannedTask) -> Self {
        Self {
            stage,
            planned: Arc::new(planned),
            tried: Arc::default(),
            lost: 0,
            further: 0,
            twins: 0,
            reads_later: false,
            live: Vec::new(),
            took: None,
        }
    }

    /// Returns the number of attempts so far.
    pub(crate) fn tried(&self) -> u32 {
        self.tried.load(Ordering::Relaxed)
    }

    /// Makes further attempts need less memory: perhaps they join by sorting, and the memory of
    /// their operators and the rows of their batches are halved a number of times.
    pub(crate) fn needs_less(
        &mut self,
        sort_merge: bool,
        memory_halvings: u32,
        batch_halvings: u32,
    ) {
        let planned = Arc::make_mut(&mut self.planned);
        planned.scratch = true;
        planned.sort_merge |= sort_merge;
        planned.memory_halvings += memory_halvings;
        planned.batch_halvings += batch_halvings;
    }

    /// Creates a further attempt. It gets its number when it is asked for, so an attempt that is
    /// cancelled before has none.
    pub(crate) fn attempt<'q>(
        &mut self,
        shared: &'q QueryContext,
        stage: &Stage,
        id: u64,
        since: Duration,
        inputs: Vec<(u32, u32)>,
        how: How,
    ) -> AttemptRun<'q> {
        let mut planned = Arc::clone(&self.planned);
        let mut twin = false;
        let mut reserving = None;
        match how {
            How::Alone => (),
            How::Twin => {
                twin = true;
                Arc::make_mut(&mut planned).twin = true;
            }
            How::Gang(room, streams) => {
                reserving = Some(room);
                let planned = Arc::make_mut(&mut planned);
                // What a task that receives gives to others is stored.
                planned.output &= !matches!(streams, TaskStreams::Send(_));
                planned.streams = Some(streams);
            }
        }
        let queue = stage.queue().cloned();
        let tried = Arc::clone(&self.tried);
        let clock = Arc::new(AttemptClock::new());
        let timed = Arc::clone(&clock);
        let number = Arc::new(AtomicU32::new(self.tried()));
        let numbered = Arc::clone(&number);
        let run = async move {
            let on_progress = shared.tracker.callback(planned.task);
            let spool = Arc::clone(&shared.spool);
            let mut room = None;
            if let Some(reserving) = reserving {
                let Some(reserved) = reserving.await else {
                    let attempt = Attempt::new(0, spool, on_progress, queue);
                    return AttemptEnd { id, task: planned.task, attempt, result: None };
                };
                Arc::make_mut(&mut planned).gang = Some(reserved.gang);
                room = Some(reserved);
            }
            let number = tried.fetch_add(1, Ordering::Relaxed);
            numbered.store(number, Ordering::Relaxed);
            let mut attempt = Attempt::new(number, spool, on_progress, queue).timed(timed);
            let result = Some(shared.runner.run(&planned, &mut attempt).await);
            // Held until here, because the gang is over when all of its tasks are.
            drop(room);
            AttemptEnd { id, task: planned.task, attempt, result }
        };
        let (run, abort) = abortable(run);
        self.live.push(Live { id, number, twin, clock, inputs, since, abort });
        run.map(std::result::Result::ok).boxed()
    }

    /// Removes an attempt that has ended.
    pub(crate) fn ended(&mut self, id: u64) -> Option<Live> {
        let index = self.live.iter().position(|live| live.id == id)?;
        Some(self.live.remove(index))
    }

    /// Cancels all attempts that run.
    pub(crate) fn cancel(&mut self) -> Vec<Live> {
        self.live.iter().for_each(Live::cancel);
        std::mem::take(&mut self.live)
    }
}

impl Live {
    /// Returns the number of earlier attempts of the task.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn cancel(&self) {
        self.abort.abort();
    }
}

/// Checks the result of an attempt and commits its rows.
pub(crate) fn finish(
    entry: &TaskAttempts,
    stage: &Stage,
    attempt: Attempt,
    mut result: TaskResult,
) -> Result<(Finished, Arc<Vec<OutputPartition>>)> {
    let planned = &entry.planned;
    let output = Arc::new(std::mem::take(&mut result.done.output));
    check_partitions(planned, stage, &attempt, &output)?;
    let bytes = attempt.bytes + output.iter().map(OutputPartition::bytes).sum::<u64>();
    if let Some(queue) = stage.queue() {
        queue.commit(attempt.parts, &planned.partitions)?;
    }
    let finished = Finished {
        stage: entry.stage,
        task: planned.task,
        retries: entry.lost,
        received: planned.work() - planned.bytes,
        bytes,
        output: output.iter().map(|part| (part.partition, part.rows)).collect(),
        result,
    };
    Ok((finished, output))
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
    let split = output_split(&stage.plan).map(|split| {
        let partitions = split.partitioning().partition_count();
        stage
            .exchange()
            .map_or(partitions, |exchange| exchange.level.cells(partitions as u32) as usize)
    });
    let written = output.iter().map(|output| output.partition).find(|partition| match split {
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
