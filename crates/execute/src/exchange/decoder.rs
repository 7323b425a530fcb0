//! Decodes the frames that tasks wrote to a partition.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use snowmelt_types::Report;
use snowmelt_wire::{BatchDecoder, BatchEncoder, Frame};

use crate::Error;

/// Frames of an exchange, from wherever they come, and their batches.
pub(super) trait FrameReader: Send + 'static {
    /// A frame, with the information that is needed to decode it.
    type Received: Send + Sync;

    /// The next frame; `None` after the last one.
    fn frame(&mut self) -> impl Future<Output = DataFusionResult<Option<Self::Received>>> + Send;

    /// The batch of a frame; `None` if it has only a dictionary.
    fn decode(&mut self, frame: &Self::Received) -> DataFusionResult<Option<RecordBatch>>;
}

/// All batches of a reader. Decoding counts as computing, waiting does not.
pub(super) fn batches(
    reader: impl FrameReader,
    schema: SchemaRef,
    metrics: BaselineMetrics,
) -> SendableRecordBatchStream {
    let batches = stream::try_unfold((reader, metrics), |(mut reader, metrics)| async move {
        while let Some(frame) = reader.frame().await? {
            let timer = metrics.elapsed_compute().timer();
            let decoded = reader.decode(&frame)?;
            timer.done();
            if let Some(batch) = decoded {
                metrics.record_output(batch.num_rows());
                return Ok(Some((batch, (reader, metrics))));
            }
        }
        Ok(None)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

pub(super) fn external(error: &Error) -> DataFusionError {
    DataFusionError::External(Box::new(error.report()))
}

/// The state of the decoder: each writer of a partition has dictionaries of its own.
pub(super) struct PartDecoder {
    schema: SchemaRef,
    decoder: BatchDecoder,
}

impl PartDecoder {
    pub(super) fn new(schema: SchemaRef) -> Result<Self, Error> {
        let mut decoder = BatchDecoder::default();
        decoder.push(&BatchEncoder::default().schema(&schema)?)?;
        Ok(Self { schema, decoder })
    }

    /// The batch of a frame; `None` if it has only a dictionary.
    pub(super) fn decode(&mut self, frame: &Frame) -> Result<Option<RecordBatch>, Error> {
        let Some(batch) = self.decoder.push(frame)?.pop() else { return Ok(None) };
        // Checks names, types and nulls.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let schema = Arc::clone(&self.schema);
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}
