//! Multiples of intervals: `interval '1 day' * 2`, `(b - a) / 2`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::column_function::{Plain, wrong};

const TIMES: &str = "interval_times";
const DIVIDED: &str = "interval_divided";
const DAYS_OF_MONTH: f64 = 30.0;
const SECONDS_OF_DAY: f64 = 86_400.0;

pub(super) fn all() -> [Plain; 2] {
    [
        Plain::new(TIMES, (2, 2), returned, |columns, to| {
            multiples(columns, to, IntervalOperation::Times)
        }),
        Plain::new(DIVIDED, (2, 2), returned, |columns, to| {
            multiples(columns, to, IntervalOperation::Divided)
        }),
    ]
}

fn returned(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of @ DataType::Duration(_), _] => Ok(of.clone()),
        [DataType::Interval(_), _] => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        _ => plan_err!("`{TIMES}` takes an interval and a number"),
    }
}

#[derive(Clone, Copy)]
enum IntervalOperation {
    Times,
    Divided,
}

/// The number by which an interval is multiplied or divided.
#[derive(Clone, Copy)]
enum Factor {
    Whole(i64),
    Real(f64),
}

impl Factor {
    #[expect(clippy::cast_precision_loss, reason = "only where the result is a fraction anyway")]
    fn real(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }
}

fn multiples(
    columns: &[ArrayRef],
    to: &DataType,
    operation: IntervalOperation,
) -> Result<ArrayRef> {
    let [values, by] = columns else { return plan_err!("`{TIMES}` takes two arguments") };
    let by = factors(by)?;
    if matches!(operation, IntervalOperation::Divided) && divides_by_zero(values, &by) {
        return Err(DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None));
    }
    match to {
        DataType::Duration(TimeUnit::Second) => {
            each::<DurationSecondType>(values, &by, |value, by| count(operation, value, by))
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            each::<DurationMillisecondType>(values, &by, |value, by| count(operation, value, by))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            each::<DurationMicrosecondType>(values, &by, |value, by| count(operation, value, by))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            each::<DurationNanosecondType>(values, &by, |value, by| {
                nanos(operation, value, by, 0.0)
            })
        }
        _ => {
            let wide = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            each::<IntervalMonthDayNanoType>(&wide, &by, |value, by| multiple(operation, value, by))
        }
    }
}

fn factors(by: &ArrayRef) -> Result<Vec<Option<Factor>>> {
    if by.data_type().is_signed_integer() {
        let whole = cast(by, &DataType::Int64)?;
        return Ok(whole
            .as_primitive::<Int64Type>()
            .iter()
            .map(|by| by.map(Factor::Whole))
            .collect());
    }
    let real = cast(by, &DataType::Float64)?;
    Ok(real.as_primitive::<Float64Type>().iter().map(|by| by.map(Factor::Real)).collect())
}

fn divides_by_zero(values: &ArrayRef, by: &[Option<Factor>]) -> bool {
    let is_zero = |by: &Option<Factor>| by.is_some_and(|by| by.real() == 0.0);
    by.iter().enumerate().any(|(row, by)| values.is_valid(row) && is_zero(by))
}

fn each<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    by: &[Option<Factor>],
    multiple: impl Fn(T::Native, Factor) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let too_long = || wrong("a multiple of an interval is too long".into(), "use a smaller factor");
    let pairs = values.as_primitive::<T>().iter().zip(by);
    let multiples = pairs.map(|pair| match pair {
        (Some(value), Some(by)) => multiple(value, *by).ok_or_else(too_long).map(Some),
        _ => Ok(None),
    });
    let multiples: PrimitiveArray<T> = multiples.collect::<Result<_>>()?;
    Ok(Arc::new(multiples))
}

/// Multiplies or divides an interval as PostgreSQL: a fraction of a month becomes days, and a
/// fraction of a day becomes hours, minutes and seconds. These are rounded to a millionth, and
/// seconds of a whole day become a day.
fn multiple(
    operation: IntervalOperation,
    of: IntervalMonthDayNano,
    by: Factor,
) -> Option<IntervalMonthDayNano> {
    if let (IntervalOperation::Times, Factor::Whole(by)) = (operation, by) {
        let small = |part: i32| i32::try_from(i64::from(part).checked_mul(by)?).ok();
        let nanos = of.nanoseconds.checked_mul(by)?;
        return Some(IntervalMonthDayNano::new(small(of.months)?, small(of.days)?, nanos));
    }
    let part = |part: i32| applied(operation, f64::from(part), by);
    let months = part(of.months);
    let days = part(of.days);
    let days_of_month = to_millionth(months.fract() * DAYS_OF_MONTH);
    let seconds = to_millionth((days.fract() + days_of_month.fract()) * SECONDS_OF_DAY);
    let whole_days = (seconds / SECONDS_OF_DAY).trunc();
    let days = days.trunc() + days_of_month.trunc() + whole_days;
    let seconds = seconds - whole_days * SECONDS_OF_DAY;
    let small = |number: f64| i32::try_from(whole(number)?).ok();
    let nanos = nanos(operation, of.nanoseconds, by, seconds)?;
    Some(IntervalMonthDayNano::new(small(months.trunc())?, small(days)?, nanos))
}

fn to_millionth(number: f64) -> f64 {
    (number * 1e6).round_ties_even() / 1e6
}

fn applied(operation: IntervalOperation, value: f64, by: Factor) -> f64 {
    match operation {
        IntervalOperation::Times => value * by.real(),
        IntervalOperation::Divided => value / by.real(),
    }
}

/// Multiplies or divides a number of units. `None` if the result does not fit.
#[expect(clippy::cast_precision_loss, reason = "a double has 53 bits, 285 years in microseconds")]
fn count(operation: IntervalOperation, value: i64, by: Factor) -> Option<i64> {
    match (operation, by) {
        (IntervalOperation::Times, Factor::Whole(by)) => value.checked_mul(by),
        _ => whole(applied(operation, value as f64, by)),
    }
}

/// Multiplies or divides a number of nanoseconds, and adds seconds. A number with more digits than
/// a double has is rounded to whole microseconds, as in PostgreSQL.
#[expect(clippy::cast_precision_loss, reason = "rounded to what a double has")]
fn nanos(operation: IntervalOperation, value: i64, by: Factor, seconds: f64) -> Option<i64> {
    const DIGITS: f64 = 9e15;
    if let (IntervalOperation::Times, Factor::Whole(by)) = (operation, by) {
        return value.checked_mul(by);
    }
    let nanos = applied(operation, value as f64, by) + seconds * 1e9;
    match nanos.abs() < DIGITS {
        true => whole(nanos),
        false => {
            let micros = applied(operation, value as f64 / 1e3, by) + seconds * 1e6;
            whole(micros)?.checked_mul(1_000)
        }
    }
}

/// The nearest whole number; `None` if it is too large.
#[expect(clippy::cast_possible_truncation, reason = "the number is within the bounds")]
fn whole(number: f64) -> Option<i64> {
    const BOUND: f64 = 9.2e18;
    (number.abs() < BOUND).then(|| number.round_ties_even() as i64)
}

/// Plans the operators, for which DataFusion has no types.
#[derive(Debug)]
pub struct Multiples {
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
        let left = &expr.left;
        let right = &expr.right;
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

    fn of(months: i32, days: i32, nanos: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanos)
    }

    fn times(of: IntervalMonthDayNano, by: f64) -> Option<IntervalMonthDayNano> {
        multiple(IntervalOperation::Times, of, Factor::Real(by))
    }

    /// The answers are PostgreSQL's.
    #[test]
    fn parts_of_months_and_days_become_smaller_units() {
        const HOUR: i64 = 3_600_000_000_000;
        assert_eq!(times(of(1, 0, 0), 1.5), Some(of(1, 15, 0)));
        assert_eq!(times(of(1, 0, 0), 2.3), Some(of(2, 9, 0)));
        assert_eq!(times(of(12, 0, 0), 0.7), Some(of(8, 12, 0)));
        assert_eq!(times(of(0, 1, 0), 0.5), Some(of(0, 0, 12 * HOUR)));
        assert_eq!(times(of(0, 1, 5), -2.0), Some(of(0, -2, -10)));
        let divided = |of, by| multiple(IntervalOperation::Divided, of, Factor::Whole(by));
        assert_eq!(divided(of(49, 0, 0), 49), Some(of(1, 0, 0)));
        assert_eq!(divided(of(0, 49, 0), 49), Some(of(0, 1, 0)));
        assert_eq!(divided(of(0, 0, HOUR), 2), Some(of(0, 0, HOUR / 2)));
    }

    #[test]
    fn large_multiples_are_exact_or_refused() {
        let by = |by| multiple(IntervalOperation::Times, of(0, 0, 1_000_000), Factor::Whole(by));
        assert_eq!(by(1_700_000_000_457), Some(of(0, 0, 1_700_000_000_457_000_000)));
        assert_eq!(by(i64::MAX), None);
        let real = times(of(0, 0, 1_000_000), 1_700_000_000_457.0);
        assert_eq!(real, Some(of(0, 0, 1_700_000_000_457_000_000)));
        assert_eq!(times(of(i32::MAX, 0, 0), 2.0), None);
        assert_eq!(times(of(0, 0, i64::MAX), 2.0), None);
        assert_eq!(times(of(0, 1, 0), f64::NAN), None);
    }
}
