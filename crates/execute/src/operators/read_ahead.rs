//! Reads and decodes batches before they are asked for, as a task of its own.
//!
//! The input of an operator that calls a UDF is read while the function computes: a call waits for
//! another sandbox, and the thread that waits does nothing else. And where a worker has a second
//! core, its files are decompressed and decoded there while the rest of the plan runs on the first
//! one (Lambada 4.3).
//!
//! The runtime must have several threads: a call then gives its place to the other tasks
//! (`block_in_place`). On a runtime of one thread nothing is gained and nothing breaks.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::Batches;
use super::replaced_exec::{ReplacedExec, Replacement};
use crate::tree::with_children;
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
        let children = node.children().into_iter().map(|child| ahead(Arc::clone(child)));
        let children = children.collect();
        Ok(Transformed::yes(with_children(&node, children)?))
    })
    .data()
}

/// Lets files be read and decoded by another thread than the one that runs the rest of the plan, if
/// there are several.
pub(crate) fn decode_on_second_thread(
    plan: Arc<dyn ExecutionPlan>,
    threads: u32,
) -> Result<Arc<dyn ExecutionPlan>> {
    if threads < 2 {
        return Ok(plan);
    }
    plan.transform_up(|node| {
        let is_ahead = (node.as_ref() as &dyn Any).is::<ReplacedExec<ReadAhead>>();
        match node.is::<DataSourceExec>() && !is_ahead {
            true => Ok(Transformed::yes(ahead(node))),
            false => Ok(Transformed::no(node)),
        }
    })
    .data()
}

fn ahead(original: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(ReplacedExec { original, replacement: ReadAhead })
}

/// Runs an operator in a task of its own.
#[derive(Debug)]
struct ReadAhead;

impl Replacement for ReadAhead {
    // Found as its input, for example by what counts the rows of scans.
    const IS_FOUND: bool = true;

    fn batches(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches> {
        let input = Arc::clone(input);
        // Begun when the first batch is asked for: before, a join may not yet have collected the
        // keys that leave out rows of this input.
        let begun = async move { Ok::<_, DataFusionError>(begin(input, partition, context)) };
        Ok(stream::once(begun).try_flatten().boxed())
    }

    fn metrics(&self, input: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
        input.metrics()
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(ahead(input))
    }
}

/// Starts the task.
fn begin(
    input: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let mut ahead = RecordBatchReceiverStreamBuilder::new(input.schema(), BATCHES);
    let batches = ahead.tx();
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
    ahead.build()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

    use super::*;

    /// More than any pause of a busy machine.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Two batches; it says when it makes the second one.
    #[derive(Debug)]
    struct TwoBatches {
        schema: SchemaRef,
        second: Sender<()>,
    }

    impl PartitionStream for TwoBatches {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let schema = Arc::clone(&self.schema);
            let second = self.second.clone();
            let batches = stream::iter([1, 2]).map(move |number| {
                if number == 2 {
                    second.send(()).unwrap();
                }
                let column = Arc::new(Int64Array::from(vec![number]));
                Ok(RecordBatch::try_new(Arc::clone(&schema), vec![column])?)
            });
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
        }
    }

    fn two_batches() -> (Arc<dyn ExecutionPlan>, Receiver<()>) {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let (second, receiver) = channel();
        let partition: Arc<dyn PartitionStream> =
            Arc::new(TwoBatches { schema: Arc::clone(&schema), second });
        let plan = StreamingTableExec::try_new(schema, vec![partition], None, vec![], false, None)
            .unwrap();
        (Arc::new(plan), receiver)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_next_batch_is_made_while_a_thread_has_the_first_one() {
        let (plan, second) = two_batches();
        let mut batches = ahead(plan).execute(0, Arc::default()).unwrap();
        batches.next().await.unwrap().unwrap();
        // This thread is taken until the other one has made the second batch.
        tokio::task::block_in_place(|| second.recv_timeout(LIMIT)).unwrap();
        assert_eq!(batches.next().await.unwrap().unwrap().num_rows(), 1);
        assert!(batches.next().await.is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_read_before_the_first_batch_is_asked_for() {
        let (plan, second) = two_batches();
        let batches = ahead(plan).execute(0, Arc::default()).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(second.try_recv().is_err());
        drop(batches);
    }
}
