//! A partial aggregation of DataFusion over batches that were read for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use crate::operators::Batches;
use crate::tree::with_children;

/// The metrics of a partial aggregation: its own, and those of aggregations by a hash table that it
/// has started.
#[derive(Debug, Default)]
pub(super) struct GroupMetrics {
    own: ExecutionPlanMetricsSet,
    started: Mutex<Vec<Arc<dyn ExecutionPlan>>>,
}

impl GroupMetrics {
    /// Returns the metrics of its own of a partition.
    pub fn of(&self, partition: usize) -> BaselineMetrics {
        BaselineMetrics::new(&self.own, partition)
    }

    /// Returns all metrics so far.
    pub fn all(&self) -> MetricsSet {
        let mut all = self.own.clone_inner();
        for of in self.lock().iter().filter_map(|aggregate| aggregate.metrics()) {
            of.iter().for_each(|metric| all.push(Arc::clone(metric)));
        }
        all
    }

    /// Returns the number of started aggregations.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn ExecutionPlan>>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aggregates by DataFusion's hash table.
pub(super) struct ByHash {
    original: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    metrics: Arc<GroupMetrics>,
}

impl ByHash {
    /// Creates the aggregation of one partition of the operator, and adds it to the started ones.
    pub fn new(
        original: &Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        metrics: &Arc<GroupMetrics>,
    ) -> Self {
        Self { original: Arc::clone(original), context, metrics: Arc::clone(metrics) }
    }

    /// The states of the batches.
    pub fn over(self, batches: Batches) -> Result<SendableRecordBatchStream> {
        let schema = self.original.children()[0].schema();
        let source = Once { schema: Arc::clone(&schema), batches: Mutex::new(Some(batches)) };
        let source: Arc<dyn PartitionStream> = Arc::new(source);
        let source = StreamingTableExec::try_new(schema, vec![source], None, [], false, None)?;
        let aggregate = with_children(&self.original, vec![Arc::new(source)])?;
        self.metrics.lock().push(Arc::clone(&aggregate));
        aggregate.execute(0, self.context)
    }
}

/// Batches that are read once.
struct Once {
    schema: SchemaRef,
    batches: Mutex<Option<Batches>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        let batches = batches.unwrap_or_else(|| stream::empty().boxed());
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}
