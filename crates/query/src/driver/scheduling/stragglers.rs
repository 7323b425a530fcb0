//! Decides which tasks of a stage are slow.
//!
//! Once most tasks of a stage are done, the others can be compared with them. A task that has more
//! to read may take longer in proportion: it is not slow, and a second attempt would be no faster.

use std::time::Duration;

use crate::driver::runner::Stragglers;

/// The cost of a task besides its reading, in bytes that could be read in the same time.
const START_BYTES: f64 = (1 << 20) as f64;

/// A task that is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Bytes that the task had to read.
    pub(crate) work: u64,
    pub(crate) took: Duration,
}

/// A task that runs with a single attempt, and may get a twin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwinCandidate {
    pub(crate) task: u32,
    pub(crate) work: u64,
    pub(crate) runs_for: Duration,
}

/// True if enough of a stage's tasks are done for the others to be compared with them.
pub(crate) fn has_quorum(rules: &Stragglers, tasks: usize, done: usize) -> bool {
    done > 0 && done < tasks && done >= (tasks as f64 * rules.quorum) as usize
}

/// Returns the most attempts that race others at a time, for a stage with `tasks` tasks.
pub(crate) fn most_twins(tasks: usize) -> usize {
    tasks.div_ceil(10)
}

/// The tasks that are slow, the slowest first.
pub(crate) fn slow(rules: &Stragglers, done: &[Sample], running: &[TwinCandidate]) -> Vec<u32> {
    let cost = |work: u64| work as f64 + START_BYTES;
    let (Some(took), Some(rate)) = (
        median(done.iter().map(|task| task.took.as_secs_f64())),
        median(done.iter().map(|task| task.took.as_secs_f64() / cost(task.work))),
    ) else {
        return Vec::new();
    };
    let beyond = |it: &TwinCandidate| {
        let expected = took.max(rate * cost(it.work));
        let limit = rules.factor * expected + rules.at_least.as_secs_f64();
        it.runs_for.as_secs_f64() / limit
    };
    let mut found: Vec<(f64, u32)> = running.iter().map(|task| (beyond(task), task.task)).collect();
    found.retain(|(beyond, _)| *beyond > 1.0);
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, task)| task).collect()
}

/// Returns the lower median; `None` without values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn rules() -> Stragglers {
        Stragglers::default()
    }

    fn done(seconds: &[u64]) -> Vec<Sample> {
        let sample = |s: &u64| Sample { work: 10 * MIB, took: Duration::from_secs(*s) };
        seconds.iter().map(sample).collect()
    }

    fn running(task: u32, work: u64, seconds: u64) -> TwinCandidate {
        TwinCandidate { task, work, runs_for: Duration::from_secs(seconds) }
    }

    #[test]
    fn most_tasks_must_be_done_and_one_must_be_left() {
        let found: Vec<bool> = (0..=8).map(|done| has_quorum(&rules(), 8, done)).collect();
        assert_eq!(found, [false, false, false, false, false, false, true, true, false]);
        assert!(has_quorum(&rules(), 2, 1) && !has_quorum(&rules(), 1, 0));
    }

    #[test]
    fn a_task_that_runs_much_longer_than_the_median_is_slow() {
        let done = done(&[4, 5, 6, 50]);
        // Twice the median of 5 s, and one second.
        assert!(slow(&rules(), &done, &[running(7, 10 * MIB, 11)]).is_empty());
        let candidates = [running(7, 10 * MIB, 12), running(8, 10 * MIB, 13), running(9, 0, 3)];
        assert_eq!(slow(&rules(), &done, &candidates), [8, 7]);
    }

    #[test]
    fn a_task_with_more_to_read_may_take_longer() {
        let done = done(&[5, 5, 5]);
        assert!(slow(&rules(), &done, &[running(1, 100 * MIB, 60)]).is_empty());
        assert_eq!(slow(&rules(), &done, &[running(1, 100 * MIB, 120)]), [1]);
        // One with less is not expected to be faster: a start costs something too.
        assert!(slow(&rules(), &done, &[running(1, 0, 10)]).is_empty());
    }

    #[test]
    fn without_samples_nothing_is_slow() {
        assert!(slow(&rules(), &[], &[running(0, 0, 1_000)]).is_empty());
        assert_eq!((most_twins(1), most_twins(11), most_twins(256)), (1, 2, 26));
    }
}
