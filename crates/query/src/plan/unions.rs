//! Orders of unions whose inputs have different constants.
//!
//! A column that is a constant in each input of a UNION ALL, but not the same one, differs from
//! partition to partition. DataFusion removes such a column from the keys of a sort above the
//! union, and from those of the merge of the sorted partitions too, so that the merged rows have no
//! order by that column. Here the union has no known constants while sorts are planned.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{AcrossPartitions, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

/// Hides the constants of unions that differ between their inputs. To be placed before the rule
/// that enforces orders, and [`ShowUnions`] after it.
#[derive(Debug)]
pub(super) struct HideUnions;

impl PhysicalOptimizerRule for HideUnions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<UnionExec>() {
            Some(union) if constants_differ(union) => {
                Ok(Transformed::yes(Arc::new(UnionWithoutConstants::new(node))))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "hide_unions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Undoes [`HideUnions`].
#[derive(Debug)]
pub(super) struct ShowUnions;

impl PhysicalOptimizerRule for ShowUnions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<UnionWithoutConstants>() {
            Some(hidden) => Ok(Transformed::yes(Arc::clone(&hidden.union))),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "show_unions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A constant whose value is not known may be another one in each input, too.
fn constants_differ(union: &UnionExec) -> bool {
    let constants = union.properties().eq_properties.constants();
    constants
        .iter()
        .any(|constant| !matches!(constant.across_partitions, AcrossPartitions::Uniform(Some(_))))
}

/// A union of which nothing is known but its partitions. It never runs.
#[derive(Debug)]
struct UnionWithoutConstants {
    union: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl UnionWithoutConstants {
    fn new(union: Arc<dyn ExecutionPlan>) -> Self {
        let known = union.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(union.schema()),
            known.output_partitioning().clone(),
            known.emission_type,
            known.boundedness,
        );
        Self { union, properties: Arc::new(properties) }
    }
}

impl DisplayAs for UnionWithoutConstants {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnionWithoutConstants")
    }
}

impl ExecutionPlan for UnionWithoutConstants {
    fn name(&self) -> &str {
        "UnionWithoutConstants"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.union]
    }

    /// A round-robin repartition below it would have no use: workers run one partition each.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(union) if children.is_empty() => Ok(Arc::new(Self::new(union))),
            _ => internal_err!("a union without constants has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a union without constants is a step of planning")
    }
}
