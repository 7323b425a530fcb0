//! Operators that stand in a plan in place of another operator: they look like the other one, and
//! their rows are computed in another way.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};

use super::Batches;

/// The computation that replaces that of an operator.
pub(super) trait Replacement: fmt::Debug + Send + Sync + Sized + 'static {
    /// True if the operator is still found by its own type.
    const IS_FOUND: bool = false;

    /// Begins the rows of one partition.
    fn batches(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches>;

    /// Returns the metrics of the operator.
    fn metrics(&self, original: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet>;

    /// Returns the operator that is replaced in this way in place of `original`, which is the
    /// operator over other inputs.
    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;
}

/// An operator whose computation is replaced.
#[derive(Debug)]
pub(super) struct ReplacedExec<R> {
    pub(super) original: Arc<dyn ExecutionPlan>,
    pub(super) replacement: R,
}

impl<R: Replacement> DisplayAs for ReplacedExec<R> {
    fn fmt_as(&self, how: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_as(how, f)
    }
}

impl<R: Replacement> ExecutionPlan for ReplacedExec<R> {
    fn name(&self) -> &str {
        self.original.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        R::IS_FOUND.then_some(self.original.as_ref())
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
        self.replacement.over(Arc::clone(&self.original).replace_children(children, how)?)
    }

    crate::children_by_replacement!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = self.replacement.batches(&self.original, partition, context)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.original.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.replacement.metrics(&self.original)
    }
}
