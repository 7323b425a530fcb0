//! The places of the outputs of one query's tasks.
//!
//! The driver requests a further attempt of a task in two cases: no other attempt runs, or the new
//! one is to race another one. In the first case all earlier attempts are over. The driver may have
//! cancelled an attempt whose end is still on its way; that end must not count, because the driver
//! does not have the index of its output.
//!
//! Invariant: an output that is gone is known as gone until its task has ended again. A task that
//! is to read it fails with the names of the tasks that have to be run again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::HostName;
use snowmelt_wire::{RequestFailure, TaskAsk};

use crate::driver_service::permissions::refused;
use crate::remote::grants::gone;
use crate::remote::session::Session;

/// A host with outputs.
#[derive(Clone, Debug)]
pub(in crate::driver_service) enum OutputPlace {
    /// Control's own host, on which the query's driver runs.
    Here,
    /// Another host.
    There(Arc<Session>),
}

/// An output that a task reads.
#[derive(Clone, Debug)]
pub(in crate::driver_service) struct Input {
    pub task: u32,
    /// The number of the attempt that made the output.
    pub attempt: u64,
    pub place: OutputPlace,
    /// Bytes that the task reads of the output.
    pub bytes: u64,
    /// True if other tasks read all of it too.
    pub is_shared: bool,
}

/// The outputs of tasks that have ended well.
#[derive(Debug, Default)]
pub(in crate::driver_service) struct Places {
    known: Mutex<OutputTable>,
}

#[derive(Debug, Default)]
struct OutputTable {
    /// The attempt that made each task's output, and the output's place.
    outputs: HashMap<u32, (u64, OutputPlace)>,
    /// The last attempt of each task that is over; all before it are over too.
    over: HashMap<u32, u64>,
    gone: BTreeSet<u32>,
}

impl Input {
    /// Returns the task, and the attempt that made the output.
    pub fn output(&self) -> (u32, u64) {
        (self.task, self.attempt)
    }
}

impl OutputPlace {
    /// Returns whether outputs there cannot be read any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::There(session) if session.is_dead())
    }

    /// Returns the name of the host; `None` is this host.
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Here => None,
            Self::There(session) => Some(session.name()),
        }
    }

    /// Returns whether both are the same host.
    pub fn is(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Places {
    /// Begins the next attempt of a task, of which no other attempt runs. Returns the output of an
    /// earlier attempt, which counts no more.
    pub fn begin(&self, task: u32, attempt: u64) -> Option<(u64, OutputPlace)> {
        let mut known = self.lock();
        known.end_before(task, attempt);
        let before = known.outputs.remove(&task);
        if before.is_some() {
            known.gone.insert(task);
        }
        before
    }

    /// Notes the output of an attempt. Returns whether the output counts: the first attempt that is
    /// complete and not over counts, as long as its output is there.
    pub fn add(&self, task: u32, attempt: u64, place: OutputPlace) -> bool {
        let mut known = self.lock();
        let is_over = known.over.get(&task).is_some_and(|last| attempt <= *last);
        let is_there = known.outputs.get(&task).is_some_and(|(_, place)| !place.is_gone());
        let counts = !is_over && !is_there;
        if counts {
            known.gone.remove(&task);
            known.outputs.insert(task, (attempt, place));
        }
        counts
    }

    /// Notes that the outputs of these attempts of tasks are gone. An output that another attempt
    /// has made since stays.
    pub fn forget(&self, outputs: impl IntoIterator<Item = (u32, u64)>) {
        let mut known = self.lock();
        for (task, attempt) in outputs {
            if known.outputs.get(&task).is_some_and(|(there, _)| *there == attempt) {
                known.outputs.remove(&task);
                known.gone.insert(task);
            }
        }
    }

    /// Releases the outputs of these tasks, which are not read any more. Attempts before `next`
    /// that have not ended leave no outputs either. Returns the outputs that existed.
    pub fn release(&self, tasks: &[u32], next: u64) -> Vec<(u64, OutputPlace)> {
        let mut known = self.lock();
        let release = |task: &u32| {
            known.end_before(*task, next);
            known.outputs.remove(task)
        };
        tasks.iter().filter_map(release).collect()
    }

    /// Returns the outputs that a task reads.
    pub fn inputs(&self, ask: &TaskAsk) -> Result<Vec<Input>, RequestFailure> {
        let mut bytes: HashMap<u32, (u64, bool)> = HashMap::new();
        // Objects are read with the query's own keys, on any host.
        for read in ask.reads.iter().filter(|read| read.objects.is_none()) {
            let read_bytes = read.partitions.iter().map(|partition| partition.bytes());
            let (bytes, is_shared) = bytes.entry(read.task).or_default();
            *bytes += read_bytes.sum::<u64>();
            *is_shared |= read.shared;
        }
        let mut known = self.lock();
        let mut inputs = Vec::with_capacity(bytes.len());
        let mut lost = Vec::new();
        for (task, (bytes, is_shared)) in bytes {
            match known.outputs.get(&task) {
                Some((attempt, place)) if !place.is_gone() => {
                    let attempt = *attempt;
                    let place = place.clone();
                    inputs.push(Input { task, attempt, place, bytes, is_shared });
                }
                None if !known.gone.contains(&task) => {
                    return Err(refused("it read an output that does not exist"));
                }
                _ => lost.push(task),
            }
        }
        if lost.is_empty() {
            inputs.sort_by_key(|input| input.task);
            return Ok(inputs);
        }
        lost.sort_unstable();
        for task in &lost {
            known.outputs.remove(task);
            known.gone.insert(*task);
        }
        Err(gone(lost))
    }

    fn lock(&self) -> MutexGuard<'_, OutputTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputTable {
    fn end_before(&mut self, task: u32, attempt: u64) {
        let last = self.over.entry(task).or_default();
        *last = (*last).max(attempt.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use snowmelt_wire::{OutputPartition, TaskRead};

    use super::*;

    fn reading(tasks: &[u32]) -> TaskAsk {
        let read = |task: &u32| {
            let ranges = vec![(0, 10), (90, 5)];
            let part = OutputPartition { rows: 1, ranges, ..OutputPartition::default() };
            let partitions = vec![part];
            let shared = false;
            let objects = None;
            let range = None;
            TaskRead { stage: 0, task: *task, attempt: 0, partitions, objects, shared, range }
        };
        TaskAsk {
            task: 9,
            partitions: vec![0],
            batch_rows: 1,
            reads: tasks.iter().map(read).collect(),
            ..TaskAsk::default()
        }
    }

    #[test]
    fn the_first_complete_attempt_counts_until_its_output_is_gone() {
        let places = Places::default();
        assert!(places.add(1, 10, OutputPlace::Here) && !places.add(1, 11, OutputPlace::Here));
        let inputs = places.inputs(&reading(&[1])).unwrap();
        assert_eq!((inputs[0].attempt, inputs[0].bytes), (10, 15));
        places.forget([(1, 10)]);
        let failed = places.inputs(&reading(&[1])).unwrap_err();
        assert_eq!((failed.outputs, failed.lost), (vec![1], true));
        assert!(places.add(1, 12, OutputPlace::Here));
        assert_eq!(places.inputs(&reading(&[1, 1])).unwrap()[0].bytes, 30);
    }

    #[test]
    fn an_output_that_never_was_is_refused() {
        let places = Places::default();
        places.add(1, 10, OutputPlace::Here);
        let failed = places.inputs(&reading(&[1, 2])).unwrap_err();
        assert!(!failed.lost && failed.outputs.is_empty());
        assert_eq!(places.release(&[1, 2], 11).len(), 1);
        assert!(places.inputs(&reading(&[1])).is_err());
    }
    #[test]
    fn an_attempt_that_was_cancelled_while_it_ended_well_keeps_no_other_from_counting() {
        let places = Places::default();
        assert!(places.begin(1, 10).is_none());
        // The driver has cancelled it before it had the answer.
        assert!(places.add(1, 10, OutputPlace::Here));
        let before = places.begin(1, 11).map(|(attempt, _)| attempt);
        assert_eq!(before, Some(10), "its file is removed");
        let failed = places.inputs(&reading(&[1])).unwrap_err();
        assert_eq!(failed.outputs, [1], "nobody has its index");
        assert!(places.add(1, 11, OutputPlace::Here));
        // One whose end came even later.
        places.begin(2, 12);
        places.begin(2, 13);
        assert!(!places.add(2, 12, OutputPlace::Here) && places.add(2, 13, OutputPlace::Here));
        assert_eq!(places.inputs(&reading(&[1, 2])).unwrap().len(), 2);
    }

    #[test]
    fn an_attempt_beside_another_one_leaves_that_in_the_race() {
        let places = Places::default();
        places.begin(1, 10);
        // The attempt 11 races it, which ends nothing.
        assert!(places.add(1, 10, OutputPlace::Here) && !places.add(1, 11, OutputPlace::Here));
        assert_eq!(places.inputs(&reading(&[1])).unwrap()[0].attempt, 10);
    }

    #[test]
    fn an_attempt_that_ends_after_its_task_was_released_leaves_no_output() {
        let places = Places::default();
        places.begin(1, 10);
        assert!(places.release(&[1], 11).is_empty());
        assert!(!places.add(1, 10, OutputPlace::Here));
        places.begin(1, 11);
        assert!(places.add(1, 11, OutputPlace::Here));
    }

    #[test]
    fn a_late_failure_does_not_forget_an_output_that_was_made_again() {
        let places = Places::default();
        places.add(1, 10, OutputPlace::Here);
        let [old] = places.inputs(&reading(&[1])).unwrap().try_into().unwrap();
        places.forget([old.output()]);
        places.begin(1, 11);
        assert!(places.add(1, 11, OutputPlace::Here));
        // Another reader of the first output fails only now.
        places.forget([old.output()]);
        assert_eq!(places.inputs(&reading(&[1])).unwrap()[0].attempt, 11);
        places.forget([(1, 11)]);
        assert_eq!(places.inputs(&reading(&[1])).unwrap_err().outputs, [1]);
    }

    proptest! {
        /// Checks that the last attempt counts while attempts of one task begin, end well and lose
        /// their outputs, in any order.
        #[test]
        fn the_last_attempt_counts_whatever_those_before_it_do(
            steps in prop::collection::vec((0_u8..3, 0_usize..4), 0..40),
        ) {
            let places = Places::default();
            let mut next = 1;
            let mut running: Vec<u64> = Vec::new();
            for (step, which) in steps {
                match step {
                    0 => {
                        places.begin(1, next);
                        running.push(next);
                        next += 1;
                    }
                    1 if which < running.len() => {
                        let attempt = running.remove(which);
                        let counts = places.add(1, attempt, OutputPlace::Here);
                        prop_assert!(!counts || attempt == next - 1);
                    }
                    _ => places.forget([(1, which as u64)]),
                }
                let there = places.lock().outputs.get(&1).map(|(attempt, _)| *attempt);
                prop_assert!(there.is_none_or(|attempt| attempt == next - 1));
            }
            places.begin(1, next);
            prop_assert!(places.add(1, next, OutputPlace::Here));
        }
    }
}
