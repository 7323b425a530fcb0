//! Limits of the workers of a query.

use snowmelt_types::{ByteSize, CpuMillis};

/// The most cores of a query worker: one core runs the plan and one decodes files.
const MAX_WORKER_CORES: u32 = 2;

/// The limits of each worker of a query.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// The memory limit of each worker.
    pub memory: ByteSize,
    /// The processor share of each worker.
    pub cpu: CpuMillis,
}

impl WorkerLimits {
    /// Returns the limits for a query with `workers` workers on hosts that have `cores` cores
    /// together. Where there are two cores for each worker, it gets both, and decodes files on the
    /// second one.
    pub fn of_query(memory: ByteSize, workers: u32, cores: u32) -> Self {
        let share = cores / workers.max(1);
        Self { memory, cpu: CpuMillis(1000 * share.clamp(1, MAX_WORKER_CORES)) }
    }

    /// Returns the number of threads that run a plan.
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
