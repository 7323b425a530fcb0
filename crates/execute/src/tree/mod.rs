//! Plans as trees of operators: nodes, their children, and the leaves that a partition reads. And
//! methods that operators have alike.

mod leaves;
mod methods;

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

pub use leaves::{count, file_scan, is_partition_wise, of_union, visit, visit_scans};

/// A node of a physical plan, with all that is below it.
pub type PlanNode = Arc<dyn ExecutionPlan>;

/// Identifies a node for as long as its plan lives.
pub fn address(node: &PlanNode) -> usize {
    Arc::as_ptr(node).cast::<()>() as usize
}

/// Visits the expressions of an operator, until the visitor stops.
pub(crate) fn visit_expressions<'e>(
    expressions: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    let mut next = TreeNodeRecursion::Continue;
    for expression in expressions {
        next = visit(expression)?;
        if next == TreeNodeRecursion::Stop {
            break;
        }
    }
    Ok(next)
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
