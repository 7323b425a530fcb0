//! Sorts rows that do not fit into memory with DataFusion's sort, which puts sorted parts of them
//! into the scratch of the task.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use futures::{StreamExt, stream};

/// True if an error says that there is not enough memory.
pub(super) fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// The rows of `read` and then of `input`, sorted.
pub(super) fn sorted(
    order: &LexOrdering,
    read: Vec<RecordBatch>,
    input: SendableRecordBatchStream,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = input.schema();
    let all = stream::iter(read.into_iter().map(Ok)).chain(input);
    let all: SendableRecordBatchStream =
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), all));
    let rows = Arc::new(InputRows { schema: Arc::clone(&schema), batches: Mutex::new(Some(all)) });
    let input = StreamingTableExec::try_new(schema, vec![rows], None, [], false, None)?;
    SortExec::new(order.clone(), Arc::new(input)).execute(0, context)
}

/// Rows that are read once.
struct InputRows {
    schema: SchemaRef,
    batches: Mutex<Option<SendableRecordBatchStream>>,
}

impl PartitionStream for InputRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        let none = || Box::pin(EmptyRecordBatchStream::new(Arc::clone(&self.schema))) as _;
        batches.unwrap_or_else(none)
    }
}

impl fmt::Debug for InputRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}
