//! Where the outputs of the tasks of one query are.
//!
//! Invariant: an output that is gone is known as gone until its task has ended again, so that a task
//! that is to read it fails with the names of the tasks that have to be run again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_wire::{Failed, TaskAsk};

use super::scope::refused;
use crate::remote::hosted::gone;
use crate::remote::session::Session;

/// A host with outputs.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// This one.
    Here,
    /// Another one.
    There(Arc<Session>),
}

/// An output that a task reads.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub task: u32,
    /// The attempt that made it.
    pub attempt: u64,
    pub place: Place,
    /// Bytes that are read of it.
    pub bytes: u64,
}

/// The outputs of tasks that have ended well.
#[derive(Debug, Default)]
pub(super) struct Places {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Attempt and place, by task.
    outputs: HashMap<u32, (u64, Place)>,
    gone: BTreeSet<u32>,
}

impl Place {
    fn is_gone(&self) -> bool {
        matches!(self, Self::There(session) if session.is_dead())
    }
}

impl Places {
    /// Notes the output of an attempt. True if it counts: the first complete attempt does, as long
    /// as its output is there.
    pub fn add(&self, task: u32, attempt: u64, place: Place) -> bool {
        let mut known = self.lock();
        let counts = known.outputs.get(&task).is_none_or(|(_, place)| place.is_gone());
        if counts {
            known.gone.remove(&task);
            known.outputs.insert(task, (attempt, place));
        }
        counts
    }

    /// The outputs of these tasks are gone.
    pub fn forget(&self, tasks: &[u32]) {
        let mut known = self.lock();
        for task in tasks {
            known.outputs.remove(task);
            known.gone.insert(*task);
        }
    }

    /// The outputs of these tasks are not read any more. Gives those that were there.
    pub fn release(&self, tasks: &[u32]) -> Vec<(u64, Place)> {
        let mut known = self.lock();
        tasks.iter().filter_map(|task| known.outputs.remove(task)).collect()
    }

    /// The outputs that a task reads.
    pub fn inputs(&self, ask: &TaskAsk) -> Result<Vec<Input>, Failed> {
        let mut bytes: HashMap<u32, u64> = HashMap::new();
        // Objects are read with the query's own keys, on any host.
        for read in ask.reads.iter().filter(|read| read.objects.is_none()) {
            let read_bytes = read.partitions.iter().map(|partition| partition.bytes());
            *bytes.entry(read.task).or_default() += read_bytes.sum::<u64>();
        }
        let known = self.lock();
        let (mut inputs, mut lost) = (Vec::with_capacity(bytes.len()), Vec::new());
        for (task, bytes) in bytes {
            match known.outputs.get(&task) {
                Some((attempt, place)) if !place.is_gone() => {
                    let (attempt, place) = (*attempt, place.clone());
                    inputs.push(Input { task, attempt, place, bytes });
                }
                None if !known.gone.contains(&task) => {
                    return Err(refused("it read an output that does not exist"));
                }
                _ => lost.push(task),
            }
        }
        drop(known);
        if lost.is_empty() {
            inputs.sort_by_key(|input| input.task);
            return Ok(inputs);
        }
        lost.sort_unstable();
        self.forget(&lost);
        Err(gone(lost))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use snowmelt_wire::{OutputPartition, TaskRead};

    use super::*;

    fn reading(tasks: &[u32]) -> TaskAsk {
        let read = |task: &u32| {
            let ranges = vec![(0, 10), (90, 5)];
            let part = OutputPartition { rows: 1, ranges, ..OutputPartition::default() };
            TaskRead { stage: 0, task: *task, attempt: 0, partitions: vec![part], objects: None }
        };
        TaskAsk {
            task: 9,
            attempt: 0,
            partitions: vec![0],
            plan: 0,
            files: Vec::new(),
            udfs: Vec::new(),
            s3: BTreeMap::new(),
            batch_rows: 1,
            reads: tasks.iter().map(read).collect(),
            output: false,
            twin: false,
            objects: None,
        }
    }

    #[test]
    fn the_first_complete_attempt_counts_until_its_output_is_gone() {
        let places = Places::default();
        assert!(places.add(1, 10, Place::Here) && !places.add(1, 11, Place::Here));
        let inputs = places.inputs(&reading(&[1])).unwrap();
        assert_eq!((inputs[0].attempt, inputs[0].bytes), (10, 15));
        places.forget(&[1]);
        let failed = places.inputs(&reading(&[1])).unwrap_err();
        assert_eq!((failed.outputs, failed.lost), (vec![1], true));
        assert!(places.add(1, 12, Place::Here));
        assert_eq!(places.inputs(&reading(&[1, 1])).unwrap()[0].bytes, 30);
    }

    #[test]
    fn an_output_that_never_was_is_refused() {
        let places = Places::default();
        places.add(1, 10, Place::Here);
        let failed = places.inputs(&reading(&[1, 2])).unwrap_err();
        assert!(!failed.lost && failed.outputs.is_empty());
        assert_eq!(places.release(&[1, 2]).len(), 1);
        assert!(places.inputs(&reading(&[1])).is_err());
    }
}
