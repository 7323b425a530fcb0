//! Arrow IPC: the stream format on stdout, which can be read incrementally, and the file format
//! (Feather 2) in a file, which can be mapped.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};

use super::{ResultTarget, Sink};

struct ArrowStreamSink(StreamWriter<ResultTarget>);
struct ArrowFileSink(FileWriter<ResultTarget>);

pub(super) fn stream_sink(
    target: ResultTarget,
    schema: &SchemaRef,
) -> Result<Box<dyn Sink>, ArrowError> {
    Ok(Box::new(ArrowStreamSink(StreamWriter::try_new(target, schema)?)))
}

pub(super) fn file_sink(
    target: ResultTarget,
    schema: &SchemaRef,
) -> Result<Box<dyn Sink>, ArrowError> {
    Ok(Box::new(ArrowFileSink(FileWriter::try_new(target, schema)?)))
}

impl Sink for ArrowStreamSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    fn finish(self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        Ok((self.0.into_inner()?, Vec::new()))
    }
}

impl Sink for ArrowFileSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    fn finish(self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        Ok((self.0.into_inner()?, Vec::new()))
    }
}
