//! What the workers of a query may use.

use snowmelt_types::{ByteSize, CpuMillis};

/// The most cores of a query worker: one that runs the plan and one that decodes what it reads.
const MAX_WORKER_CORES: u32 = 2;

/// What a query's workers may use.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Memory limit of each.
    pub memory: ByteSize,
    /// Processor share of each.
    pub cpu: CpuMillis,
}

impl WorkerLimits {
    /// For a query with so many workers on hosts with so many cores. Where two cores are there for
    /// each worker, it gets both: on the second one it decodes files.
    pub fn of_query(memory: ByteSize, workers: u32, cores: u32) -> Self {
        let share = cores / workers.max(1);
        Self { memory, cpu: CpuMillis(1000 * share.clamp(1, MAX_WORKER_CORES)) }
    }

    /// Threads that run a plan.
    pub(crate) fn threads(&self) -> u32 {
        self.cpu.0.div_ceil(1000).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_a_second_core_if_one_is_there_for_each() {
        for (workers, cores, threads) in [
            (1, 1, 1),
            (1, 2, 2),
            (2, 2, 1),
            (2, 3, 1),
            (2, 4, 2),
            (1, 64, 2),
            (0, 1, 1),
            (9, 2, 1),
        ] {
            let limits = WorkerLimits::of_query(ByteSize::mib(64), workers, cores);
            assert_eq!(limits.threads(), threads, "{workers} workers, {cores} cores");
        }
    }
}
