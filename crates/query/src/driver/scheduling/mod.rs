//! The scheduling of stages and tasks: decides what runs next when a task has ended, failed or become slow.
//!
//! Invariant: the rows of one attempt of a task count, and all its readers that begin afterwards are
//! given the index of the same attempt.
//!
//! | member | owns |
//! |---|---|
//! | `stages` | runs the stages until all are complete |
//! | `graph` | the states of stages and tasks |
//! | `attempt_watch`, `stragglers` | attempts that are slow or silent |
//! | `memory` | tasks that do not fit into memory |
//! | `gangs`, `streams` | stages that run at the same time |
//! | `failures` | why a query fails when tasks are lost |

mod attempt_watch;
mod failures;
mod gangs;
mod graph;
#[cfg(test)]
mod graph_tests;
pub(super) mod memory;
pub(super) mod stages;
mod stragglers;
mod streams;

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use snowmelt_api::DiscardedAttempt;
use snowmelt_execute::exchange::Exchange;
use snowmelt_plan::query::PlannedQuery;
use snowmelt_plan::tasks::{
    Division, Outputs, PlannedTask, TaskOutput, leave_out_files, reads, reads_by_range, repeats,
    tasks,
};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::MAX_FURTHER_ATTEMPTS;

use super::TaskError;
use super::runner::RunOptions;
use super::tasks::{
    AttemptCounts, AttemptEnd, AttemptRun, How, Live, QueryContext, SharedRecords, TaskAttempts,
    TaskRecords, finish,
};
use crate::Result;
use gangs::Gangs;
use graph::{Changes, Graph, StageNode};

/// The attempts that run.
pub(crate) type AttemptRuns<'q> = FuturesUnordered<AttemptRun<'q>>;

/// The tasks of a running query.
pub(crate) struct Board<'q> {
    pub(crate) query: &'q PlannedQuery,
    pub(crate) shared: &'q QueryContext,
    division: Division,
    pub(crate) options: RunOptions,
    pub(crate) graph: Graph,
    pub(crate) gangs: Gangs,
    /// The outputs that can be read, in the order of their tasks.
    outputs: Outputs,
    /// The tasks that have begun, by number.
    pub(crate) entries: Vec<TaskAttempts>,
    done: SharedRecords,
    // The number of the next attempt in the query.
    next: u64,
    /// The time before which no attempt is raced, because there was no room for the last one.
    pub(crate) no_race_before: Duration,
}

impl<'q> Board<'q> {
    pub(crate) fn new(
        query: &'q PlannedQuery,
        shared: &'q QueryContext,
        division: Division,
        options: RunOptions,
        done: SharedRecords,
    ) -> Self {
        let stages = &query.cut.stages;
        let nodes = stages.iter().zip(repeats(stages)).map(|(stage, repeat)| {
            StageNode::new(stage.reads.clone(), stage.queue().is_some(), repeat)
        });
        Self {
            query,
            shared,
            division,
            options,
            graph: Graph::new(nodes.collect()),
            gangs: Gangs::of(stages),
            outputs: Outputs::new(),
            entries: Vec::new(),
            done,
            next: 0,
            no_race_before: Duration::ZERO,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.graph.is_complete()
    }

    /// Begins all stages and tasks whose inputs are complete.
    pub(crate) fn proceed(&mut self, running: &mut AttemptRuns<'q>) -> Result<()> {
        self.begin_gangs(running)?;
        for stage in self.graph.ready_stages() {
            if !self.gangs.waits(stage) {
                self.begin(stage, None)?;
            }
        }
        for task in self.graph.ready_tasks() {
            self.start(task, running)?;
        }
        Ok(())
    }

    /// Begins a stage. All outputs that it reads are there, except one that is streamed.
    pub(crate) fn begin(&mut self, index: usize, streamed: Option<u32>) -> Result<()> {
        let stage = &self.query.cut.stages[index];
        let first = self.graph.next_task();
        let output = |read: &u32| (*read, self.outputs.get(read).cloned().unwrap_or_default());
        let stored = stage.reads.iter().filter(|read| streamed != Some(**read));
        let inputs: Outputs = stored.map(output).collect();
        let mut planned = tasks(stage, &inputs, self.division, first, &self.query.s3)?;
        leave_out_files(stage, &mut planned);
        self.shared.tracker.begin(planned.len());
        self.shared.runner.expect(&mut planned.iter());
        // Where ranges begin depends on the whole output.
        let divided = reads_by_range(stage).map_or(0..0, |read| self.graph.tasks_of(read as usize));
        let senders = streamed.map_or(0..0, |read| self.graph.tasks_of(read as usize));
        let needs = |task: &PlannedTask| {
            let read = task.reads.iter().map(|read| read.task);
            read.chain(divided.clone()).chain(senders.clone()).collect()
        };
        self.graph.begin(index, planned.iter().map(needs).collect::<Vec<BTreeSet<u32>>>());
        self.entries.extend(planned.into_iter().map(|task| TaskAttempts::new(index, task)));
        Ok(())
    }

    /// Starts an attempt of a task that waits.
    fn start(&mut self, task: u32, running: &mut AttemptRuns<'q>) -> Result<()> {
        let entry = &self.entries[task as usize];
        if entry.reads_later || entry.lost + entry.further > 0 {
            self.renew_reads(task);
            let entry = &self.entries[task as usize];
            let stage = &self.query.cut.stages[entry.stage];
            let planned = &entry.planned;
            if let Some(queue) = stage.queue().filter(|queue| queue.is_streaming()) {
                match self.graph.reads_the_same(task) {
                    true => queue.restart(&planned.partitions),
                    false if queue.restart_unread(&planned.partitions) => (),
                    false => return Err(failures::passed_on(task)),
                }
            }
        }
        self.graph.started(task);
        self.try_task(task, How::Alone, running);
        Ok(())
    }

    /// Starts an attempt.
    pub(crate) fn try_task(&mut self, task: u32, how: How, running: &mut AttemptRuns<'q>) {
        if matches!(how, How::Twin) {
            self.renew_reads(task);
        }
        let inputs = self.graph.inputs(task);
        let id = self.next;
        let since = self.query.accepted.elapsed();
        self.next += 1;
        let entry = &mut self.entries[task as usize];
        let stage = &self.query.cut.stages[entry.stage];
        running.push(entry.attempt(self.shared, stage, id, since, inputs, how));
        let stage = entry.stage;
        self.count(stage, |counts| counts.attempts += 1);
    }

    /// Gives a task a new index of its inputs: outputs that were made again since an earlier
    /// attempt of the task began have other ranges.
    fn renew_reads(&mut self, task: u32) {
        let entry = &mut self.entries[task as usize];
        let stage = &self.query.cut.stages[entry.stage];
        let planned = Arc::make_mut(&mut entry.planned);
        let only = planned.only.as_ref();
        planned.reads = reads(stage, &self.outputs, &planned.partitions, only);
    }

    /// Gives a task the index of its inputs from tasks that began with it.
    pub(crate) fn renew_late(&mut self, task: u32) {
        if self.entries[task as usize].reads_later {
            self.renew_reads(task);
        }
    }

    /// Handles the end of an attempt.
    pub(crate) fn ended(&mut self, ended: AttemptEnd) -> Result<()> {
        let task = ended.task;
        // One that was cancelled while it ended does not count.
        let Some(live) = self.entries[task as usize].ended(ended.id) else { return Ok(()) };
        match ended.result {
            None => {
                self.no_room(task);
                Ok(())
            }
            Some(Ok(_)) if self.gangs.holds(task) => self.done_in_gang(live, ended),
            // The task whose stream broke says itself why it ended.
            Some(Err(TaskError::LostInputs { ref tasks, .. }))
                if self.streams_from(task, tasks) =>
            {
                self.done_in_gang(live, ended)
            }
            Some(Ok(_)) => self.succeeded(live, ended),
            Some(Err(TaskError::Failed(report))) => self.failed(task, &live, *report),
            Some(Err(TaskError::Lost { why })) => self.lost(task, &live, *why),
            Some(Err(TaskError::LostInputs { tasks, why })) => {
                self.lost_inputs(task, &live, &tasks, &why)
            }
        }
    }

    /// Counts the first complete attempt of a task, and cancels the others.
    pub(crate) fn succeeded(
        &mut self,
        live: Live,
        AttemptEnd { task, attempt, result, .. }: AttemptEnd,
    ) -> Result<()> {
        let Some(Ok(result)) = result else { return Ok(()) };
        self.cancel(task, "overtaken");
        let entry = &mut self.entries[task as usize];
        let stage = &self.query.cut.stages[entry.stage];
        let number = attempt.number();
        let (finished, partitions) = finish(entry, stage, attempt, result)?;
        entry.took = live.clock.runs_for();
        self.shared.tracker.done(task, &finished.result.done.progress);
        if stage.queue().is_none() {
            let outputs = self.outputs.entry(entry.stage as u32).or_default();
            // Readers read outputs in the order of their tasks, however often they are retried.
            let index = outputs.partition_point(|output| output.task < task);
            let objects = stage.exchange().and_then(Exchange::objects).cloned();
            outputs.insert(index, TaskOutput { task, attempt: number, partitions, objects });
        }
        self.records().finished.insert(task, finished);
        let released = self.graph.ended(task);
        self.remove(&released);
        Ok(())
    }

    /// Handles the loss of an attempt's worker.
    pub(crate) fn lost(&mut self, task: u32, live: &Live, why: ErrorReport) -> Result<()> {
        self.break_gang(task, &why.message)?;
        self.discarded(task, live, "lost");
        if live.twin {
            // Perhaps there was no room for it: later there may be.
            let now = self.query.accepted.elapsed();
            let tried = self.entries[task as usize].twins;
            self.no_race_before = now + self.options.stragglers.at_least * 4_u32.pow(tried.min(8));
        }
        let entry = &mut self.entries[task as usize];
        if !entry.live.is_empty() {
            return Ok(());
        }
        if entry.lost >= self.options.retries {
            return Err(failures::retries_exhausted(task, entry.lost, why));
        }
        entry.lost += 1;
        let stage = entry.stage;
        self.shared.tracker.retried(task, &why.message);
        self.count(stage, |counts| counts.retries += 1);
        self.graph.failed(task);
        self.restore()
    }

    /// Handles an attempt that could not read the outputs of some tasks.
    pub(crate) fn lost_inputs(
        &mut self,
        task: u32,
        live: &Live,
        lost: &[u32],
        why: &ErrorReport,
    ) -> Result<()> {
        let streams = self.gangs.members(task);
        self.break_gang(task, &why.message)?;
        self.discarded(task, live, "inputs lost");
        // Of a stream nothing is there to be lost.
        for lost in lost.iter().filter(|lost| !streams.contains(lost)) {
            let read = live.inputs.iter().find(|(input, _)| input == lost);
            let Some((_, made)) = read else { return Err(failures::not_an_input(task, *lost)) };
            if self.graph.lost(*lost, *made) {
                self.remove(&[*lost]);
            }
        }
        if self.entries[task as usize].live.is_empty() {
            self.shared.tracker.retried(task, &why.message);
            self.further(task, why)?;
            self.graph.failed(task);
        }
        self.restore()
    }

    /// Makes tasks run again whose outputs are needed and not there.
    pub(crate) fn restore(&mut self) -> Result<()> {
        let changes = self.graph.restore().map_err(|passed| failures::passed_on(passed.lost))?;
        let Changes { again, cancelled, discarded } = changes;
        let why = ErrorReport::new(Code::WORKER_LOST, "its output was lost");
        for task in again {
            self.shared.tracker.again(task, &why.message);
            self.further(task, &why)?;
        }
        let why = ErrorReport::new(Code::WORKER_LOST, "what it read is made again");
        let mut broken = BTreeSet::new();
        for task in cancelled {
            if broken.contains(&task) {
                continue;
            }
            broken.extend(self.gangs.members(task));
            self.break_gang(task, &why.message)?;
            self.cancel(task, "cancelled");
            self.shared.tracker.retried(task, &why.message);
            self.further(task, &why)?;
        }
        self.remove(&discarded);
        Ok(())
    }

    /// Allows a task a further attempt, because outputs were lost.
    pub(crate) fn further(&mut self, task: u32, why: &ErrorReport) -> Result<()> {
        let entry = &mut self.entries[task as usize];
        // Some are left for attempts that race this one.
        if entry.further + entry.twins >= MAX_FURTHER_ATTEMPTS {
            return Err(failures::made_too_often(task, entry.tried(), why.clone()));
        }
        entry.further += 1;
        let stage = entry.stage;
        self.count(stage, |counts| counts.remakes += 1);
        Ok(())
    }

    /// Cancels all attempts of a task that run.
    pub(crate) fn cancel(&mut self, task: u32, why: &str) {
        for live in self.entries[task as usize].cancel() {
            self.discarded(task, &live, why);
        }
    }

    /// Removes the outputs of tasks, which are not read any more.
    fn remove(&mut self, tasks: &[u32]) {
        for task in tasks {
            let stage = self.entries[*task as usize].stage as u32;
            if let Some(outputs) = self.outputs.get_mut(&stage) {
                outputs.retain(|output| output.task != *task);
            }
        }
        if !tasks.is_empty() {
            self.shared.runner.release(tasks);
        }
    }

    pub(crate) fn discarded(&self, task: u32, live: &Live, why: &str) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let discarded = DiscardedAttempt {
            task,
            attempt: live.number(),
            from_us: micros(live.since),
            to_us: micros(self.query.accepted.elapsed()),
            why: why.to_owned(),
        };
        self.records().discarded.push((self.entries[task as usize].stage, discarded));
    }

    pub(crate) fn count(&self, stage: usize, change: impl FnOnce(&mut AttemptCounts)) {
        change(self.records().counts.entry(stage).or_default());
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, TaskRecords> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
