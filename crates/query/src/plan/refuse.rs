//! Refuses unsupported queries, and names the unsupported clause in terms of SQL.
//!
//! There is no exchange between workers yet, so a plan that needs one is refused here. Every other
//! plan is correct wherever it is cut, because the driver's part is a complete plan.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use crate::{Error, Result};

const JOIN_HINT: &str =
    "join the tables beforehand into one Parquet table, or query them one at a time";

/// Refuses clauses: the logical plan still has the structure of the SQL.
pub(super) fn check_logical(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        found = clause(node);
        Ok(stop_if(found.is_some()))
    })?;
    found.map_or(Ok(()), |what| Err(unsupported(what)))
}

fn clause(node: &LogicalPlan) -> Option<String> {
    match node {
        LogicalPlan::Join(join) => Some(match join.join_type {
            JoinType::LeftAnti | JoinType::RightAnti => "EXCEPT (an anti join)".to_owned(),
            JoinType::LeftSemi | JoinType::RightSemi => "INTERSECT (a semi join)".to_owned(),
            JoinType::Inner if join.on.is_empty() && join.filter.is_none() => {
                "a cross join".to_owned()
            }
            kind => format!("a join ({kind})"),
        }),
        LogicalPlan::RecursiveQuery(query) => {
            Some(format!("the recursive query `{}` (WITH RECURSIVE)", query.name))
        }
        node => node.expressions().iter().find_map(subquery),
    }
}

fn subquery(expression: &Expr) -> Option<String> {
    let mut found = None;
    let visited = expression.apply(|expr| {
        found = match expr {
            Expr::ScalarSubquery(_) => Some("a subquery as a value"),
            Expr::InSubquery(_) => Some("a subquery in IN (a semi join)"),
            Expr::Exists(_) => Some("a subquery in EXISTS (a semi join)"),
            Expr::SetComparison(_) => Some("a subquery in ANY or ALL (a semi join)"),
            _ => None,
        };
        Ok(stop_if(found.is_some()))
    });
    visited.ok().and(found).map(str::to_owned)
}

/// Refuses operators of the optimised plan that move rows between workers.
pub(super) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut found = None;
    plan.apply(|node| {
        found = operator(node);
        Ok(stop_if(found.is_some()))
    })?;
    found.map_or(Ok(()), |what| Err(unsupported(what)))
}

fn operator(node: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let name = node.name();
    if name.contains("Join") || name == "RecursiveQueryExec" || name == "ScalarSubqueryExec" {
        return Some(format!("the operator {name}"));
    }
    let exchange = node.downcast_ref::<RepartitionExec>()?;
    match exchange.partitioning() {
        Partitioning::Hash(..) => Some("an exchange (RepartitionExec by hash)".to_owned()),
        _ => None,
    }
}

fn stop_if(found: bool) -> TreeNodeRecursion {
    if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue }
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { what, hint: JOIN_HINT.to_owned() }
}
