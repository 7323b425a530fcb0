//! Conditions that call functions stay on their side of a join.
//!
//! Where two columns are joined, DataFusion infers a condition on one for the other:
//! `a.k = b.k AND f(a.k) > 3` becomes `f(b.k) > 3` for `b`, too. For a call that is wrong: it is made
//! for the rows of both tables, and a function that is not deterministic may give another value for
//! the same key, so that rows are lost.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::columns::filtered;

/// DataFusion's rule, which infers no volatile condition.
#[derive(Debug, Default)]
pub(crate) struct PushDownConditions(PushDownFilter);

impl OptimizerRule for PushDownConditions {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let plan = merged(plan);
        match conditions_of_join(&plan) {
            Some((join, above)) => self.in_two_steps(join, above, config),
            None => self.0.rewrite(plan, config),
        }
    }
}

impl PushDownConditions {
    /// Pushes first the conditions that may be inferred, then the volatile ones.
    fn in_two_steps(
        &self,
        join: Join,
        above: Vec<Expr>,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let whole = filtered(LogicalPlan::Join(join.clone()), above.clone());
        let on = join.filter.clone().map_or_else(Vec::new, split_conjunction_owned);
        let is_volatile = |condition: &Expr| condition.is_volatile();
        let (volatile_above, above): (Vec<_>, Vec<_>) = above.into_iter().partition(is_volatile);
        let (volatile_on, on): (Vec<_>, Vec<_>) = on.into_iter().partition(is_volatile);
        let null_aware = join.null_aware;
        let first = Join { filter: conjunction(on), ..join };
        let first = self.0.rewrite(filtered(LogicalPlan::Join(first), above), config)?;
        let is_moved = first.transformed;
        // It is always a join, with or without a filter.
        let Some((mut join, mut above)) = parts(first.data) else {
            return Ok(Transformed::no(whole));
        };
        let on = join.filter.take().map_or_else(Vec::new, split_conjunction_owned);
        join.filter = conjunction(on.into_iter().chain(volatile_on));
        above.extend(volatile_above);
        // Nothing is inferred for such a join.
        join.null_aware = true;
        let second = self.0.rewrite(filtered(LogicalPlan::Join(join), above), config)?;
        let mut second = second.map_data(|plan| Ok(with_null_awareness(plan, null_aware)))?;
        second.transformed |= is_moved;
        Ok(second)
    }
}

/// A filter over filters as one: DataFusion's rule merges them, and goes on by itself.
fn merged(plan: LogicalPlan) -> LogicalPlan {
    let LogicalPlan::Filter(mut filter) = plan else { return plan };
    while let LogicalPlan::Filter(below) = filter.input.as_ref() {
        if !filter.predicate.is_volatile() && !below.predicate.is_volatile() {
            break;
        }
        let mut conditions = split_conjunction_owned(below.predicate.clone());
        for condition in split_conjunction_owned(filter.predicate) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        filter.predicate = conjunction(conditions).unwrap_or_else(|| below.predicate.clone());
        filter.input = Arc::clone(&below.input);
    }
    LogicalPlan::Filter(filter)
}

/// Divides a plan into a join with volatile conditions and the conditions above it. `None` for
/// other plans.
fn conditions_of_join(plan: &LogicalPlan) -> Option<(Join, Vec<Expr>)> {
    let (join, above) = match plan {
        LogicalPlan::Join(join) => (join, None),
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::Join(join) => (join, Some(&filter.predicate)),
            _ => return None,
        },
        _ => return None,
    };
    let is_volatile = above.into_iter().chain(&join.filter).any(Expr::is_volatile);
    let above = above.cloned().map_or_else(Vec::new, split_conjunction_owned);
    is_volatile.then(|| (join.clone(), above))
}

/// Divides the plan that DataFusion's rule makes of a join into the join and the conditions above
/// it.
fn parts(plan: LogicalPlan) -> Option<(Join, Vec<Expr>)> {
    match plan {
        LogicalPlan::Join(join) => Some((join, Vec::new())),
        LogicalPlan::Filter(filter) => match Arc::unwrap_or_clone(filter.input) {
            LogicalPlan::Join(join) => Some((join, split_conjunction_owned(filter.predicate))),
            _ => None,
        },
        _ => None,
    }
}

fn with_null_awareness(plan: LogicalPlan, null_aware: bool) -> LogicalPlan {
    match parts(plan.clone()) {
        Some((join, above)) => filtered(LogicalPlan::Join(Join { null_aware, ..join }), above),
        None => plan,
    }
}
