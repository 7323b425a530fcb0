//! `avg` of decimals, which rounds where DataFusion's truncates.
//!
//! DataFusion's accumulators add and count. Here the average is computed from their partial state,
//! which is the count and the sum.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, UInt64Array,
};
use arrow::compute::sum_checked;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal256Type, FieldRef, UInt64Type};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::scalar::ScalarValue;

use super::quotients::{quotients, widened};
use super::sum::moving_floats::{self, FrameResult};

/// DataFusion's `avg`, with a rounded result for decimals.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct RoundedAverage {
    inner: Avg,
}

impl AggregateUDFImpl for RoundedAverage {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_type().clone();
        let is_distinct = args.is_distinct;
        let inner = self.inner.accumulator(args)?;
        Ok(match data_type.is_decimal() {
            true => Box::new(AverageRows { inner, data_type, is_distinct }),
            false => inner,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_type().clone();
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(match data_type.is_decimal() {
            true => Box::new(AverageGroups { inner, data_type }),
            false => inner,
        })
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match !args.is_distinct && *args.return_type() == DataType::Float64 {
            true => Ok(moving_floats::accumulator(FrameResult::Average)),
            false => self.accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The averages of sums by their counts; null where nothing was counted.
pub(crate) fn averages(
    counts: &ArrayRef,
    sums: &ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let counts = counts.as_primitive::<UInt64Type>();
    let counted: Decimal128Array =
        counts.iter().map(|count| count.filter(|count| *count > 0).map(i128::from)).collect();
    let counted = counted.with_data_type(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
    quotients(sums, &(Arc::new(counted) as ArrayRef), data_type, "an average")
}

/// The average of all rows, or of the rows of a window.
struct AverageRows {
    inner: Box<dyn Accumulator>,
    data_type: DataType,
    is_distinct: bool,
}

impl fmt::Debug for AverageRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AverageRows").field("data_type", &self.data_type).finish_non_exhaustive()
    }
}

impl Accumulator for AverageRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.inner.state()?;
        let (counts, sums) = match (self.is_distinct, state.as_slice()) {
            (false, [count, sum]) => (count.to_array()?, sum.to_array()?),
            (true, [ScalarValue::List(values)]) => summed(&values.value(0))?,
            _ => return internal_err!("an average has another state"),
        };
        ScalarValue::try_from_array(&averages(&counts, &sums, &self.data_type)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

/// The count and the sum of distinct values.
fn summed(values: &ArrayRef) -> Result<(ArrayRef, ArrayRef)> {
    let count = UInt64Array::from(vec![(values.len() - values.null_count()) as u64]);
    let wide = widened(values)?;
    let sum = sum_checked(wide.as_primitive::<Decimal256Type>())?;
    let sum = Decimal256Array::from(vec![sum]).with_data_type(wide.data_type().clone());
    Ok((Arc::new(count), Arc::new(sum)))
}

/// The averages of many groups.
struct AverageGroups {
    inner: Box<dyn GroupsAccumulator>,
    data_type: DataType,
}

impl GroupsAccumulator for AverageGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(values, group_indices, filter, groups)
    }

    fn merge_batch(
        &mut self,
        partials: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(partials, group_indices, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        match self.inner.state(emit_to)?.as_slice() {
            [counts, sums] => averages(counts, sums, &self.data_type),
            _ => internal_err!("an average has another state"),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
