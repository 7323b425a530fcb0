//! UNNEST repeats rows, and values that were unique before it are not after it.
//!
//! DataFusion keeps what it knows of the keys of the input: that a grouped column is unique, and
//! determines all others. It then leaves out DISTINCT, and other columns of GROUP BY and ORDER BY.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Projection, Unnest};
use datafusion::logical_expr::{Expr, LogicalPlan};
use snowmelt_execute::sql_semantics::repeated;

/// Makes UNNEST forget which columns of its input are keys.
pub(super) fn forget_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Unnest(unnest) => {
            let keys = keys(unnest.input.schema().functional_dependencies());
            match keys.is_empty() {
                true => Ok(Transformed::no(LogicalPlan::Unnest(unnest))),
                false => Ok(Transformed::yes(without_keys(unnest, &keys)?)),
            }
        }
        node => Ok(Transformed::no(node)),
    })
    .data()
}

/// The places of the columns that determine others.
fn keys(known: &FunctionalDependencies) -> BTreeSet<usize> {
    known.iter().flat_map(|one| one.source_indices.iter().copied()).collect()
}

fn without_keys(unnest: Unnest, keys: &BTreeSet<usize>) -> Result<LogicalPlan> {
    let columns = unnest.input.schema().columns().into_iter().enumerate();
    let columns = columns.map(|(place, column)| match keys.contains(&place) {
        true => {
            let Column { relation, name, .. } = column.clone();
            repeated(Expr::Column(column)).alias_qualified(relation, name)
        }
        false => Expr::Column(column),
    });
    let input = Projection::try_new(columns.collect(), unnest.input)?;
    let input = Arc::new(LogicalPlan::Projection(input));
    Ok(LogicalPlan::Unnest(Unnest::try_new(input, unnest.exec_columns, unnest.options)?))
}
