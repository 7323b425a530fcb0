//! The leaf of the driver's plan: reads the results of one stage.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, SendableRecordBatchStream,
};
use futures::{StreamExt, stream};
use snowmelt_types::Report;
use snowmelt_wire::{BatchDecoder, Kind};

use super::{ResultQueue, Segment};

/// Reads the results of a stage: as many partitions, in the same order, with the same properties
/// as the stage's own root.
#[derive(Debug)]
pub(crate) struct ResultExec {
    stage: usize,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
    queue: Arc<ResultQueue>,
    /// The number of the stage's partitions, if they are read one after another as one partition.
    /// `None`: each partition of the stage is a partition of its own.
    in_order: Option<u32>,
    metrics: ExecutionPlanMetricsSet,
}

impl ResultExec {
    /// Replaces `root` in the plan; reads from `queue`.
    pub(crate) fn new(
        stage: usize,
        root: &Arc<dyn ExecutionPlan>,
        queue: Arc<ResultQueue>,
    ) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        let properties = Arc::clone(root.properties());
        Self { stage, properties, schema: root.schema(), queue, in_order: None, metrics }
    }

    /// Replaces `root` by one partition that reads all partitions of the stage one after another.
    /// They are ranges of the stage's order, so the rows keep this order.
    pub(crate) fn in_order(
        stage: usize,
        root: &Arc<dyn ExecutionPlan>,
        queue: Arc<ResultQueue>,
    ) -> Self {
        let one = PlanProperties::clone(root.properties())
            .with_partitioning(Partitioning::UnknownPartitioning(1));
        let partitions = root.output_partitioning().partition_count() as u32;
        let properties = Arc::new(one);
        let in_order = Some(partitions);
        Self { properties, in_order, ..Self::new(stage, root, queue) }
    }

    fn reader(&self, partition: u32) -> SegmentReader {
        SegmentReader {
            schema: Arc::clone(&self.schema),
            queue: Arc::clone(&self.queue),
            partition,
            read: 0,
            restarts: 0,
            returned: 0,
            skip: 0,
            decoder: BatchDecoder::default(),
            decoded: VecDeque::new(),
            metrics: BaselineMetrics::new(&self.metrics, partition as usize),
        }
    }
}

impl DisplayAs for ResultExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions = self.properties.output_partitioning().partition_count();
        match self.in_order {
            Some(ranges) => write!(f, "ResultExec: stage={}, sort: ranges of {ranges}", self.stage),
            None => write!(f, "ResultExec: stage={}, partitions={partitions}", self.stage),
        }
    }
}

impl ExecutionPlan for ResultExec {
    fn name(&self) -> &'static str {
        "ResultExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    snowmelt_execute::leaf_methods!();

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = match self.in_order {
            Some(ranges) => 0..ranges,
            None => partition as u32..partition as u32 + 1,
        };
        let readers: Vec<SegmentReader> =
            partitions.map(|partition| self.reader(partition)).collect();
        let rows = |reader: SegmentReader| {
            stream::try_unfold(reader, |mut reader| async move {
                Ok(reader.next().await?.map(|batch| (batch, reader)))
            })
        };
        let batches = stream::iter(readers).flat_map(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Decodes the segments of a partition one by one: only one is in memory in both forms.
struct SegmentReader {
    schema: SchemaRef,
    queue: Arc<ResultQueue>,
    partition: u32,
    // Segments that were read.
    read: usize,
    restarts: u32,
    // Rows that were returned, and rows of a retry that must be skipped.
    returned: usize,
    skip: usize,
    decoder: BatchDecoder,
    decoded: VecDeque<RecordBatch>,
    metrics: BaselineMetrics,
}

impl SegmentReader {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.decoded.pop_front() {
                self.returned += batch.num_rows();
                self.metrics.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            let next = self.queue.next(self.partition, self.read).await;
            let Some((restarts, segment)) = next else { return Ok(None) };
            self.read += 1;
            if restarts != self.restarts {
                self.restarts = restarts;
                self.skip = self.returned;
            }
            self.decode(&segment)
                .map_err(|error| DataFusionError::External(Box::new(error.report())))?;
        }
    }

    fn decode(&mut self, segment: &Segment) -> crate::Result<()> {
        let frame = segment.load()?;
        if frame.kind == Kind::Schema {
            self.decoder = BatchDecoder::default();
        }
        for batch in self.decoder.push(&frame)? {
            // Checks names, types and nulls: a worker's bytes are not trusted.
            let columns = batch.columns().to_vec();
            let options =
                arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let schema = Arc::clone(&self.schema);
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let skipped = self.skip.min(batch.num_rows());
            self.skip -= skipped;
            let rest = batch.slice(skipped, batch.num_rows() - skipped);
            if rest.num_rows() > 0 {
                self.decoded.push_back(rest);
            }
        }
        Ok(())
    }
}
