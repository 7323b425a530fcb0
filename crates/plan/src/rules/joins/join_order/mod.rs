//! The order of joins, and how each of them runs.
//!
//! DataFusion joins tables in the order of the FROM clause. Here the inner joins that belong
//! together, a [`group::JoinGroup`], are joined in the order with the least cost ([`search`]). Then
//! each hash join gets its build side and its mode ([`modes`]).
//!
//! The rule takes the place of DataFusion's `JoinSelection`, whose estimates it does not use.

mod cost;
mod group;
mod modes;
mod rebuild;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::estimate::likely_tasks::likely_tasks;
use cost::Tasks;
use group::JoinGroup;

/// Orders joins and selects their modes. To be placed before distribution is enforced.
#[derive(Debug)]
pub(crate) struct JoinOrder {
    /// Bytes of files that are worth a task; 0 means a task for each partition.
    pub(crate) scan_task_bytes: u64,
}

impl PhysicalOptimizerRule for JoinOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let most = config.execution.target_partitions.max(1);
        let tasks = Tasks { most, likely: likely_tasks(&plan, most, self.scan_task_bytes) };
        let ordered = ordered(&plan, tasks)?;
        ordered.transform_up(|node| modes::select(node, tasks)).data()
    }

    fn name(&self) -> &str {
        "join_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan with all groups of joins in their best order.
fn ordered(node: &Arc<dyn ExecutionPlan>, tasks: Tasks) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(mut group) = JoinGroup::of(node) else {
        let children = node.children();
        let inputs = children.iter().map(|child| ordered(child, tasks));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        return with_inputs(node, inputs);
    };
    let mut changed = false;
    for relation in &mut group.relations {
        let below = ordered(relation, tasks)?;
        changed |= !Arc::ptr_eq(&below, relation);
        *relation = below;
    }
    match search::best(&group, tasks) {
        Some(order) => rebuild::plan(&group, &order, node),
        None if changed => rebuild::plan(&group, &group.written, node),
        None => Ok(Arc::clone(node)),
    }
}

fn with_inputs(
    node: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let same = inputs.iter().zip(node.children()).all(|(new, old)| Arc::ptr_eq(new, old));
    if same {
        return Ok(Arc::clone(node));
    }
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(inputs, anew)
}

/// Marks a node as replaced or kept.
fn transformed(
    node: Arc<dyn ExecutionPlan>,
    replacement: Option<Arc<dyn ExecutionPlan>>,
) -> Transformed<Arc<dyn ExecutionPlan>> {
    replacement.map_or_else(|| Transformed::no(node), Transformed::yes)
}
