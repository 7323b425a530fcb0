//! The cost of a hash join: nanoseconds of all tasks, roughly. Only ratios matter.

/// Cost of inserting a row into a hash table.
const INSERT: f64 = 45.0;
/// Cost of looking a row up in a hash table that fits into the processor's cache.
const LOOK_UP: f64 = 10.0;
/// Additional cost of a lookup for each doubling of a larger table.
const LOOK_UP_MORE: f64 = 3.0;
/// Rows of the largest hash table that fits into the processor's cache.
const IN_CACHE: f64 = 1024.0;
/// Cost of forming a row of the output.
const OUTPUT: f64 = 10.0;
/// Cost of writing a row to an exchange, and of each byte of it.
const WRITE: f64 = 20.0;
const WRITE_BYTE: f64 = 0.5;
/// Cost of finding the partition of a row and gathering the rows of each partition, and of each
/// byte of it.
const SPLIT: f64 = 30.0;
const SPLIT_BYTE: f64 = 0.3;
/// Cost of reading a row from an exchange, and of each byte of it.
const READ: f64 = 5.0;
const READ_BYTE: f64 = 0.2;

/// Bytes of the largest build side that every task collects whole. The hash table needs about as
/// much again.
const MAX_COLLECTED_BYTES: f64 = (64 << 20) as f64;

/// An input of a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) rows: f64,
    /// Bytes of a row.
    pub(super) width: f64,
    /// True if the input's rows are split by the keys of the join in any case.
    pub(super) is_split: bool,
}

/// The tasks that run joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    /// The largest number of tasks, which is the number of partitions.
    pub(super) most: usize,
    /// The likely number of tasks.
    pub(super) likely: usize,
}

/// How a join runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each task reads the whole build side.
    Collected,
    /// Each task reads a partition of both sides, which are split by their keys.
    Partitioned,
}

/// The cheaper mode and its cost. `can_collect` is false if the join returns rows of its build side.
pub(super) fn cheapest(
    build: Side,
    probe: Side,
    output_rows: f64,
    tasks: Tasks,
    can_collect: bool,
) -> (Mode, f64) {
    let always = INSERT * build.rows + look_up(build.rows) * probe.rows + OUTPUT * output_rows;
    let likely = tasks.likely as f64;
    let others = (likely - 1.0) * INSERT * build.rows;
    let collected = always + others + written(build) + likely * read(build);
    let split = exchanged(build) + exchanged(probe);
    // A table of one partition is smaller.
    let partitioned = INSERT * build.rows
        + look_up(build.rows / tasks.most as f64) * probe.rows
        + OUTPUT * output_rows
        + split;
    let fits = build.rows * build.width <= MAX_COLLECTED_BYTES || tasks.most == 1;
    match can_collect && fits && (collected <= partitioned || tasks.most == 1) {
        true => (Mode::Collected, collected),
        false => (Mode::Partitioned, partitioned),
    }
}

fn look_up(table_rows: f64) -> f64 {
    LOOK_UP + LOOK_UP_MORE * (table_rows / IN_CACHE).max(1.0).log2()
}

fn written(side: Side) -> f64 {
    side.rows * (WRITE + WRITE_BYTE * side.width)
}

fn read(side: Side) -> f64 {
    side.rows * (READ + READ_BYTE * side.width)
}

fn exchanged(side: Side) -> f64 {
    match side.is_split {
        true => 0.0,
        false => side.rows * (SPLIT + SPLIT_BYTE * side.width) + written(side) + read(side),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(build: f64, probe: f64, tasks: usize) -> Mode {
        of_likely(build, probe, tasks, tasks)
    }

    fn of_likely(build: f64, probe: f64, most: usize, likely: usize) -> Mode {
        let side = |rows| Side { rows, width: 16.0, is_split: false };
        cheapest(side(build), side(probe), probe, Tasks { most, likely }, true).0
    }

    #[test]
    fn a_small_build_side_is_collected() {
        assert_eq!(mode(1e4, 1e6, 2), Mode::Collected);
        assert_eq!(mode(1e4, 1e6, 16), Mode::Collected);
    }

    #[test]
    fn the_number_of_tasks_decides_for_larger_ones() {
        assert_eq!(mode(5e5, 1e6, 2), Mode::Collected);
        assert_eq!(mode(5e5, 1e6, 16), Mode::Partitioned);
        assert_eq!(mode(1e7, 1e9, 2), Mode::Partitioned, "it needs too much memory");
        assert_eq!(mode(1e7, 1e9, 1), Mode::Collected, "one task gets all rows in any case");
    }

    #[test]
    fn a_build_side_is_collected_for_the_tasks_that_there_are() {
        assert_eq!(of_likely(5e5, 1e6, 16, 16), Mode::Partitioned);
        assert_eq!(of_likely(5e5, 1e6, 16, 2), Mode::Collected);
        assert_eq!(of_likely(1e7, 1e9, 16, 1), Mode::Partitioned, "there may be more tasks");
    }

    #[test]
    fn what_is_split_already_needs_no_exchange() {
        let side = |rows, is_split| Side { rows, width: 16.0, is_split };
        let build = side(1e5, true);
        let probe = side(1e5, true);
        assert_eq!(
            cheapest(build, probe, 1e5, Tasks { most: 4, likely: 4 }, true).0,
            Mode::Partitioned
        );
    }
}
