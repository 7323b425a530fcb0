//! The sum of all rows, or of the rows of a sliding window.

use std::marker::PhantomData;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::scalar::ScalarValue;

use super::{Summed, narrow, partial_type, too_large};

pub(super) fn accumulator<T: Summed>(data_type: DataType) -> Box<dyn Accumulator> {
    Box::new(SumRows::<T>::new(data_type))
}

#[derive(Debug)]
pub(super) struct SumRows<T> {
    sum: i128,
    /// Number of values in the sum, which is null without values.
    values: u64,
    data_type: DataType,
    of: PhantomData<T>,
}

impl<T: Summed> SumRows<T> {
    pub(super) fn new(data_type: DataType) -> Self {
        Self { sum: 0, values: 0, data_type, of: PhantomData }
    }

    pub(super) fn add(&mut self, value: i128) -> Result<()> {
        let sum = self.sum.checked_add(value);
        self.sum = sum.ok_or_else(|| too_large(&self.data_type))?;
        self.values += 1;
        Ok(())
    }

    pub(super) fn remove(&mut self, value: i128) -> Result<()> {
        let sum = self.sum.checked_sub(value);
        self.sum = sum.ok_or_else(|| too_large(&self.data_type))?;
        self.values = self.values.saturating_sub(1);
        Ok(())
    }
}

/// The non-null values as 128-bit numbers.
pub(super) fn wide<T: Summed>(array: &ArrayRef) -> impl Iterator<Item = i128> + '_ {
    let array = array.as_primitive::<T>();
    // Most columns have no nulls and need no check of each value.
    let all = (array.null_count() == 0).then(|| array.values().iter().copied());
    let some = (array.null_count() > 0).then(|| array.iter().flatten());
    all.into_iter().flatten().chain(some.into_iter().flatten()).map(Into::into)
}

impl<T: Summed> Accumulator for SumRows<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        wide::<T>(&values[0]).try_for_each(|value| self.add(value))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        wide::<Decimal128Type>(&states[0]).try_for_each(|partial| self.add(partial))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        wide::<T>(&values[0]).try_for_each(|value| self.remove(value))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let partial = (self.values > 0).then_some(self.sum);
        let partial_type = partial_type(&self.data_type);
        Ok(vec![ScalarValue::new_primitive::<Decimal128Type>(partial, &partial_type)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = match self.values {
            0 => None,
            _ => Some(narrow::<T>(self.sum, &self.data_type)?),
        };
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
