//! RFC 4180 with a header; a null is an empty field.

use arrow::array::RecordBatch;
use arrow::csv::{Writer, WriterBuilder};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::{Sink, Target};

struct Csv(Writer<Target>);

pub(super) fn sink(target: Target, schema: &SchemaRef) -> Result<Box<dyn Sink>, ArrowError> {
    let nested = schema.fields().iter().find(|field| field.data_type().is_nested());
    if let Some(field) = nested {
        let (name, kind) = (field.name(), field.data_type());
        let problem = format!("CSV has no place for column `{name}` of type {kind}");
        return Err(ArrowError::CsvError(problem));
    }
    let mut writer = WriterBuilder::new().with_header(true).build(target);
    // An answer without rows has a header all the same.
    writer.write(&RecordBatch::new_empty(schema.clone()))?;
    Ok(Box::new(Csv(writer)))
}

impl Sink for Csv {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    fn finish(self: Box<Self>) -> Result<(Target, Vec<String>), ArrowError> {
        Ok((self.0.into_inner(), Vec::new()))
    }
}
