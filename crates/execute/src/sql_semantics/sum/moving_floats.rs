//! Sums and averages of floating-point numbers in frames of windows that move.
//!
//! DataFusion subtracts the values that leave a frame. A sum of `1e20` and 1 has forgotten the 1, so
//! what is left after the subtraction is 0, and after `inf` or NaN everything is NaN. Here nothing is
//! subtracted: values leave a frame in the order in which they came, so two stacks with sums hold it.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::scalar::ScalarValue;

/// The result that is computed of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sql_semantics) enum FrameResult {
    /// The sum of the values.
    #[default]
    Sum,
    /// The sum of the values by their number.
    Average,
}

/// An accumulator for frames that move. Takes columns of DOUBLE.
pub(in crate::sql_semantics) fn accumulator(result: FrameResult) -> Box<dyn Accumulator> {
    Box::new(MovingFloats { result, ..MovingFloats::default() })
}

/// The values of a frame that are not null.
#[derive(Debug, Default)]
struct MovingFloats {
    result: FrameResult,
    /// The older values: each with the sum of itself and those that came later, the oldest last.
    older: Vec<f64>,
    /// The newer values in the order in which they came.
    newer: Vec<f64>,
    newer_sum: f64,
}

impl MovingFloats {
    fn push(&mut self, value: f64) {
        self.newer_sum += value;
        self.newer.push(value);
    }

    /// Removes the oldest value.
    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut sum = 0.0;
            while let Some(value) = self.newer.pop() {
                sum += value;
                self.older.push(sum);
            }
            self.newer_sum = 0.0;
        }
        self.older.pop();
    }

    /// `None` of a frame without values.
    fn sum(&self) -> Option<f64> {
        match (self.older.last(), self.newer.is_empty()) {
            (None, true) => None,
            (None, false) => Some(self.newer_sum),
            (Some(older), true) => Some(*older),
            (Some(older), false) => Some(older + self.newer_sum),
        }
    }
}

impl Accumulator for MovingFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Float64Type>();
        values.iter().flatten().for_each(|value| self.push(value));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = values[0].len() - values[0].null_count();
        (0..count).for_each(|_| self.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.older.len() + self.newer.len();
        let result = self.sum().map(|sum| match self.result {
            FrameResult::Sum => sum,
            FrameResult::Average => sum / count as f64,
        });
        Ok(ScalarValue::Float64(result))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("frames of windows have no states that are merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("frames of windows have no states that are merged")
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.older.capacity() + self.newer.capacity()) * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Float64Array;
    use proptest::prelude::*;

    use super::*;

    fn column(values: &[Option<f64>]) -> [ArrayRef; 1] {
        [Arc::new(values.iter().copied().collect::<Float64Array>())]
    }

    proptest! {
        /// Integers are added exactly, so any order of additions gives the same sum.
        #[test]
        fn frames_that_move_have_the_sums_of_their_values(
            values in prop::collection::vec(prop::option::weighted(0.8, -50..50_i32), 1..60),
            width in 1..20_usize,
        ) {
            let values: Vec<Option<f64>> = values.iter().map(|v| v.map(f64::from)).collect();
            let mut moving = accumulator(FrameResult::Sum);
            for end in 1..=values.len() {
                moving.update_batch(&column(&values[end - 1..end])).unwrap();
                if end > width {
                    let left = end - width - 1;
                    moving.retract_batch(&column(&values[left..=left])).unwrap();
                }
                let frame = &values[end.saturating_sub(width)..end];
                let known: Vec<f64> = frame.iter().copied().flatten().collect();
                let expected = (!known.is_empty()).then(|| known.iter().sum());
                prop_assert_eq!(moving.evaluate().unwrap(), ScalarValue::Float64(expected));
            }
        }
    }
}
