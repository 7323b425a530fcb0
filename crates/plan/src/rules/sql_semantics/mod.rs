//! Changes to logical plans whose answers would differ from SQL, because DataFusion plans them
//! without regard to duplicates, nulls, repeated keys or the rows of subqueries. They are made before
//! the first rule of the optimiser, but for the keys of null-safe joins, which are made after the
//! last.

mod asof_join;
mod derived_tables;
mod guards;
mod lateral;
mod nested_extremes;
mod null_in;
mod null_safe;
mod outer_rows;
mod outer_shape;
mod per_key;
mod set_operations;
mod subquery_values;
mod unnest_keys;

use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;

pub(crate) use null_safe::{PlainKeys, with_null_safe_keys};

/// A plan with the answer that SQL defines.
pub(crate) fn exact(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = lateral::join_lateral(asof_join::join_nearest(plan)?)?;
    let plan = derived_tables::without_names(unnest_keys::forget_keys(plan)?)?;
    let plan = outer_rows::for_each_outer_row(plan)?;
    let plan = nested_extremes::by_order(guards::respect_guards(plan)?)?;
    let plan = null_in::respect_nulls(set_operations::count_duplicates(plan)?)?;
    per_key::by_key(subquery_values::as_values(plan)?)
}
