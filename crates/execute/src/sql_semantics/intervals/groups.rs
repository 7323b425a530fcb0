//! Groups by intervals, and DISTINCT of them: intervals of the same length are one.
//!
//! A group has the length as its key, and shows the interval with most months, then with most days.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::max;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
};

use super::refusal::unsupported;

/// Groups rows by the lengths of intervals, and tells rows apart by them.
pub(super) fn by_lengths(
    plan: LogicalPlan,
    length: impl Fn(Expr) -> Expr,
) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, length),
        LogicalPlan::Distinct(Distinct::All(input))
            if input.schema().fields().iter().any(|field| is_interval(field.data_type())) =>
        {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, Vec::new())?, length)
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn grouped(
    aggregate: Aggregate,
    length: impl Fn(Expr) -> Expr,
) -> Result<Transformed<LogicalPlan>> {
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = &aggregate;
    let is_of =
        |group: &Expr| group.get_type(input.schema()).map(|data_type| is_interval(&data_type));
    if let [Expr::GroupingSet(sets)] = group_expr.as_slice() {
        for group in sets.distinct_expr() {
            if is_of(group)? {
                return Err(unsupported(
                    "GROUPING SETS, ROLLUP and CUBE of intervals are not supported",
                    "group by the seconds: extract(epoch FROM x)",
                ));
            }
        }
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut keys = Vec::new();
    let mut shown = Vec::new();
    let mut columns: Vec<Expr> = Vec::new();
    for (place, (group, (table, field))) in group_expr.iter().zip(schema.iter()).enumerate() {
        if is_of(group)? {
            let name = format!("interval {place}");
            keys.push(length(group.clone()).alias(format!("length {place}")));
            shown.push(max(group.clone()).alias(&name));
            let shown = Expr::Column(Column::new_unqualified(name));
            columns.push(shown.alias_qualified(table.cloned(), field.name()));
        } else {
            keys.push(group.clone());
            columns.push(Expr::from((table, field)));
        }
    }
    if shown.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    columns.extend(schema.iter().skip(group_expr.len()).map(Expr::from));
    let computed = aggr_expr.iter().cloned().chain(shown).collect();
    let grouped = Aggregate::try_new(Arc::clone(input), keys, computed)?;
    let plan =
        LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}
