//! The leaf of a plan that stands for a part of it, until the plan is cut into stages.

use std::fmt;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use snowmelt_execute::tree::count;

/// The rows of a part of a plan, in its partitions. The part is no input: rules that pass filters or
/// orders to inputs would make it another one for each reader.
#[derive(Debug)]
pub(crate) struct SharedExec {
    part: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SharedExec {
    pub(crate) fn new(part: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(part.schema()),
            Partitioning::UnknownPartitioning(count(&part)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { part, properties: Arc::new(properties) }
    }

    /// The part, optimised.
    pub(crate) fn part(&self) -> &Arc<dyn ExecutionPlan> {
        &self.part
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared")
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "Shared"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    snowmelt_execute::leaf_methods!();

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let message = "a part of a plan is a stage of its own, and does not run in another";
        Err(DataFusionError::Internal(message.to_owned()))
    }
}
