//! NDJSON: a JSON object per line, with explicit nulls, so that every line has every key.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::json::writer::{LineDelimited, Writer, WriterBuilder};

use super::{ResultTarget, Sink};

struct Json(Writer<ResultTarget, LineDelimited>);

pub(super) fn sink(target: ResultTarget) -> Box<dyn Sink> {
    Box::new(Json(WriterBuilder::new().with_explicit_nulls(true).build(target)))
}

impl Sink for Json {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        self.0.finish()?;
        Ok((self.0.into_inner(), Vec::new()))
    }
}
