//! Runs the stages of a query: each begins once all stages that it reads are complete.
//!
//! Stages that do not depend on each other run at the same time, and so do the tasks of a stage.
//! The first permanent failure ends the query; dropping the other attempts cancels them.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use super::options::RunOptions;
use super::progress::ProgressTracker;
use super::queue::{MEMORY_BYTES, Spool};
use super::tasks::{Finished, Shared, run_one};
use super::{Reporter, TaskRunner};
use crate::exchange::Exchange;
use crate::plan::{Division, Outputs, PlannedQuery, TaskOutput, tasks};
use crate::{Error, Result};

/// The tasks that are done, also if the query ends before the others are.
pub(super) type Done = Arc<Mutex<Vec<Finished>>>;

/// Runs all stages. The results go to the queues of the driver's plan.
pub(super) async fn run_all(
    query: Arc<PlannedQuery>,
    runner: Arc<dyn TaskRunner>,
    reporter: Arc<dyn Reporter>,
    options: RunOptions,
    done: Done,
) -> Result<()> {
    let spool = Spool::new(MEMORY_BYTES, runner.spool().map_err(Error::Spool)?);
    let stages = query.cut.stages.len();
    let tracker = Arc::new(ProgressTracker::new(stages, query.bytes_total(), reporter));
    let shared = Shared { runner, spool, tracker, retries: options.retries };
    let division = Division { workers: options.workers, task_bytes: options.task_bytes };
    let mut progress = Progress {
        query: &query,
        shared: &shared,
        division,
        states: vec![State::Waiting; stages],
        outputs: Outputs::new(),
        tasks: 0,
    };
    let mut running = FuturesUnordered::new();
    progress.begin_ready(&mut running)?;
    while let Some(finished) = running.next().await {
        let mut finished = finished?;
        let is_last = progress.ended(&mut finished);
        done.lock().unwrap_or_else(PoisonError::into_inner).push(finished);
        if is_last {
            progress.begin_ready(&mut running)?;
        }
    }
    Ok(())
}

/// The state of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// So many of its tasks are not done.
    Running(usize),
    Complete,
}

struct Progress<'q> {
    query: &'q PlannedQuery,
    shared: &'q Shared,
    division: Division,
    states: Vec<State>,
    outputs: Outputs,
    // The number of the next task.
    tasks: u32,
}

type Running<'q> = FuturesUnordered<BoxFuture<'q, Result<Finished>>>;

impl<'q> Progress<'q> {
    /// Begins all stages whose inputs are complete.
    fn begin_ready(&mut self, running: &mut Running<'q>) -> Result<()> {
        for (index, stage) in self.query.cut.stages.iter().enumerate() {
            let complete = |read: &u32| self.states[*read as usize] == State::Complete;
            if self.states[index] != State::Waiting || !stage.reads.iter().all(complete) {
                continue;
            }
            let outputs = self.inputs_of(&stage.reads);
            let planned = tasks(stage, &outputs, self.division, self.tasks, &self.query.s3)?;
            self.tasks += planned.len() as u32;
            self.states[index] = State::Running(planned.len());
            self.shared.tracker.begin(planned.len());
            self.shared.runner.expect(&mut planned.iter());
            for task in planned {
                running.push(run_one(self.shared, index, stage, task).boxed());
            }
        }
        Ok(())
    }

    fn inputs_of(&self, reads: &[u32]) -> Outputs {
        let output = |read: &u32| (*read, self.outputs.get(read).cloned().unwrap_or_default());
        reads.iter().map(output).collect()
    }

    /// A task has ended. True if it was the last one of its stage.
    fn ended(&mut self, finished: &mut Finished) -> bool {
        let index = finished.stage;
        let partitions = Arc::new(std::mem::take(&mut finished.result.done.output));
        let objects = self.query.cut.stages[index].exchange().and_then(Exchange::objects);
        let (task, attempt) = (finished.task, finished.retries);
        let output = TaskOutput { task, attempt, partitions, objects: objects.cloned() };
        self.outputs.entry(index as u32).or_default().push(output);
        let State::Running(left) = self.states[index] else { return false };
        self.states[index] = match left {
            0 | 1 => State::Complete,
            left => State::Running(left - 1),
        };
        let is_last = self.states[index] == State::Complete;
        if is_last {
            // Readers read outputs in the order of their tasks, however often they are retried.
            self.outputs.entry(index as u32).or_default().sort_by_key(|output| output.task);
            self.release(index);
        }
        is_last
    }

    /// Releases the outputs that no stage will read after this one.
    fn release(&mut self, index: usize) {
        let stages = &self.query.cut.stages;
        for read in &stages[index].reads {
            let mut readers = stages.iter().zip(&self.states);
            let needed = readers
                .any(|(stage, state)| *state != State::Complete && stage.reads.contains(read));
            if !needed {
                let outputs = self.outputs.remove(read).unwrap_or_default();
                let tasks: Vec<u32> = outputs.iter().map(|output| output.task).collect();
                self.shared.runner.release(&tasks);
            }
        }
    }
}
