//! `sum` of integers and decimals: adds in 128 bits and checks the total when it is converted.
//!
//! Partial sums stay 128 bits wide until they are merged, so that only the total must fit.

mod distinct;
mod groups;
pub(super) mod moving_floats;
mod rows;

use std::fmt::Debug;

use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, FieldRef,
    Int64Type, UInt64Type,
};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::scalar::ScalarValue;

use super::overflow;
use moving_floats::FrameResult;

/// DataFusion's `sum`, with other accumulators for types whose sums would wrap.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CheckedSum {
    inner: Sum,
}

/// A type whose values are added in 128 bits.
trait Summed: ArrowPrimitiveType<Native: Into<i128> + TryFrom<i128>> + Send + Sync + Debug {}

impl Summed for Int64Type {}
impl Summed for UInt64Type {}
impl Summed for Decimal128Type {}

/// Converts a sum to its type.
fn narrow<T: Summed>(sum: i128, data_type: &DataType) -> Result<T::Native> {
    let fits = match data_type {
        DataType::Decimal128(precision, _) => {
            Decimal128Type::is_valid_decimal_precision(sum, *precision)
        }
        _ => true,
    };
    let narrow = T::Native::try_from(sum).ok().filter(|_| fits);
    narrow.ok_or_else(|| too_large(data_type))
}

/// The type of a partial sum: any 128-bit number, regardless of the precision.
fn partial_type(data_type: &DataType) -> DataType {
    let scale = if let DataType::Decimal128(_, scale) = data_type { *scale } else { 0 };
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
}

fn too_large(data_type: &DataType) -> datafusion::error::DataFusionError {
    overflow("a sum", data_type)
}

/// Calls a function for the type of a sum; `$other` for types that are not added here.
macro_rules! by_type {
    ($args:ident, $($make:ident)::+, $other:expr) => {{
        let data_type = $args.return_field.data_type().clone();
        match data_type {
            DataType::Int64 => Ok($($make)::+::<Int64Type>(data_type)),
            DataType::UInt64 => Ok($($make)::+::<UInt64Type>(data_type)),
            DataType::Decimal128(..) => Ok($($make)::+::<Decimal128Type>(data_type)),
            _ => $other,
        }
    }};
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => by_type!(args, distinct::accumulator, self.inner.accumulator(args)),
            false => by_type!(args, rows::accumulator, self.inner.accumulator(args)),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let data_type = args.return_type().clone();
        let is_wide =
            matches!(data_type, DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..))
                && !args.is_distinct;
        let fields = self.inner.state_fields(args)?.into_iter();
        let wide = |field: FieldRef| match is_wide {
            true => field.as_ref().clone().with_data_type(partial_type(&data_type)).into(),
            false => field,
        };
        Ok(fields.map(wide).collect())
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        by_type!(args, groups::accumulator, self.inner.create_groups_accumulator(args))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if !args.is_distinct && *args.return_field.data_type() == DataType::Float64 {
            return Ok(moving_floats::accumulator(FrameResult::Sum));
        }
        match args.is_distinct {
            true => by_type!(args, distinct::sliding, self.inner.create_sliding_accumulator(args)),
            false => by_type!(args, rows::accumulator, self.inner.create_sliding_accumulator(args)),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(function, arg, op, literal, arg_is_left)
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
