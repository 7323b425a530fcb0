//! Joins by IS NOT DISTINCT FROM, whose equal nulls are partners.
//!
//! Whether nulls are equal is a property of a join's keys together. DataFusion makes a null-safe
//! condition the key of a join that has no other, but later moves keys from one join to another, or
//! adds keys to it, without regard to this. So the rules see such a condition as a filter, and only
//! the optimised plan has it as keys, of joins without others: then a hash finds the partners.

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's rule that finds the keys of joins, for those that nulls never equal.
#[derive(Debug, Default)]
pub(crate) struct PlainKeys(ExtractEquijoinPredicate);

impl OptimizerRule for PlainKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !may_be_null_safe(&plan) {
            return self.0.rewrite(plan, config);
        }
        let before = plan.clone();
        let found = self.0.rewrite(plan, config)?;
        Ok(if has_equal_nulls(&found.data) { Transformed::no(before) } else { found })
    }
}

/// Makes the null-safe conditions of joins without keys their keys.
pub(crate) fn with_null_safe_keys(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<LogicalPlan> {
    let rule = ExtractEquijoinPredicate::new();
    plan.transform_up(|node| match may_be_null_safe(&node) {
        true => rule.rewrite(node, config),
        false => Ok(Transformed::no(node)),
    })
    .data()
}

/// A join that has no keys, but a condition.
fn may_be_null_safe(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Join(join) = plan else { return false };
    join.on.is_empty() && join.filter.is_some() && !has_equal_nulls(plan)
}

fn has_equal_nulls(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Join(join) = plan else { return false };
    join.null_equality == NullEquality::NullEqualsNull
}
