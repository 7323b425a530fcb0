//! `NOT IN` as an anti join of sorted inputs, for inputs that do not fit into memory.
//!
//! A null among the values excludes all rows, so whether there is one must be known before the first
//! row is returned. Sorted with nulls first, it is the first of the values. Without any value all rows
//! are returned, also those with a null as key, which are excluded otherwise.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::is_not_null;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, TryStreamExt, stream};

use crate::operators::Batches;
use crate::operators::replaced_exec::{ReplacedExec, Replacement};

/// The rows of the left side of an anti join whose key is not among the values of the right side.
/// Both have one partition, are joined by one key, and are sorted by it with nulls first.
pub(crate) fn not_in(join: SortMergeJoinExec) -> Arc<dyn ExecutionPlan> {
    Arc::new(ReplacedExec { original: Arc::new(join), replacement: NotIn })
}

#[derive(Debug)]
struct NotIn;

impl Replacement for NotIn {
    fn batches(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches> {
        let join = original.downcast_ref::<SortMergeJoinExec>();
        let join = join.ok_or_else(|| internal_datafusion_err!("NOT IN is no sorted join"))?;
        Ok(stream::once(begin(join.clone(), partition, context)).try_flatten().boxed())
    }

    fn metrics(&self, original: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
        original.metrics()
    }

    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(ReplacedExec { original, replacement: Self }))
    }
}

/// Reads the first of the values, and returns the rows.
async fn begin(
    mut join: SortMergeJoinExec,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let mut values = join.right.execute(partition, Arc::clone(&context))?;
    let mut first = values.next().await.transpose()?;
    while first.as_ref().is_some_and(|batch| batch.num_rows() == 0) {
        first = values.next().await.transpose()?;
    }
    let Some(first) = first else { return join.left.execute(partition, context) };
    let [(key, value)] = join.on() else {
        return Err(internal_datafusion_err!("NOT IN compares one value"));
    };
    if value.evaluate(&first)?.into_array(first.num_rows())?.is_null(0) {
        return Ok(Box::pin(EmptyRecordBatchStream::new(join.schema())));
    }
    let known = is_not_null(Arc::clone(key))?;
    join.left = Arc::new(FilterExec::try_new(known, Arc::clone(&join.left))?);
    let schema = values.schema();
    let all = stream::once(async { Ok(first) }).chain(values);
    let all = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), all));
    let values = Values { schema: Arc::clone(&schema), values: Mutex::new(Some(all)) };
    join.right = Arc::new(StreamingTableExec::try_new(
        schema,
        vec![Arc::new(values)],
        None,
        [],
        false,
        None,
    )?);
    join.execute(partition, context)
}

/// Values of which the first ones were read.
struct Values {
    schema: SchemaRef,
    // Taken by the join, which reads them once.
    values: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for Values {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner).take();
        values.unwrap_or_else(|| {
            let read = async { Err(internal_datafusion_err!("the values were read before")) };
            let schema = Arc::clone(&self.schema);
            Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(read)))
        })
    }
}
