//! Series of numbers and times without an order that a worker's plan would not have.
//!
//! DataFusion knows that the rows of `generate_series` are in order, and its codec forgets it: the
//! decoded plan would differ from the one that was cut.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// Makes series forget their order.
#[derive(Debug)]
pub(crate) struct ForgetOrder;

impl PhysicalOptimizerRule for ForgetOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<LazyMemoryExec>() {
            // Its own properties leave the order out, those of what is above it have it. An ordered
            // series has its only column.
            Some(series) if !node.equivalence_properties().oeq_class().is_empty() => {
                let generators = series.generators().clone();
                let plain = LazyMemoryExec::try_new(node.schema(), generators)?;
                Ok(Transformed::yes(Arc::new(plain)))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "forget_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
