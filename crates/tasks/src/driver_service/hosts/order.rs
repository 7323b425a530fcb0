//! The order of the hosts on which a task may run.
//!
//! The first rule is that the tasks of a query are spread by cores: a host gets a second round of
//! tasks when all others have their first. Within a round a task goes to the host with most bytes
//! of the outputs that the task reads, and otherwise to the host with the least load.

use std::cmp::Reverse;

/// A host that may run a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostCandidate {
    /// The number of the host's cores.
    pub cores: u32,
    /// The number of the query's tasks that run on the host.
    pub running: u32,
    /// The bytes that the task reads from outputs on the host.
    pub input_bytes: u64,
}

impl HostCandidate {
    /// Returns the number of whole rounds of tasks on the host: a round is one task for each core.
    pub fn round(&self) -> u32 {
        self.running / self.cores.max(1)
    }
}

/// Returns the indices of the candidates, the best first.
pub(super) fn order(candidates: &[HostCandidate]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..candidates.len()).collect();
    // Stable, so that equal hosts stay in their order.
    places.sort_by_key(|place| {
        let candidate = &candidates[*place];
        let load = u64::from(candidate.running) * 1000 / u64::from(candidate.cores.max(1));
        (candidate.round(), Reverse(candidate.input_bytes), load)
    });
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(cores: u32, running: u32, input_bytes: u64) -> HostCandidate {
        HostCandidate { cores, running, input_bytes }
    }

    /// Returns how many of `tasks` each host gets, if they are placed one after another.
    fn spread(tasks: u32, mut hosts: Vec<HostCandidate>) -> Vec<u32> {
        for _ in 0..tasks {
            let first = order(&hosts)[0];
            hosts[first].running += 1;
        }
        hosts.iter().map(|host| host.running).collect()
    }

    #[test]
    fn scans_are_spread_by_cores() {
        assert_eq!(spread(8, vec![host(2, 0, 0); 4]), [2, 2, 2, 2]);
        assert_eq!(spread(12, vec![host(2, 0, 0), host(4, 0, 0)]), [4, 8]);
        assert_eq!(spread(3, vec![host(1, 0, 0), host(1, 2, 0)]), [3, 2]);
    }

    #[test]
    fn a_task_goes_to_its_inputs_as_long_as_a_core_is_free_there() {
        let hosts = vec![host(2, 0, 0), host(2, 0, 9), host(2, 0, 5)];
        assert_eq!(order(&hosts), [1, 2, 0]);
        assert_eq!(spread(5, hosts), [1, 2, 2]);
    }

    proptest! {
        #[test]
        fn no_host_is_more_than_one_round_ahead(
            tasks in 0_u32..200,
            hosts in prop::collection::vec((1_u32..8, 0_u64..3), 1..8),
        ) {
            let hosts: Vec<_> = hosts.into_iter().map(|(cores, bytes)| host(cores, 0, bytes)).collect();
            let placed = spread(tasks, hosts.clone());
            prop_assert_eq!(placed.iter().sum::<u32>(), tasks);
            let rounds = placed.iter().zip(&hosts).map(|(placed, host)| placed.div_ceil(host.cores));
            let full = placed.iter().zip(&hosts).map(|(placed, host)| placed / host.cores);
            prop_assert!(rounds.max() <= full.min().map(|least| least + 1));
        }
    }
}
