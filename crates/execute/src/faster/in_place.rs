//! Operators that stand in a plan in place of another operator: they look like the other one and
//! run in another way.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

/// Another way to run an operator.
pub(super) trait Way: fmt::Debug + Send + Sync + Sized + 'static {
    /// True if the operator is still found by its own type.
    const IS_FOUND: bool;

    /// Runs one partition.
    fn execute(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;

    /// Returns the metrics of the operator.
    fn metrics(&self, original: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet>;

    /// Returns the operator that runs in this way in place of `original`, which is the operator
    /// over other inputs.
    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;
}

/// An operator that runs in another way.
#[derive(Debug)]
pub(super) struct InPlace<W> {
    pub(super) original: Arc<dyn ExecutionPlan>,
    pub(super) way: W,
}

impl<W: Way> DisplayAs for InPlace<W> {
    fn fmt_as(&self, how: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_as(how, f)
    }
}

impl<W: Way> ExecutionPlan for InPlace<W> {
    fn name(&self) -> &str {
        self.original.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        W::IS_FOUND.then_some(self.original.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.original.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.original.apply_expressions(visit)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        how: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.way.over(Arc::clone(&self.original).replace_children(children, how)?)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.way.execute(&self.original, partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.way.metrics(&self.original)
    }
}
