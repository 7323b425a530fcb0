//! Marks of a sorted output: some of its frames, with the sort keys of their first rows, by which
//! it is read in ranges of keys.

use arrow::array::RecordBatch;
use datafusion::error::Result;
use snowmelt_wire::{MARK_KEY_BYTES, MAX_MARKS, Mark};

use crate::sort_keys::SortKeys;

/// The marks of one partition. They are spread evenly over its frames.
#[derive(Debug)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    /// The distance of marked frames: one of `step` frames is marked.
    step: usize,
    frames: usize,
    rows: u64,
    bytes: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marks: Vec::new(), step: 1, frames: 0, rows: 0, bytes: 0 }
    }
}

impl Marks {
    /// Adds the next frame, which has the rows of `batch` and a length in bytes, and marks it where
    /// one is due.
    pub(super) fn add(&mut self, batch: &RecordBatch, keys: &SortKeys, bytes: u64) -> Result<()> {
        if self.frames.is_multiple_of(self.step) && batch.num_rows() > 0 {
            self.mark(keys.of_row(batch, 0)?);
        }
        self.frames += 1;
        self.rows += batch.num_rows() as u64;
        self.bytes += bytes;
        Ok(())
    }

    fn mark(&mut self, mut key: Vec<u8>) {
        if self.marks.len() == MAX_MARKS {
            let mut index = 0..;
            self.marks.retain(|_| index.next().is_some_and(|index| index % 2 == 0));
            self.step *= 2;
            if !self.frames.is_multiple_of(self.step) {
                return;
            }
        }
        let cut = key.len() > MARK_KEY_BYTES;
        key.truncate(MARK_KEY_BYTES);
        self.marks.push(Mark { rows: self.rows, bytes: self.bytes, key, cut });
    }

    pub(super) fn finish(self) -> Vec<Mark> {
        self.marks
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};

    use super::*;

    #[test]
    fn marks_are_few_and_evenly_spread() {
        let batch = |n: i64| {
            let numbers = Arc::new(Int64Array::from_iter_values(n * 10..n * 10 + 10)) as ArrayRef;
            RecordBatch::try_from_iter([("n", numbers)]).unwrap()
        };
        let by = PhysicalSortExpr::new_default(col("n", &batch(0).schema()).unwrap());
        let order = LexOrdering::new([by]).unwrap();
        let keys = SortKeys::new(&order, &batch(0).schema()).unwrap().unwrap();
        for frames in [1, 255, 256, 257, 511, 512, 513, 5_000_i64] {
            let mut marks = Marks::default();
            (0..frames).for_each(|n| marks.add(&batch(n), &keys, 100).unwrap());
            let marks = marks.finish();
            assert!(marks.len() <= MAX_MARKS && marks.len() as i64 >= (frames / 2).min(128));
            let step = marks.get(1).map_or(0, |second| second.bytes);
            for (index, mark) in marks.iter().enumerate() {
                assert_eq!((mark.bytes, mark.rows), (index as u64 * step, mark.bytes / 10));
                let first = batch(mark.bytes as i64 / 100);
                assert_eq!((&mark.key, mark.cut), (&keys.of_row(&first, 0).unwrap(), false));
            }
        }
    }
}
