//! Parquet, compressed with zstd.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::{ResultTarget, Sink};

struct Parquet(ArrowWriter<ResultTarget>);

pub(super) fn sink(target: ResultTarget, schema: &SchemaRef) -> Result<Box<dyn Sink>, ArrowError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let writer = ArrowWriter::try_new(target, schema.clone(), Some(properties))?;
    Ok(Box::new(Parquet(writer)))
}

impl Sink for Parquet {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        Ok((self.0.into_inner()?, Vec::new()))
    }
}
