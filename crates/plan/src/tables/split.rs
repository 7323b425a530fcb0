//! Distributes the row groups of a table's files to partitions.
//!
//! A partition gets a run of consecutive row groups with about its share of the bytes. Partitions
//! are split between row groups, so no two partitions read the same page, and a file with one row
//! group is never split into two halves of which one is empty.
//!
//! Invariant: each row group is in exactly one partition.

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use snowmelt_execute::scan::first_byte;

/// Minimum size of a partition: a smaller one is not worth a worker.
pub(crate) const MIN_PARTITION_BYTES: u64 = 4 << 10;

/// A row group or a whole file, indivisible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Index of the unit's file.
    pub(crate) file: usize,
    /// First byte; a reader reads the row groups that begin in `start..end`.
    pub(crate) start: i64,
    /// End, exclusive: the start of the next unit, or the end of the file.
    pub(crate) end: i64,
    /// Bytes of the columns that the query reads.
    pub(crate) bytes: u64,
}

/// The units of a file for these row groups, in order. A file whose row groups are out of order is a
/// single unit.
///
/// Other row groups between two of them belong to the range of the first. The reader leaves them out
/// by the same statistics, and the range of the file is read in one part.
pub(crate) fn units(
    file: usize,
    size: u64,
    footer: &ParquetMetaData,
    columns: &[usize],
    kept: &[usize],
) -> Vec<Unit> {
    let groups = footer.row_groups();
    let in_order = groups.windows(2).all(|pair| first_byte(&pair[0]) < first_byte(&pair[1]));
    let bytes = |group: &usize| column_bytes(&groups[*group], columns);
    if !in_order {
        let bytes = kept.iter().map(bytes).sum();
        let whole = Unit { file, start: 0, end: size as i64, bytes };
        return if kept.is_empty() { Vec::new() } else { vec![whole] };
    }
    let start = |group: &usize| first_byte(&groups[*group]);
    let end = |place: usize| kept.get(place + 1).map_or(size as i64, start);
    let unit =
        |(place, group)| Unit { file, start: start(group), end: end(place), bytes: bytes(group) };
    kept.iter().enumerate().map(unit).collect()
}

/// How many row groups of a file these units do not have in their ranges.
pub(crate) fn outside(footer: &ParquetMetaData, units: &[Unit]) -> u64 {
    let is_outside = |group: &&RowGroupMetaData| {
        let start = first_byte(group);
        !units.iter().any(|unit| (unit.start..unit.end).contains(&start))
    };
    footer.row_groups().iter().filter(is_outside).count() as u64
}

/// Returns the bytes of some columns in a row group. `columns` are top-level fields of the table;
/// each leaf of a file belongs to one of them.
fn column_bytes(group: &RowGroupMetaData, columns: &[usize]) -> u64 {
    let schema = group.schema_descr();
    let wanted = |leaf: &usize| columns.contains(&schema.get_column_root_idx(*leaf));
    let leaves = (0..group.num_columns()).filter(wanted);
    leaves.map(|leaf| group.column(leaf).compressed_size().max(0) as u64).sum()
}

/// Distributes units to at most `partitions` partitions, none of them empty. Without units there is
/// one empty partition, because an aggregate over no rows has a result.
pub(crate) fn distribute(units: &[Unit], partitions: usize) -> Vec<Vec<Unit>> {
    // Every unit has a cost, even if the query reads no column of it.
    let cost = |unit: &Unit| u128::from(unit.bytes) + 1;
    let total: u128 = units.iter().map(cost).sum();
    let worth = (total as u64).div_ceil(MIN_PARTITION_BYTES).max(1) as usize;
    let partitions = partitions.clamp(1, worth) as u128;
    let mut distributed: Vec<Vec<Unit>> = vec![Vec::new(); partitions as usize];
    let mut before = 0;
    for unit in units {
        // The partition whose share of the bytes contains the middle of the unit.
        let middle = 2 * before + cost(unit);
        let partition = (middle * partitions / (2 * total)).min(partitions - 1);
        merge_or_push(&mut distributed[partition as usize], *unit);
        before += cost(unit);
    }
    if !units.is_empty() {
        distributed.retain(|units| !units.is_empty());
    }
    distributed
}

fn merge_or_push(units: &mut Vec<Unit>, unit: Unit) {
    match units.last_mut() {
        Some(last) if last.file == unit.file && last.end == unit.start => {
            last.end = unit.end;
            last.bytes += unit.bytes;
        }
        _ => units.push(unit),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files of row groups of these sizes.
    fn files(sizes: &[Vec<u32>]) -> Vec<Unit> {
        let mut units = Vec::new();
        for (file, sizes) in sizes.iter().enumerate() {
            let mut start = 4;
            for bytes in sizes {
                let end = start + i64::from(*bytes);
                units.push(Unit { file, start, end, bytes: u64::from(*bytes) });
                start = end;
            }
        }
        units
    }

    proptest! {
        #[test]
        fn each_row_group_is_in_exactly_one_partition(
            sizes in prop::collection::vec(prop::collection::vec(1u32..10_000_000, 0..9), 0..9),
            partitions in 1usize..20,
        ) {
            let units = files(&sizes);
            let distributed = distribute(&units, partitions);
            prop_assert!(distributed.len() <= partitions);
            prop_assert!(units.is_empty() || distributed.iter().all(|part| !part.is_empty()));
            prop_assert!(!distributed.is_empty());
            for unit in &units {
                let holders = distributed.iter().flatten().filter(|part| {
                    part.file == unit.file && (part.start..part.end).contains(&unit.start)
                });
                prop_assert_eq!(holders.count(), 1);
            }
            let bytes = |units: &[Unit]| units.iter().map(|unit| unit.bytes).sum::<u64>();
            prop_assert_eq!(bytes(&units), bytes(&distributed.concat()));
        }

        #[test]
        fn no_partition_exceeds_its_share_by_more_than_a_row_group(
            sizes in prop::collection::vec(100_000u32..10_000_000, 1..50),
            partitions in 1usize..20,
        ) {
            let units = files(&[sizes]);
            let total: u64 = units.iter().map(|unit| unit.bytes).sum();
            let largest = units.iter().map(|unit| unit.bytes).max().unwrap_or(0);
            let share = total / partitions as u64;
            for part in distribute(&units, partitions) {
                let bytes: u64 = part.iter().map(|unit| unit.bytes).sum();
                prop_assert!(bytes <= share + largest + 64, "{} > {} + {}", bytes, share, largest);
            }
        }
    }

    #[test]
    fn a_small_table_is_one_partition() {
        assert_eq!(distribute(&files(&[vec![1000], vec![1000]]), 8).len(), 1);
    }

    #[test]
    fn consecutive_units_are_merged() {
        let distributed = distribute(&files(&[vec![1 << 20; 4]]), 2);
        assert_eq!(distributed.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }
}
