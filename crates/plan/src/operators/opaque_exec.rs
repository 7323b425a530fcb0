//! An operator that hides another operator of a plan while a rule of DataFusion runs.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};

/// An operator that hides the operator below it, and never runs.
///
/// Rules move no projection and no condition through this operator, because it passes none on.
#[derive(Debug)]
pub(crate) struct PlanningOnlyExec {
    hidden: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    knows: Knows,
}

/// The properties of the hidden operator that rules see.
#[derive(Clone, Copy, Debug)]
enum Knows {
    /// All properties of the hidden operator.
    All,
    /// The partitions of the hidden operator, but no orders, constants or equal columns.
    Partitions,
}

impl PlanningOnlyExec {
    /// Hides the type of an operator.
    pub(crate) fn around(hidden: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(hidden, Knows::All))
    }

    /// Hides also orders, constants and equal columns of an operator.
    pub(crate) fn without_orders(hidden: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(hidden, Knows::Partitions))
    }

    /// The plan with the operators that are hidden by themselves.
    pub(crate) fn uncovered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<Self>() {
            Some(found) => Ok(Transformed::yes(Arc::clone(&found.hidden))),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn new(hidden: Arc<dyn ExecutionPlan>, knows: Knows) -> Self {
        let known = hidden.properties();
        let properties = match knows {
            Knows::All => Arc::clone(known),
            Knows::Partitions => Arc::new(PlanProperties::new(
                EquivalenceProperties::new(hidden.schema()),
                known.output_partitioning().clone(),
                known.emission_type,
                known.boundedness,
            )),
        };
        Self { hidden, properties, knows }
    }
}

impl DisplayAs for PlanningOnlyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for PlanningOnlyExec {
    fn name(&self) -> &str {
        "PlanningOnlyExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.hidden]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.knows, Knows::All)]
    }

    /// No benefit from repartitioning: a round-robin repartition below would have no use, because
    /// workers run one partition each.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    snowmelt_execute::no_expressions!();

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(hidden) if children.is_empty() => Ok(Arc::new(Self::new(hidden, self.knows))),
            _ => internal_err!("{} has one input", self.name()),
        }
    }

    snowmelt_execute::children_by_replacement!();

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("{} is a step of planning", self.name())
    }
}
