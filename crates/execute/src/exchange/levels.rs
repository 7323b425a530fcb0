//! The levels of an exchange (Lambada 4.4.2): each divides the rows by one coordinate of their
//! partitions on a grid.
//!
//! A partition is a number with `k` digits to the base `s`, the side of the grid: the smallest with
//! `s^k` at least the number of partitions. Level `l` of `k` is right in the `l` highest digits: a
//! row goes to the cell that has these digits of its partition, and the other digits of the task
//! that sends it. So each task sends to `s` cells, and each cell receives from `s` tasks.
//!
//! Invariant: the cells of the last level are the partitions.

/// A level of an exchange: one step that moves rows along one axis of the grid of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The number of the level, from 1.
    pub number: u32,
    /// The number of levels.
    pub of: u32,
    /// The divisor of this level: partitions whose numbers have the same quotient by it have the
    /// same digits so far.
    pub unit: u32,
}

impl Level {
    /// The only level of an exchange.
    pub const ONLY: Self = Self { number: 1, of: 1, unit: 1 };

    /// Returns the number of the level's cells for a number of partitions.
    pub fn cells(self, partitions: u32) -> u32 {
        partitions.div_ceil(self.unit) * self.unit
    }
}

/// Returns at most `most` levels for an exchange to `partitions` partitions. A level whose grid has
/// one cell for all rows of a task is left out.
pub fn levels(partitions: u32, most: u32) -> Vec<Level> {
    let side = side(partitions, most);
    let units = (0..most).rev().map(|power| side.saturating_pow(power));
    let mut units: Vec<u32> = units.filter(|unit| *unit == 1 || *unit < partitions).collect();
    // A grid with one cell has one level.
    units.dedup();
    let of = units.len() as u32;
    let level = |(index, unit)| Level { number: index as u32 + 1, of, unit };
    units.into_iter().enumerate().map(level).collect()
}

/// Returns the cell of a level to which a task sends the rows of a partition. `own` is the cell
/// that the task runs, or any number of the task if it runs none.
pub(crate) fn cell(unit: u32, partition: u32, own: u32) -> u32 {
    let unit = unit.max(1);
    partition / unit * unit + own % unit
}

/// Returns the smallest side of a grid of `dimensions` with at least `cells` cells.
fn side(cells: u32, dimensions: u32) -> u32 {
    let mut side = 1u32;
    while side.saturating_pow(dimensions) < cells {
        side += 1;
    }
    side
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn units(partitions: u32, most: u32) -> Vec<u32> {
        levels(partitions, most).into_iter().map(|level| level.unit).collect()
    }

    /// The pairs of task and cell that exchange rows, by level.
    type Pairs = Vec<BTreeSet<(u32, u32)>>;

    /// Sends one row of each task to each partition through all levels; gives the pairs, and where
    /// the rows are in the end.
    fn exchanged(tasks: u32, partitions: u32, most: u32) -> (Pairs, BTreeMap<u32, Vec<u32>>) {
        let row = |task| (0..partitions).map(move |partition| (task, partition));
        let mut rows: Vec<(u32, u32)> = (0..tasks).flat_map(row).collect();
        let mut pairs = Vec::new();
        for level in levels(partitions, most) {
            let mut sent = BTreeSet::new();
            for (place, partition) in &mut rows {
                let to = cell(level.unit, *partition, *place);
                assert!(to < level.cells(partitions));
                sent.insert((*place, to));
                *place = to;
            }
            pairs.push(sent);
        }
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        rows.into_iter()
            .for_each(|(place, partition)| found.entry(place).or_default().push(partition));
        (pairs, found)
    }

    #[test]
    fn the_units_are_the_powers_of_the_side() {
        assert_eq!(
            (units(16, 1), units(16, 2), units(16, 4)),
            (vec![1], vec![4, 1], vec![8, 4, 2, 1])
        );
        assert_eq!(
            (units(27, 3), units(10, 2), units(5, 2)),
            (vec![9, 3, 1], vec![4, 1], vec![3, 1])
        );
        assert_eq!((units(1, 3), units(2, 3), units(4, 3)), (vec![1], vec![1], vec![2, 1]));
    }

    #[test]
    fn powers_need_the_requests_of_table_2() {
        for (partitions, most) in [(4, 2), (9, 2), (16, 2), (64, 2), (8, 3), (27, 3), (64, 3)] {
            let side = side(partitions, most);
            assert_eq!(side.pow(most), partitions);
            let (pairs, _) = exchanged(partitions, partitions, most);
            assert_eq!(pairs.len(), most as usize);
            for level in pairs {
                assert_eq!(level.len() as u32, partitions * side, "{partitions} {most}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_row_reaches_its_partition(
            tasks in 1u32..60,
            partitions in 1u32..60,
            most in 1u32..=3,
        ) {
            let (pairs, found) = exchanged(tasks, partitions, most);
            prop_assert_eq!(found.len() as u32, partitions);
            for (place, rows) in found {
                prop_assert_eq!(rows, vec![place; tasks as usize]);
            }
            let bound = (side(partitions, most) + 1) * tasks.max(partitions + partitions);
            prop_assert!(pairs.iter().all(|level| level.len() as u32 <= bound * 2));
        }
    }
}
