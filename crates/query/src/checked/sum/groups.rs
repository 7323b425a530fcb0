//! The sums of many groups at once.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;

use super::{Summed, narrow, too_large};

pub(super) fn accumulator<T: Summed>(data_type: DataType) -> Box<dyn GroupsAccumulator> {
    Box::new(Groups::<T> { sums: Vec::new(), nulls: NullState::new(), data_type, of: PhantomData })
}

struct Groups<T> {
    sums: Vec<i128>,
    nulls: NullState,
    data_type: DataType,
    of: PhantomData<T>,
}

impl<T: Summed> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.sums.resize(groups, 0);
        let (sums, mut too_far) = (&mut self.sums, false);
        let values = values[0].as_primitive::<T>();
        self.nulls.accumulate(group_indices, values, filter, groups, |group, value| {
            let (sum, over) = sums[group].overflowing_add(value.into());
            sums[group] = sum;
            too_far |= over;
        });
        if too_far { Err(too_large(&self.data_type)) } else { Ok(()) }
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> Result<()> {
        self.update_batch(values, group_indices, None, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums).into_iter();
        let sums = sums.map(|sum| narrow::<T>(sum, &self.data_type)).collect::<Result<Vec<_>>>()?;
        let sums = PrimitiveArray::<T>::new(sums.into(), self.nulls.build(emit_to));
        Ok(Arc::new(sums.with_data_type(self.data_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let nulls = filtered_null_mask(filter, &values[0]);
        let values = values[0].as_primitive::<T>().values().clone();
        let states = PrimitiveArray::<T>::new(values, nulls);
        Ok(vec![Arc::new(states.with_data_type(self.data_type.clone()))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}
