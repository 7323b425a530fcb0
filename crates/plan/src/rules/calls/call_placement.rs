//! Calls stay above operators that drop rows.
//!
//! DataFusion moves a projection that has fewer columns than its input below filters, sorts and
//! joins, and into scans, whatever it computes. A call would then be made for rows that are dropped
//! afterwards, on which it may fail, or for all rows instead of the first ten. And it moves a
//! condition on a column that a projection computes into a filter below the projection, where the
//! call is made a second time.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, try_embed_projection};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use snowmelt_execute::udf;

use crate::operators::PlanningOnlyExec;

/// A rule of DataFusion, which moves nothing through the input of a projection with calls.
#[derive(Debug)]
pub(crate) struct KeepCallsAbove(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl KeepCallsAbove {
    /// Puts itself around the rules that move projections and conditions.
    pub(crate) fn within(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        let projections = ProjectionPushdown::new();
        let conditions = FilterPushdown::new();
        let names = [projections.name(), conditions.name()];
        for rule in rules.iter_mut().filter(|rule| names.contains(&rule.name())) {
            *rule = Arc::new(Self(Arc::clone(rule)));
        }
    }
}

impl PhysicalOptimizerRule for KeepCallsAbove {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let moved = self.0.optimize(guarded(plan, false)?, config)?;
        PlanningOnlyExec::uncovered(moved)?.transform_up(narrowed).data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Hides what is below each projection with calls, and below those that it may be merged with.
fn guarded(node: Arc<dyn ExecutionPlan>, below_calls: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_projection = node.is::<ProjectionExec>();
    let calls = is_projection && (below_calls || has_calls(&node)?);
    let children = node.children().into_iter().cloned();
    let children = children.map(|child| guarded(child, calls)).collect::<Result<Vec<_>>>()?;
    let node = match children.is_empty() {
        true => node,
        false => {
            let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(children, anew)?
        }
    };
    Ok(match below_calls && !is_projection {
        true => PlanningOnlyExec::around(node),
        false => node,
    })
}

fn has_calls(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    Ok(!udf::called_by(node)?.is_empty())
}

/// A filter below a projection with calls returns only the columns that the projection reads.
fn narrowed(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>()
        && let Some(filter) = projection.input().downcast_ref::<FilterExec>()
        && filter.projection().is_none()
        && has_calls(&node)?
        && let Some(narrower) = try_embed_projection(projection, filter)?
    {
        return Ok(Transformed::yes(narrower));
    }
    Ok(Transformed::no(node))
}
