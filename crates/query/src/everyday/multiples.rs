//! Multiples of intervals: `interval '1 day' * 2`, `(b - a) / 2`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::plain::{Plain, wrong};

const TIMES: &str = "interval_times";
const DIVIDED: &str = "interval_divided";
const DAYS_OF_MONTH: f64 = 30.0;
const NANOS_OF_DAY: f64 = 86_400e9;

pub(super) fn all() -> [Plain; 2] {
    [
        Plain::new(TIMES, (2, 2), returned, |columns, to| multiples(columns, to, |by| by)),
        Plain::new(DIVIDED, (2, 2), returned, |columns, to| multiples(columns, to, f64::recip)),
    ]
}

fn returned(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of @ DataType::Duration(_), _] => Ok(of.clone()),
        [DataType::Interval(_), _] => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        _ => plan_err!("`{TIMES}` takes an interval and a number"),
    }
}

fn multiples(columns: &[ArrayRef], to: &DataType, factor: fn(f64) -> f64) -> Result<ArrayRef> {
    let [values, by] = columns else { return plan_err!("`{TIMES}` takes two arguments") };
    let by = cast(by, &DataType::Float64)?;
    let by = by.as_primitive::<Float64Type>();
    if factor(0.0) != 0.0 && by.iter().flatten().any(|divisor| divisor == 0.0) {
        return Err(DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None));
    }
    let by: PrimitiveArray<Float64Type> = by.unary(factor);
    match to {
        DataType::Duration(TimeUnit::Second) => durations::<DurationSecondType>(values, &by),
        DataType::Duration(TimeUnit::Millisecond) => {
            durations::<DurationMillisecondType>(values, &by)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            durations::<DurationMicrosecondType>(values, &by)
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            durations::<DurationNanosecondType>(values, &by)
        }
        _ => {
            let wide = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            each::<IntervalMonthDayNanoType>(&wide, &by, multiple)
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 the factor is no exact number either")]
fn durations<T: ArrowPrimitiveType<Native = i64>>(
    values: &ArrayRef,
    by: &PrimitiveArray<Float64Type>,
) -> Result<ArrayRef> {
    each::<T>(values, by, |value, by| whole(value as f64 * by))
}

fn each<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    by: &PrimitiveArray<Float64Type>,
    multiple: impl Fn(T::Native, f64) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let too_long = || wrong("a multiple of an interval is too long".into(), "use a smaller factor");
    let pairs = values.as_primitive::<T>().iter().zip(by);
    let multiples = pairs.map(|pair| match pair {
        (Some(value), Some(by)) => multiple(value, by).ok_or_else(too_long).map(Some),
        _ => Ok(None),
    });
    let multiples: PrimitiveArray<T> = multiples.collect::<Result<_>>()?;
    Ok(Arc::new(multiples))
}

/// As in PostgreSQL, a part of a month is days, and a part of a day is hours, minutes and seconds.
#[expect(clippy::cast_precision_loss, reason = "intervals of 104 days and more lose nanoseconds")]
fn multiple(of: IntervalMonthDayNano, by: f64) -> Option<IntervalMonthDayNano> {
    let months = f64::from(of.months) * by;
    let days = f64::from(of.days) * by + months.fract() * DAYS_OF_MONTH;
    let nanos = of.nanoseconds as f64 * by + days.fract() * NANOS_OF_DAY;
    let small = |number: f64| i32::try_from(whole(number)?).ok();
    Some(IntervalMonthDayNano::new(small(months.trunc())?, small(days.trunc())?, whole(nanos)?))
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "the number is within the bounds")]
fn whole(number: f64) -> Option<i64> {
    const BOUND: f64 = 9.2e18;
    (number.abs() < BOUND).then(|| number.round() as i64)
}

/// Plans the operators, for which DataFusion has no types.
#[derive(Debug)]
pub(crate) struct Multiples {
    times: Arc<ScalarUDF>,
    divided: Arc<ScalarUDF>,
}

impl Default for Multiples {
    fn default() -> Self {
        let [times, divided] = all().map(|function| Arc::new(ScalarUDF::from(function)));
        Self { times, divided }
    }
}

impl ExprPlanner for Multiples {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_interval = |of: &Expr| {
            matches!(of.get_type(schema), Ok(DataType::Interval(_) | DataType::Duration(_)))
        };
        let is_number =
            |of: &Expr| of.get_type(schema).is_ok_and(|of| of.is_numeric() || of.is_null());
        let call = |function: &Arc<ScalarUDF>, of: &Expr, by: &Expr| {
            let args = vec![of.clone(), by.clone()];
            let call = ScalarFunction::new_udf(Arc::clone(function), args);
            Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
        };
        let (left, right) = (&expr.left, &expr.right);
        match expr.op {
            BinaryOperator::Multiply if is_interval(left) && is_number(right) => {
                call(&self.times, left, right)
            }
            BinaryOperator::Multiply if is_number(left) && is_interval(right) => {
                call(&self.times, right, left)
            }
            BinaryOperator::Divide if is_interval(left) && is_number(right) => {
                call(&self.divided, left, right)
            }
            _ => Ok(PlannerResult::Original(expr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_months_and_days_become_smaller_units() {
        let of = |months, days, nanos| IntervalMonthDayNano::new(months, days, nanos);
        assert_eq!(multiple(of(1, 0, 0), 1.5), Some(of(1, 15, 0)));
        assert_eq!(multiple(of(0, 1, 0), 0.5), Some(of(0, 0, 43_200_000_000_000)));
        assert_eq!(multiple(of(0, 1, 5), -2.0), Some(of(0, -2, -10)));
        assert_eq!(multiple(of(i32::MAX, 0, 0), 2.0), None);
        assert_eq!(multiple(of(0, 0, i64::MAX), 2.0), None);
        assert_eq!(multiple(of(0, 1, 0), f64::NAN), None);
    }
}
