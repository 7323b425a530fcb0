//! The requests of an exchange by objects before it runs (Lambada, Table 2), and what they cost
//! (Figure 9).
//!
//! The counts are exact for an exchange of as many partitions as tasks in which every task sends
//! rows to every partition, and each output fits into the buffer of its writer. Other exchanges
//! need fewer, because nothing is written for an empty partition.

use std::collections::BTreeSet;

use crate::exchange::levels::levels;

/// A way to exchange rows by objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectExchange {
    /// Number of levels (Lambada 4.4.2), 1 to 3.
    pub levels: u32,
    /// True with write combining (Lambada 4.4.3): a task writes all its partitions into one object.
    pub combining: bool,
}

/// Requests of an exchange. It needs no LIST: the driver tells readers the offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeRequests {
    /// Number of GET requests.
    pub reads: u64,
    /// Number of PUT requests.
    pub writes: u64,
    /// How many times each row is written and read.
    pub scans: u32,
}

/// Prices of requests and workers in US dollars.
#[derive(Clone, Copy, Debug)]
pub struct ExchangePrices {
    /// Price of a million GET requests in US dollars.
    pub million_reads: f64,
    /// Price of a million PUT requests in US dollars.
    pub million_writes: f64,
    /// Price of a worker for one second in US dollars.
    pub worker_second: f64,
}

impl ExchangePrices {
    /// The prices of the Lambada paper: S3 and Lambda with 2 GiB in us-east-1, 2019.
    pub const PAPER: Self = Self { million_reads: 0.4, million_writes: 5.0, worker_second: 3.3e-5 };
}

/// Bytes per second that a worker of the paper moves.
const WORKER_BYTES_PER_S: f64 = 85.0 * 1024.0 * 1024.0;

impl ObjectExchange {
    /// The six ways of the paper: 1l, 1l-wc, 2l, 2l-wc, 3l, 3l-wc.
    pub fn all() -> impl Iterator<Item = Self> {
        let both = |levels| [false, true].map(|combining| Self { levels, combining });
        (1..=3).flat_map(both)
    }

    /// Returns the name of this way in the Lambada paper, such as `2l-wc`.
    pub fn name(self) -> String {
        format!("{}l{}", self.levels, if self.combining { "-wc" } else { "" })
    }

    /// Returns the requests for a number of tasks, with as many partitions. For `k` levels, and
    /// tasks that are a power `s^k`: `k · tasks · s` reads, and as many writes, or `k · tasks` with
    /// combining.
    pub fn requests(self, tasks: u32) -> ExchangeRequests {
        let tasks = tasks.max(1);
        let levels = levels(tasks, self.levels.max(1));
        let scans = levels.len() as u32;
        let units: Vec<u32> = levels.iter().map(|level| level.unit).collect();
        // The first stage has all partitions in one block.
        let mut reads = u64::from(tasks) * u64::from(tasks.div_ceil(units[0]));
        for pair in units.windows(2) {
            reads += sent(tasks, pair[0], pair[1]);
        }
        let writes = if self.combining { u64::from(scans) * u64::from(tasks) } else { reads };
        ExchangeRequests { reads, writes, scans }
    }
}

/// Returns the number of pairs of a task and a cell that exchange rows at the level of `unit`. The
/// tasks run the cells of the level of `before` in turn; a cell has the rows of one block of
/// `before` partitions.
fn sent(tasks: u32, before: u32, unit: u32) -> u64 {
    let cells = tasks.div_ceil(before) * before;
    let of_task = |task: u32| {
        let own = (task..cells).step_by(tasks as usize);
        let blocks: BTreeSet<u32> = own.map(|cell| cell / before).collect();
        let parts = |block: u32| before.min(tasks - block * before).div_ceil(unit);
        blocks.into_iter().map(|block| u64::from(parts(block))).sum::<u64>()
    };
    (0..tasks).map(of_task).sum()
}

impl ExchangeRequests {
    /// Returns the price of the requests in US dollars.
    pub fn dollars(self, prices: &ExchangePrices) -> f64 {
        self.reads as f64 * prices.million_reads / 1e6
            + self.writes as f64 * prices.million_writes / 1e6
    }

    /// Returns the price of the workers in US dollars, if each moves `bytes_each` bytes for each
    /// scan, at the paper's speed.
    pub fn worker_dollars(self, tasks: u32, bytes_each: f64, prices: &ExchangePrices) -> f64 {
        let seconds = f64::from(self.scans) * bytes_each / WORKER_BYTES_PER_S;
        f64::from(tasks) * seconds * prices.worker_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(levels: u32, combining: bool, tasks: u32) -> (u64, u64) {
        let found = ObjectExchange { levels, combining }.requests(tasks);
        (found.reads, found.writes)
    }

    #[test]
    fn powers_need_the_requests_of_table_2() {
        for (levels, side) in [(1, 16), (1, 4096), (2, 2), (2, 16), (2, 64), (3, 3), (3, 16)] {
            let tasks = u64::pow(side, levels);
            let reads = u64::from(levels) * tasks * side;
            assert_eq!(requests(levels, false, tasks as u32), (reads, reads));
            let writes = u64::from(levels) * tasks;
            assert_eq!(requests(levels, true, tasks as u32), (reads, writes));
        }
    }

    #[test]
    fn other_numbers_need_at_most_the_requests_of_the_next_power_and_its_folded_cells() {
        for tasks in 2..300u32 {
            for levels in 2..=3 {
                let side = (1..).find(|side: &u64| side.pow(levels) >= tasks.into()).unwrap_or(1);
                let (reads, _) = requests(levels, true, tasks);
                assert!(reads <= 2 * u64::from(levels) * u64::from(tasks) * side, "{tasks}");
            }
        }
    }

    /// The statements of section 4.4.4 about Figure 9.
    #[test]
    fn costs_are_those_of_figure_9() {
        let prices = ExchangePrices::PAPER;
        let dollars = |levels, combining, tasks| {
            ObjectExchange { levels, combining }.requests(tasks).dollars(&prices)
        };
        // "about 100 dollars for the requests".
        assert!((80.0..110.0).contains(&dollars(1, false, 4096)));
        for tasks in [64, 256, 1024, 4096] {
            // Combining makes the writes negligible, not the reads.
            let combined = ObjectExchange { levels: 1, combining: true }.requests(tasks);
            let writes = combined.writes as f64 * prices.million_writes / 1e6;
            assert!(writes < 0.25 * combined.dollars(&prices));
            // "Two levels has always lower request costs than using just one."
            assert!(dollars(2, false, tasks) < dollars(1, false, tasks));
            assert!(dollars(2, true, tasks) < dollars(1, true, tasks));
            // With three levels and combining they are below a tenth of the workers' at 1 GiB each.
            let three = ObjectExchange { levels: 3, combining: true }.requests(tasks);
            let workers = three.worker_dollars(tasks, 1024.0 * 1024.0 * 1024.0, &prices);
            assert!(three.dollars(&prices) < 0.1 * workers, "{tasks}");
        }
        let names: Vec<String> = ObjectExchange::all().map(ObjectExchange::name).collect();
        assert_eq!(names, ["1l", "1l-wc", "2l", "2l-wc", "3l", "3l-wc"]);
    }
}
