//! The sum of distinct values.

use std::collections::HashMap;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::scalar::ScalarValue;
use datafusion_functions_aggregate_common::aggregate::sum_distinct::DistinctSumAccumulator;

use super::Summed;
use super::rows::{SumRows, wide};

pub(super) fn accumulator<T: Summed>(data_type: DataType) -> Box<dyn Accumulator> {
    let values = DistinctSumAccumulator::<T>::new(&data_type);
    Box::new(Distinct { values, data_type })
}

pub(super) fn sliding<T: Summed>(data_type: DataType) -> Box<dyn Accumulator> {
    Box::new(Sliding { counts: HashMap::new(), sum: SumRows::<T>::new(data_type) })
}

/// The sum of DataFusion's set of distinct values.
#[derive(Debug)]
struct Distinct<T: Summed> {
    values: DistinctSumAccumulator<T>,
    data_type: DataType,
}

impl<T: Summed> Accumulator for Distinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = SumRows::<T>::new(self.data_type.clone());
        for state in self.values.state()? {
            if let ScalarValue::List(list) = state {
                sum.update_batch(&[list.value(0)])?;
            }
        }
        sum.evaluate()
    }

    fn size(&self) -> usize {
        self.values.size()
    }
}

/// The number of occurrences of each value in the window, and the sum of the distinct values.
#[derive(Debug)]
struct Sliding<T> {
    counts: HashMap<i128, u64>,
    sum: SumRows<T>,
}

impl<T: Summed> Accumulator for Sliding<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide::<T>(&values[0]) {
            let count = self.counts.entry(value).or_default();
            *count += 1;
            if *count == 1 {
                self.sum.add(value)?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide::<T>(&values[0]) {
            let count = self.counts.entry(value).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&value);
                self.sum.remove(value)?;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.sum.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(i128, u64)>()
    }
}
