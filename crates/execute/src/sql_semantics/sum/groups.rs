//! The sums of many groups.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::{Summed, narrow, partial_type, too_large};

pub(super) fn accumulator<T: Summed>(data_type: DataType) -> Box<dyn GroupsAccumulator> {
    Box::new(SumGroups::<T> {
        sums: Vec::new(),
        nulls: NullState::new(),
        data_type,
        of: PhantomData,
    })
}

struct SumGroups<T> {
    sums: Vec<i128>,
    nulls: NullState,
    data_type: DataType,
    of: PhantomData<T>,
}

impl<T> SumGroups<T> {
    /// Adds values or partial sums to the sums of their groups.
    fn add<A: Summed>(
        &mut self,
        values: &ArrayRef,
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.sums.resize(groups, 0);
        let sums = &mut self.sums;
        let mut overflowed = false;
        let values = values.as_primitive::<A>();
        self.nulls.accumulate(group_indices, values, filter, groups, |group, value| {
            let (sum, over) = sums[group].overflowing_add(value.into());
            sums[group] = sum;
            overflowed |= over;
        });
        if overflowed { Err(too_large(&self.data_type)) } else { Ok(()) }
    }

    fn partials(&self, sums: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
        let sums = PrimitiveArray::<Decimal128Type>::new(sums.into(), nulls);
        Arc::new(sums.with_data_type(partial_type(&self.data_type)))
    }
}

impl<T: Summed> GroupsAccumulator for SumGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.add::<T>(&values[0], group_indices, filter, groups)
    }

    fn merge_batch(
        &mut self,
        partials: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> Result<()> {
        self.add::<Decimal128Type>(&partials[0], group_indices, None, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums).into_iter();
        let sums = sums.map(|sum| narrow::<T>(sum, &self.data_type)).collect::<Result<Vec<_>>>()?;
        let sums = PrimitiveArray::<T>::new(sums.into(), self.nulls.build(emit_to));
        Ok(Arc::new(sums.with_data_type(self.data_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.nulls.build(emit_to);
        Ok(vec![self.partials(sums, nulls)])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let nulls = filtered_null_mask(filter, &values[0]);
        let values = values[0].as_primitive::<T>().values();
        Ok(vec![self.partials(values.iter().map(|value| (*value).into()).collect(), nulls)])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn partial_sums_are_wider_than_their_total() {
        let new = || accumulator::<Int64Type>(DataType::Int64);
        let array = |values: Vec<Option<i64>>| vec![Arc::new(Int64Array::from(values)) as ArrayRef];
        let mut up = new();
        let mut total = new();
        up.update_batch(&array(vec![Some(i64::MAX), Some(i64::MAX)]), &[0, 0], None, 1).unwrap();
        total.merge_batch(&up.state(EmitTo::All).unwrap(), &[0], 1).unwrap();
        // If partial sums would not reduce the rows, the values are passed on as partial sums.
        let filter = BooleanArray::from(vec![true, true, true, false]);
        let down = array(vec![Some(-i64::MAX), Some(-7), None, Some(9)]);
        let down = total.convert_to_state(&down, Some(&filter)).unwrap();
        assert_eq!(down[0].data_type(), &partial_type(&DataType::Int64));
        total.merge_batch(&down, &[0, 0, 1, 1], 2).unwrap();
        let sums = total.evaluate(EmitTo::All).unwrap();
        let expected = Int64Array::from(vec![Some(i64::MAX - 7), None]);
        assert_eq!(sums.as_primitive::<Int64Type>(), &expected);
    }
}
