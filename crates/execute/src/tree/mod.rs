//! Plans as trees of operators: nodes, their children, and the leaves that a partition reads. And
//! methods that operators have alike.

mod leaves;
mod methods;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

pub use leaves::{count, file_scan, is_partition_wise, of_union, visit, visit_scans};

/// A node of a physical plan, with all that is below it.
pub type PlanNode = Arc<dyn ExecutionPlan>;

/// Identifies a node for as long as its plan lives.
pub fn address(node: &PlanNode) -> usize {
    Arc::as_ptr(node).cast::<()>() as usize
}

/// Returns the same operator over other inputs.
pub fn with_children(node: &PlanNode, children: Vec<PlanNode>) -> Result<PlanNode> {
    let same = node.children().into_iter().zip(&children).all(|(a, b)| Arc::ptr_eq(a, b));
    if same {
        return Ok(Arc::clone(node));
    }
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(children, anew)
}
