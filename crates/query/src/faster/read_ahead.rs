//! Reads the input of an operator that calls a UDF while the function computes.
//!
//! A call waits for another sandbox, and the thread that waits does nothing else. The input of such
//! an operator runs as a task of its own, which is some batches ahead, so that the worker scans and
//! decodes while the function has its batch.
//!
//! The runtime must have several threads: a call then gives its place to the other tasks
//! (`block_in_place`). On a runtime of one thread nothing is gained and nothing breaks.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

use futures::StreamExt;

use crate::plan::with_children;
use crate::udf;

/// Batches that are read before the operator asks for them. One hides the time of the scan, a second
/// one the differences between batches.
const BATCHES: usize = 2;

/// Lets the inputs of all operators that call UDFs be read ahead.
pub(crate) fn read_ahead_of_calls(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if udf::called_by(&node)?.is_empty() || node.children().is_empty() {
            return Ok(Transformed::no(node));
        }
        let ahead = |child: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(ReadAheadExec { input: Arc::clone(child) })
        };
        let children = node.children().into_iter().map(ahead).collect();
        Ok(Transformed::yes(with_children(&node, children)?))
    })
    .data()
}

/// Looks like its input, and runs it in a task of its own.
#[derive(Debug)]
struct ReadAheadExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for ReadAheadExec {
    fn fmt_as(&self, how: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.input.fmt_as(how, f)
    }
}

impl ExecutionPlan for ReadAheadExec {
    fn name(&self) -> &str {
        self.input.name()
    }

    // Found as its input, for example by what counts the rows of scans.
    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.input.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.input.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.input.apply_expressions(visit)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        how: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = Arc::clone(&self.input).replace_children(children, how)?;
        Ok(Arc::new(Self { input }))
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
        let mut ahead = RecordBatchReceiverStreamBuilder::new(self.input.schema(), BATCHES);
        let (batches, input) = (ahead.tx(), Arc::clone(&self.input));
        ahead.spawn(async move {
            let mut input = input.execute(partition, context)?;
            while let Some(batch) = input.next().await {
                let is_last = batch.is_err();
                // The operator that reads them may have ended early.
                if batches.send(batch).await.is_err() || is_last {
                    break;
                }
            }
            Ok(())
        });
        Ok(ahead.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.input.metrics()
    }
}
