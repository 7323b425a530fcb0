//! Sums of a date and an interval, which are timestamps, as in PostgreSQL.
//!
//! In DataFusion these sums are dates, so that `date '2024-01-31' + interval '1 hour'` leaves out
//! the hour. Here
//! the date becomes a timestamp as soon as the sum is read. A comparison with a date, of sums with
//! whole days, is computed with dates after all: the answer is the same, and statistics of files,
//! which are dates, can contradict it.

use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use snowmelt_execute::sql_semantics::{is_comparison, replace_parts};

/// The type of a sum: a timestamp in microseconds, which have room for years far from 1970, too.
const SUM: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Reads sums of dates and intervals.
#[derive(Debug)]
pub(crate) struct DatesWithIntervals;

impl ExprPlanner for DatesWithIntervals {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        // The right side first: in a long sum, it is the short one.
        let of = |expr: &Expr| expr.get_type(schema).ok();
        let operator = match op {
            BinaryOperator::Plus => Operator::Plus,
            BinaryOperator::Minus => Operator::Minus,
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        let (left, right) = match of(&right) {
            Some(DataType::Interval(_)) if of(&left).is_some_and(|kind| is_date(&kind)) => {
                (timestamp(left), right)
            }
            Some(right_type)
                if operator == Operator::Plus
                    && is_date(&right_type)
                    && matches!(of(&left), Some(DataType::Interval(_))) =>
            {
                (left, timestamp(right))
            }
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        let sum = BinaryExpr::new(Box::new(left), operator, Box::new(right));
        Ok(PlannerResult::Planned(Expr::BinaryExpr(sum)))
    }
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32)
}

fn timestamp(date: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(date), SUM))
}

/// Computes comparisons of dates with such sums as comparisons of dates. Runs after type coercion.
#[derive(Debug)]
pub(crate) struct CompareDates;

impl AnalyzerRule for CompareDates {
    fn name(&self) -> &str {
        "compare_dates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            replace_parts(plan, |part, schema| Ok(with_dates(part, schema)))
        })
        .data()
    }
}

/// A comparison whose sides are all dates.
fn with_dates(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let date = |side: &Expr| as_date(side, schema).map(Box::new);
    let compared = match &expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            // A sum is always a cast in a calculation: what is neither is not looked at.
            let sides = [left, right];
            let pair = match sides.iter().any(|side| is_sum(side)) {
                true => date(left).zip(date(right)),
                false => None,
            };
            pair.map(|(left, right)| Expr::BinaryExpr(BinaryExpr { left, op: *op, right }))
        }
        Expr::Between(Between { expr, negated, low, high })
            if [expr, low, high].iter().any(|side| is_sum(side)) =>
        {
            let sides = date(expr).zip(date(low)).zip(date(high));
            sides.map(|((expr, low), high)| {
                Expr::Between(Between { expr, negated: *negated, low, high })
            })
        }
        Expr::InList(InList { expr, list, negated }) if list.iter().any(is_sum) => {
            let list: Option<Vec<Expr>> = list.iter().map(|one| as_date(one, schema)).collect();
            date(expr)
                .zip(list)
                .map(|(expr, list)| Expr::InList(InList { expr, list, negated: *negated }))
        }
        _ => None,
    };
    match compared {
        Some(compared) => Transformed::yes(compared),
        None => Transformed::no(expression),
    }
}

/// Whether a side may be such a sum: a calculation, or a cast of one to another unit.
fn is_sum(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Plus | Operator::Minus, .. }) => true,
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::BinaryExpr(_)),
        _ => false,
    }
}

/// The date of which an expression is the midnight.
fn as_date(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    match expr {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Timestamp(_, None)) => {
            match is_date(&cast.expr.get_type(schema).ok()?) {
                true => Some(cast.expr.as_ref().clone()),
                false => as_date(&cast.expr, schema),
            }
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus),
            right,
        }) => {
            let sum = |left: Expr, right: Expr| {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), *op, Box::new(right)))
            };
            match (has_whole_days(left), has_whole_days(right)) {
                (false, true) => Some(sum(as_date(left, schema)?, right.as_ref().clone())),
                (true, false) if *op == Operator::Plus => {
                    Some(sum(left.as_ref().clone(), as_date(right, schema)?))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether an expression is an interval of months and days.
fn has_whole_days(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
            let IntervalMonthDayNano { nanoseconds, .. } = interval;
            *nanoseconds == 0
        }
        Expr::Literal(ScalarValue::IntervalYearMonth(Some(_)), _) => true,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(interval)), _) => {
            interval.milliseconds == 0
        }
        _ => false,
    }
}
