//! The part of the rows that a condition keeps.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    self, BinaryExpr, CastExpr, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::split_conjunction;

use super::column::{ColumnEstimate, number};

/// The part of the rows that a comparison of unknown values keeps.
const COMPARISON: f64 = 1.0 / 3.0;
/// The part of the rows that a comparison of a computed value, such as a sum, with a number keeps:
/// usually the query looks for few groups that stand out.
const OUTSTANDING: f64 = 0.05;
/// The part of the rows that a pattern of LIKE keeps.
const PATTERN: f64 = 0.1;
/// The part of the rows that a condition of another kind keeps.
const OTHER: f64 = 0.25;
/// No condition is assumed to keep less than this.
const LEAST: f64 = 1e-6;

type Expr = Arc<dyn PhysicalExpr>;

/// The part of the rows that a condition keeps. Conditions on different columns are assumed to be
/// independent.
pub(crate) fn selectivity(condition: &Expr, columns: &[ColumnEstimate]) -> f64 {
    let mut kept = 1.0;
    let mut ranges: HashMap<usize, (f64, f64)> = HashMap::new();
    for part in split_conjunction(condition) {
        match limit(part, columns) {
            // Two limits of one column are a range, not two conditions.
            Some((column, least, most)) => {
                let range = ranges.entry(column).or_insert((f64::MIN, f64::MAX));
                *range = (range.0.max(least), range.1.min(most));
            }
            None => kept *= of_part(part, columns),
        }
    }
    let of_ranges = ranges
        .into_iter()
        .map(|(column, (least, most))| part_of_range(&columns[column], least, most));
    (kept * of_ranges.product::<f64>()).clamp(LEAST, 1.0)
}

/// A comparison of a column with a number, as the column and the limits that it sets.
fn limit(part: &Expr, columns: &[ColumnEstimate]) -> Option<(usize, f64, f64)> {
    let binary = part.downcast_ref::<BinaryExpr>()?;
    let (column, value, operator) = match (column(binary.left()), literal(binary.right())) {
        (Some(column), Some(value)) => (column, value, *binary.op()),
        _ => (column(binary.right())?, literal(binary.left())?, binary.op().swap()?),
    };
    columns.get(column)?.range?;
    match operator {
        Operator::Lt | Operator::LtEq => Some((column, f64::MIN, value)),
        Operator::Gt | Operator::GtEq => Some((column, value, f64::MAX)),
        _ => None,
    }
}

fn part_of_range(column: &ColumnEstimate, least: f64, most: f64) -> f64 {
    let Some((first, last)) = column.range else { return COMPARISON };
    let covered = most.min(last) - least.max(first);
    match (last - first, covered) {
        (_, covered) if covered < 0.0 => LEAST,
        (all, _) if all <= 0.0 => 1.0,
        // Limits that are equal keep one value.
        (all, covered) => (covered / all).max(1.0 / column.distinct.max(1.0)).min(1.0),
    }
}

fn of_part(part: &Expr, columns: &[ColumnEstimate]) -> f64 {
    if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
        return of_binary(binary, columns);
    }
    if let Some(not) = part.downcast_ref::<NotExpr>() {
        return 1.0 - selectivity(not.arg(), columns);
    }
    if let Some(list) = part.downcast_ref::<InListExpr>() {
        let each = equals(column(list.expr()), columns);
        let kept = (each * list.list().len() as f64).min(1.0);
        return if list.negated() { 1.0 - kept } else { kept };
    }
    if let Some(like) = part.downcast_ref::<LikeExpr>() {
        return if like.negated() { 1.0 - PATTERN } else { PATTERN };
    }
    let nulls = |expr: &Expr| column(expr).and_then(|column| Some(columns.get(column)?.nulls));
    if let Some(null) = part.downcast_ref::<IsNullExpr>() {
        return nulls(null.arg()).unwrap_or(PATTERN);
    }
    if let Some(null) = part.downcast_ref::<IsNotNullExpr>() {
        return 1.0 - nulls(null.arg()).unwrap_or(PATTERN);
    }
    // A filter that a join fills while it runs is no condition yet.
    if part.is::<expressions::DynamicFilterPhysicalExpr>() { 1.0 } else { OTHER }
}

fn of_binary(binary: &BinaryExpr, columns: &[ColumnEstimate]) -> f64 {
    let left = binary.left();
    let right = binary.right();
    match binary.op() {
        Operator::And => selectivity(left, columns) * selectivity(right, columns),
        Operator::Or => {
            let left = selectivity(left, columns);
            let right = selectivity(right, columns);
            left + right - left * right
        }
        Operator::Eq | Operator::IsNotDistinctFrom => match (column(left), column(right)) {
            (Some(one), Some(other)) => {
                equals(Some(one), columns).min(equals(Some(other), columns))
            }
            (one, other) => equals(one.or(other), columns),
        },
        Operator::NotEq | Operator::IsDistinctFrom => {
            1.0 - equals(column(left).or(column(right)), columns)
        }
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            let has_literal = left.is::<Literal>() || right.is::<Literal>();
            let computed = column(left).or(column(right)).and_then(|index| columns.get(index));
            match has_literal && computed.is_some_and(|column| column.is_computed) {
                true => OUTSTANDING,
                false => COMPARISON,
            }
        }
        Operator::LikeMatch | Operator::ILikeMatch => PATTERN,
        Operator::NotLikeMatch | Operator::NotILikeMatch => 1.0 - PATTERN,
        _ => OTHER,
    }
}

/// The part of the rows with one value.
fn equals(column: Option<usize>, columns: &[ColumnEstimate]) -> f64 {
    let found = column.and_then(|column| columns.get(column));
    found.map_or(PATTERN, |column| 1.0 / column.distinct.max(1.0))
}

/// The column of an expression that is a column or a cast of one.
pub(crate) fn column(expr: &Expr) -> Option<usize> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return column(cast.expr());
    }
    expr.downcast_ref::<expressions::Column>().map(expressions::Column::index)
}

fn literal(expr: &Expr) -> Option<f64> {
    expr.downcast_ref::<Literal>().and_then(|literal| number(literal.value()))
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{binary, col, in_list, lit};

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    /// `a` has the values 0 to 99, `b` is unknown.
    fn kept(condition: impl Fn(&Schema) -> Expr) -> f64 {
        let field = |name| Field::new(name, DataType::Int64, true);
        let schema = Schema::new(vec![field("a"), field("b")]);
        let a = ColumnEstimate {
            distinct: 100.0,
            range: Some((0.0, 99.0)),
            nulls: 0.0,
            width: 8.0,
            is_computed: false,
        };
        let b = ColumnEstimate { range: None, distinct: 5.0, ..a.clone() };
        selectivity(&condition(&schema), &[a, b])
    }

    fn compared(name: &str, operator: Operator, value: i64, schema: &Schema) -> Expr {
        binary(col(name, schema).unwrap(), operator, lit(value), schema).unwrap()
    }

    #[test]
    fn two_limits_of_a_column_are_a_range() {
        let range = kept(|schema| {
            let least = compared("a", Operator::GtEq, 90, schema);
            let most = compared("a", Operator::Lt, 95, schema);
            binary(least, Operator::And, most, schema).unwrap()
        });
        assert!((0.03..0.08).contains(&range), "{range}");
        let beyond = kept(|schema| compared("a", Operator::Gt, 200, schema));
        assert!(beyond <= LEAST);
    }

    #[test]
    fn an_equality_keeps_one_value() {
        assert!((kept(|schema| compared("b", Operator::Eq, 7, schema)) - 0.2).abs() < 1e-9);
        let two = kept(|schema| {
            let values = vec![lit(1_i64), lit(2_i64)];
            in_list(col("b", schema).unwrap(), values, &false, schema).unwrap()
        });
        assert!((two - 0.4).abs() < 1e-9, "{two}");
        let other = kept(|_| Arc::new(Literal::new(ScalarValue::Boolean(Some(true)))));
        assert!((other - OTHER).abs() < 1e-9);
    }
}
