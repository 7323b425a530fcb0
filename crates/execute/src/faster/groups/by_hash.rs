//! A partial aggregation of DataFusion over batches that were read for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use crate::faster::Batches;
use crate::tree::with_children;

/// The aggregations that have started, for their metrics.
#[derive(Debug, Default)]
pub(super) struct StartedAggregates(Mutex<Vec<Arc<dyn ExecutionPlan>>>);

impl StartedAggregates {
    /// Adds the metrics of the started aggregations.
    pub fn add_to(&self, metrics: &mut MetricsSet) {
        for of in self.lock().iter().filter_map(|aggregate| aggregate.metrics()) {
            of.iter().for_each(|metric| metrics.push(Arc::clone(metric)));
        }
    }

    /// Returns the number of started aggregations.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn ExecutionPlan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aggregates by DataFusion's hash table.
pub(super) struct ByHash {
    original: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    started: Arc<StartedAggregates>,
}

impl ByHash {
    /// Creates the aggregation of one partition of the operator, and adds it to the started ones.
    pub fn new(
        original: &Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        started: &Arc<StartedAggregates>,
    ) -> Self {
        Self { original: Arc::clone(original), context, started: Arc::clone(started) }
    }

    /// The states of the batches.
    pub fn over(self, batches: Batches) -> Result<SendableRecordBatchStream> {
        let schema = self.original.children()[0].schema();
        let source = Once { schema: Arc::clone(&schema), batches: Mutex::new(Some(batches)) };
        let source: Arc<dyn PartitionStream> = Arc::new(source);
        let source = StreamingTableExec::try_new(schema, vec![source], None, [], false, None)?;
        let aggregate = with_children(&self.original, vec![Arc::new(source)])?;
        self.started.lock().push(Arc::clone(&aggregate));
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
