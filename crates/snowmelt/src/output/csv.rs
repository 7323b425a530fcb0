//! RFC 4180 with a header; a null is an empty field.

use arrow::array::RecordBatch;
use arrow::csv::{Writer, WriterBuilder};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::{ResultTarget, Sink};

struct Csv {
    writer: Writer<ResultTarget>,
    schema: SchemaRef,
    started: bool,
}

pub(super) fn sink(target: ResultTarget, schema: &SchemaRef) -> Result<Box<dyn Sink>, ArrowError> {
    let nested = schema.fields().iter().find(|field| field.data_type().is_nested());
    if let Some(field) = nested {
        let name = field.name();
        let kind = field.data_type();
        let problem = format!("CSV cannot represent column `{name}` of type {kind}");
        return Err(ArrowError::CsvError(problem));
    }
    let writer = WriterBuilder::new().with_header(true).build(target);
    Ok(Box::new(Csv { writer, schema: schema.clone(), started: false }))
}

impl Sink for Csv {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.started = true;
        self.writer.write(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        if !self.started {
            // A result without rows has a header too.
            self.writer.write(&RecordBatch::new_empty(self.schema.clone()))?;
        }
        Ok((self.writer.into_inner(), Vec::new()))
    }
}
