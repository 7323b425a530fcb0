//! NDJSON: a JSON object per line, with explicit nulls, so that every line has every key.
//! Keys of maps are texts.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::json::writer::{LineDelimited, Writer, WriterBuilder};

use snowmelt_wire::TextKeys;

use super::{ResultTarget, Sink};

struct Json(Writer<ResultTarget, LineDelimited>);

pub(super) fn sink(target: ResultTarget) -> Box<dyn Sink> {
    let writer = WriterBuilder::new().with_explicit_nulls(true);
    Box::new(Json(writer.with_encoder_factory(Arc::new(TextKeys)).build(target)))
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
