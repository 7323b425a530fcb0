//! Gives joins forms that are right when each task runs one partition.
//!
//! A join that collects its build side shares it between partitions. In a process these also share
//! which build rows have found a match, so that one of them returns the rows without one. Tasks
//! share nothing: each would return these rows. Such a join is partitioned by its keys instead, or
//! its sides are swapped, or its other side is merged to one partition.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use snowmelt_execute::tree::count;

/// Chooses other forms before distribution and order are enforced. To be placed after the rule
/// that selects joins.
#[derive(Debug)]
pub(crate) struct IndependentJoins;

impl PhysicalOptimizerRule for IndependentJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(join) = node.downcast_ref::<HashJoinExec>()
                && *join.partition_mode() == PartitionMode::CollectLeft
                && returns_build_rows(join.join_type())
                && !join.null_aware
            {
                let partitioned =
                    join.builder().with_partition_mode(PartitionMode::Partitioned).build_exec()?;
                return Ok(Transformed::yes(partitioned));
            }
            if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
                && returns_build_rows(join.join_type())
                && *join.join_type() != JoinType::Full
            {
                return Ok(Transformed::yes(join.swap_inputs()?));
            }
            Ok(Transformed::no(node))
        })
        .data()
    }

    fn name(&self) -> &str {
        "independent_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Merges the other side of each join that shares its build side and returns rows of it: a
/// null-aware anti join, or a full join without keys.
pub(crate) fn merge_shared(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let shared = match (node.downcast_ref::<HashJoinExec>(), node.downcast_ref()) {
            (Some(join), _) if *join.partition_mode() == PartitionMode::CollectLeft => {
                returns_build_rows(join.join_type()) || join.null_aware
            }
            (_, Some(join)) => returns_build_rows(NestedLoopJoinExec::join_type(join)),
            _ => false,
        };
        let children = node.children();
        match shared && count(children[1]) > 1 {
            true => {
                let merged = Arc::new(CoalescePartitionsExec::new(Arc::clone(children[1])));
                let children = vec![Arc::clone(children[0]), merged as _];
                let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(node.replace_children(children, anew)?))
            }
            false => Ok(Transformed::no(node)),
        }
    })
    .data()
}

/// True if a join returns rows of its build side, the left one, that found no match, or returns
/// each at most once.
pub(crate) fn returns_build_rows(join: &JoinType) -> bool {
    match join {
        JoinType::Left
        | JoinType::Full
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark => true,
        JoinType::Inner
        | JoinType::Right
        | JoinType::RightSemi
        | JoinType::RightAnti
        | JoinType::RightMark => false,
    }
}
