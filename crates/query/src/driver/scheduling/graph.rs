//! The states of a query's stages and tasks: what can run, what must run again, and which outputs
//! nobody reads any more.
//!
//! A task whose output was lost runs again when something needs that output: a task that waits, or
//! a stage that has not begun. Its own inputs may have been released by then; their tasks run again
//! as well, in the end from the files of the scans. Tasks that have read the lost output and are
//! done stay so, unless the second run may give other rows ([`Repeat::Differently`]): then what
//! depends on the first run is discarded. Rows that were passed on to the driver cannot be.
//!
//! Boundary: no task is run here. Invariant: a task reads only outputs that are present when it
//! begins, and all that it needs are; but for a task of a gang ([`streams`](super::streams)), which
//! receives rows of tasks that begin with it.

use std::collections::BTreeSet;
use std::ops::Range;

use snowmelt_plan::tasks::Repeat;

/// A stage of the graph. It reads only stages before it.
#[derive(Clone, Debug)]
pub(crate) struct StageNode {
    pub(crate) reads: Vec<u32>,
    /// True if the stage's rows go to the driver.
    pub(crate) results: bool,
    pub(crate) repeat: Repeat,
    /// The numbers of the stage's tasks, once it has begun.
    tasks: Option<Range<u32>>,
    /// Tasks that are not done.
    open: usize,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
}

#[derive(Clone, Debug)]
struct GraphTask {
    stage: usize,
    /// The tasks whose outputs this task reads, in ascending order.
    needs: Vec<u32>,
    /// How often the output of each task of `needs` was made when this task began for the first
    /// time.
    first_read: Option<Vec<u32>>,
    state: State,
    /// True if the task's output can be read.
    present: bool,
    /// How often the task's output was made.
    made: u32,
    /// True if the task's output was discarded because it came from rows that do not exist any
    /// more.
    stale: bool,
}

/// The tasks to run again, cancel or discard after an output was lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Tasks that are done and run again.
    pub(crate) again: Vec<u32>,
    /// Tasks that run on inputs which are not valid any more.
    pub(crate) cancelled: Vec<u32>,
    /// Tasks whose outputs are not valid any more.
    pub(crate) discarded: Vec<u32>,
}

/// The error of a task that must run again and may give other rows, although rows that depend on
/// its first run were passed on to the driver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PassedOn {
    pub(crate) lost: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    stages: Vec<StageNode>,
    tasks: Vec<GraphTask>,
}

impl StageNode {
    pub(crate) fn new(reads: Vec<u32>, results: bool, repeat: Repeat) -> Self {
        Self { reads, results, repeat, tasks: None, open: 0 }
    }

    fn is_complete(&self) -> bool {
        self.tasks.is_some() && self.open == 0
    }
}

impl Graph {
    pub(crate) fn new(stages: Vec<StageNode>) -> Self {
        Self { stages, tasks: Vec::new() }
    }

    /// The number that the next task gets.
    pub(crate) fn next_task(&self) -> u32 {
        self.tasks.len() as u32
    }

    /// True once all tasks of all stages are done.
    pub(crate) fn is_complete(&self) -> bool {
        self.stages.iter().all(StageNode::is_complete)
    }

    /// The tasks of a stage; empty until it has begun.
    pub(crate) fn tasks_of(&self, stage: usize) -> Range<u32> {
        self.stages[stage].tasks.clone().unwrap_or(0..0)
    }

    /// Tasks of a stage that are not done.
    pub(crate) fn open(&self, stage: usize) -> usize {
        self.stages[stage].open
    }

    /// Returns the tasks whose outputs a task reads, each with the number of times that its output
    /// was made.
    pub(crate) fn inputs(&self, task: u32) -> Vec<(u32, u32)> {
        let made = |need: &u32| (*need, self.tasks[*need as usize].made);
        self.tasks[task as usize].needs.iter().map(made).collect()
    }

    /// Stages that have not begun, and all of whose inputs can be read.
    pub(crate) fn ready_stages(&self) -> Vec<usize> {
        (0..self.stages.len()).filter(|stage| self.can_begin(*stage, None)).collect()
    }

    /// True if a stage has not begun, and all of its inputs can be read, but for one that is streamed.
    pub(crate) fn can_begin(&self, stage: usize, streamed: Option<u32>) -> bool {
        let readable = |read: &u32| {
            let stage = &self.stages[*read as usize];
            let present = |task: u32| self.tasks[task as usize].present;
            stage.is_complete() && stage.tasks.clone().is_some_and(|mut all| all.all(present))
        };
        let stored = |read: &&u32| streamed != Some(**read);
        let stage = &self.stages[stage];
        stage.tasks.is_none() && stage.reads.iter().filter(stored).all(readable)
    }

    /// Begins a stage. `tasks` has, for each of its tasks, the tasks whose outputs it reads.
    pub(crate) fn begin(&mut self, stage: usize, tasks: Vec<BTreeSet<u32>>) {
        let first = self.next_task();
        // Of a stage that may write other partitions the next time, all outputs.
        let reads = self.stages[stage].reads.iter().map(|read| &self.stages[*read as usize]);
        let any = reads.filter(|read| read.repeat == Repeat::Differently);
        let any: Vec<u32> = any.filter_map(|read| read.tasks.clone()).flatten().collect();
        let count = tasks.len();
        for mut needs in tasks {
            needs.extend(&any);
            self.tasks.push(GraphTask {
                stage,
                needs: needs.into_iter().collect(),
                first_read: None,
                state: State::Waiting,
                present: false,
                made: 0,
                stale: false,
            });
        }
        self.stages[stage].tasks = Some(first..first + count as u32);
        self.stages[stage].open = count;
    }

    /// Tasks that wait and can begin.
    pub(crate) fn ready_tasks(&self) -> Vec<u32> {
        let waits = |task: &u32| self.tasks[*task as usize].state == State::Waiting;
        (0..self.next_task()).filter(|task| waits(task) && self.can_read(*task)).collect()
    }

    /// True if all that a task reads is there.
    pub(crate) fn can_read(&self, task: u32) -> bool {
        let needs = &self.tasks[task as usize].needs;
        needs.iter().all(|need| self.tasks[*need as usize].present)
    }

    /// Notes that a task begins.
    pub(crate) fn started(&mut self, task: u32) {
        let read = self.inputs(task).into_iter().map(|(_, made)| made).collect();
        let task = &mut self.tasks[task as usize];
        task.state = State::Running;
        task.first_read.get_or_insert(read);
    }

    /// True if the inputs of a task have the same rows in the same order now as when the task began
    /// for the first time.
    pub(crate) fn reads_the_same(&self, task: u32) -> bool {
        let task = &self.tasks[task as usize];
        let Some(first) = &task.first_read else { return true };
        task.needs.iter().zip(first).all(|(need, made)| {
            let need = &self.tasks[*need as usize];
            // One that is not there will be made once more.
            let same = need.made == *made && need.present;
            same || self.stages[need.stage].repeat == Repeat::Exactly
        })
    }

    /// Notes that a task is done. Returns the tasks whose outputs nobody reads any more.
    pub(crate) fn ended(&mut self, number: u32) -> Vec<u32> {
        let task = &mut self.tasks[number as usize];
        let stage = task.stage;
        task.state = State::Done;
        task.present = !self.stages[stage].results;
        task.made += 1;
        self.stages[stage].open -= 1;
        let mut released = match self.stages[stage].is_complete() {
            true => self.release(stage),
            false => Vec::new(),
        };
        // It was made again for a task that another attempt has completed meanwhile.
        if !self.is_read(stage as u32) && std::mem::take(&mut self.tasks[number as usize].present) {
            released.push(number);
        }
        released
    }

    /// True if a stage that is not complete reads `stage`.
    fn is_read(&self, stage: u32) -> bool {
        self.stages.iter().any(|reader| reader.reads.contains(&stage) && !reader.is_complete())
    }

    /// Returns the tasks whose outputs no stage reads any more, now that `stage` is complete.
    fn release(&mut self, stage: usize) -> Vec<u32> {
        let mut released = Vec::new();
        for read in self.stages[stage].reads.clone() {
            if self.is_read(read) {
                continue;
            }
            for task in self.tasks_of(read as usize) {
                if std::mem::take(&mut self.tasks[task as usize].present) {
                    released.push(task);
                }
            }
        }
        released
    }

    /// Notes that the attempts of a task have failed: it waits for another one.
    pub(crate) fn failed(&mut self, task: u32) {
        self.tasks[task as usize].state = State::Waiting;
    }

    /// Notes that the output is gone that a task made the `made`th time. False if this was known.
    pub(crate) fn lost(&mut self, task: u32, made: u32) -> bool {
        let task = &mut self.tasks[task as usize];
        task.made == made && std::mem::take(&mut task.present)
    }

    /// Makes tasks run again whose outputs are needed and not there.
    ///
    /// # Errors
    /// Rows that were passed on depend on a task that may give other rows this time.
    pub(crate) fn restore(&mut self) -> Result<Changes, PassedOn> {
        let mut changes = Changes::default();
        loop {
            let missing = self.missing();
            if missing.is_empty() {
                return Ok(changes);
            }
            for task in missing {
                self.again(task, &mut changes)?;
            }
        }
    }

    /// Tasks that are done and whose outputs are needed and not there.
    fn missing(&self) -> BTreeSet<u32> {
        let unbegun = self.stages.iter().filter(|stage| stage.tasks.is_none());
        let of_stages = unbegun.flat_map(|stage| &stage.reads);
        let of_stages = of_stages.flat_map(|read| self.tasks_of(*read as usize));
        let waiting = self.tasks.iter().filter(|task| task.state == State::Waiting);
        let of_tasks = waiting.flat_map(|task| task.needs.iter().copied());
        let is_missing = |task: &u32| {
            let task = &self.tasks[*task as usize];
            task.state == State::Done && !task.present
        };
        of_stages.chain(of_tasks).filter(is_missing).collect()
    }

    fn again(&mut self, number: u32, changes: &mut Changes) -> Result<(), PassedOn> {
        let task = &mut self.tasks[number as usize];
        let stage = task.stage;
        task.state = State::Waiting;
        task.stale = false;
        self.stages[stage].open += 1;
        changes.again.push(number);
        match self.stages[stage].repeat {
            Repeat::Differently => self.discard_readers(number, number, changes),
            Repeat::Exactly | Repeat::SameRows => Ok(()),
        }
    }

    /// Discards what was made from the output of task `of`.
    fn discard_readers(
        &mut self,
        of: u32,
        lost: u32,
        changes: &mut Changes,
    ) -> Result<(), PassedOn> {
        let stage = self.tasks[of as usize].stage as u32;
        let readers = self.stages.iter().filter(|reader| reader.reads.contains(&stage));
        let readers: Vec<u32> =
            readers.filter_map(|reader| reader.tasks.clone()).flatten().collect();
        for reader in readers {
            let task = &mut self.tasks[reader as usize];
            if task.needs.binary_search(&of).is_err() {
                continue;
            }
            match task.state {
                State::Waiting => (),
                State::Running => {
                    task.state = State::Waiting;
                    changes.cancelled.push(reader);
                }
                State::Done if self.stages[task.stage].results => return Err(PassedOn { lost }),
                State::Done if task.stale => (),
                State::Done => {
                    task.stale = true;
                    if std::mem::take(&mut task.present) {
                        changes.discarded.push(reader);
                    }
                    self.discard_readers(reader, lost, changes)?;
                }
            }
        }
        Ok(())
    }
}
