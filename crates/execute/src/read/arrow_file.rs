//! Reads Arrow's IPC file format, one record batch at a time.
//!
//! Invariant: every block of an [`ArrowFooter`] lies within its file.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::Buffer;
use arrow::compute::CastOptions;
use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, MetadataVersion, root_as_footer};
use bytes::Bytes;
use datafusion::common::nested_struct::cast_column;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::{ObjectMeta, ObjectStore};

use super::reports::{corrupt, shortened};
use crate::process::catch_panic;
use crate::scan::{FooterError, read_bytes};

/// Bytes that are first read from a file's end: most footers are shorter.
const FIRST_READ: u64 = 64 << 10;

/// The footer is followed by its length and the magic number.
const TRAILER: u64 = 10;

const DAMAGED: &str = "the file is truncated or damaged: write it again, or exclude it";

/// The schema of a file, and where its record batches are.
#[derive(Clone, Debug)]
pub struct ArrowFooter {
    /// The columns of the file.
    pub schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

impl ArrowFooter {
    /// The byte range of each record batch.
    pub fn batches(&self) -> impl Iterator<Item = Range<u64>> {
        self.batches.iter().map(range)
    }
}

/// Reads a file's footer: in one request, or two if it is long.
pub async fn footer(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
) -> Result<ArrowFooter, FooterError> {
    let size = meta.size;
    if size < TRAILER {
        return Err(format!("it has {size} bytes, which is too few for an Arrow file").into());
    }
    let end = read_bytes(store, meta, size.saturating_sub(FIRST_READ)..size).await?;
    let (_, trailer) = end.split_last_chunk::<{ TRAILER as usize }>().ok_or_else(stream_hint)?;
    let length = read_footer_length(*trailer).map_err(|_| stream_hint())? as u64;
    if length + TRAILER > size {
        let why = format!("its footer's length is {length} bytes, but the file has {size}");
        return Err(why.into());
    }
    let footer = match end.len() as u64 {
        enough if enough >= length + TRAILER => {
            let start = (enough - length - TRAILER) as usize;
            end.slice(start..start + length as usize)
        }
        _ => read_bytes(store, meta, size - length - TRAILER..size - TRAILER).await?,
    };
    Ok(catch_panic(|| parse(&footer, size))??)
}

fn stream_hint() -> String {
    "it does not end with Arrow's magic number; the stream format of Arrow is not read".to_owned()
}

fn parse(footer: &[u8], size: u64) -> Result<ArrowFooter, String> {
    let footer = root_as_footer(footer).map_err(|error| shortened(&error.to_string()))?;
    let schema = footer.schema().ok_or("its footer has no schema")?;
    if !schema.endianness().equals_to_target_endianness() {
        return Err("its numbers have another byte order than this machine's".to_owned());
    }
    let inside = |block: &Block| {
        let lengths = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
        let end = lengths
            .iter()
            .try_fold(0_i64, |end, length| end.checked_add(*length).filter(|_| *length >= 0));
        end.is_some_and(|end| end as u64 <= size)
    };
    let dictionaries: Vec<Block> = footer.dictionaries().iter().flatten().copied().collect();
    let batches: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
    if !dictionaries.iter().chain(&batches).all(inside) {
        return Err("one of its record batches lies beyond its end".to_owned());
    }
    let schema = Arc::new(fb_to_schema(schema));
    Ok(ArrowFooter { schema, version: footer.version(), dictionaries, batches })
}

fn range(block: &Block) -> Range<u64> {
    let start = block.offset() as u64;
    start..start + block.metaDataLength() as u64 + block.bodyLength() as u64
}

/// A file and what is wanted of it.
pub(super) struct ArrowFile {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) meta: ObjectMeta,
    /// The file's name for the user.
    pub(super) name: String,
    /// The record batches that begin in this range are read; `None` for all.
    pub(super) range: Option<Range<u64>>,
    pub(super) wanted: SchemaRef,
    /// The most rows of a batch.
    pub(super) rows: usize,
}

impl ArrowFile {
    /// The rows.
    pub(super) async fn batches(self) -> DfResult<BoxStream<'static, DfResult<RecordBatch>>> {
        let footer = footer(self.store.as_ref(), &self.meta).await;
        let footer = footer.map_err(|error| match error {
            FooterError::Store(error) => error.into(),
            FooterError::Corrupt(why) => self.corrupt(&why),
        })?;
        let index = |field: &FieldRef| footer.schema.index_of(field.name()).ok();
        let mut columns: Vec<usize> = self.wanted.fields().iter().filter_map(index).collect();
        columns.sort_unstable();
        columns.dedup();
        let decoder = FileDecoder::new(Arc::clone(&footer.schema), footer.version);
        let mut decoder = decoder.with_projection(columns);
        for block in &footer.dictionaries {
            let bytes = Buffer::from(self.block(block).await?);
            self.decoded(|| decoder.read_dictionary(block, &bytes))?;
        }
        let wanted = |block: &Block| {
            self.range.as_ref().is_none_or(|range| range.contains(&(block.offset() as u64)))
        };
        let blocks = footer.batches.iter().filter(|block| wanted(block)).copied().collect();
        let reading = ArrowReader { file: self, decoder, blocks, rest: None };
        let batches = stream::try_unfold(reading, |mut reading| async move {
            let next = reading.next().await?;
            Ok(next.map(|batch| (batch, reading)))
        });
        Ok(batches.boxed())
    }

    async fn block(&self, block: &Block) -> DfResult<Bytes> {
        Ok(read_bytes(self.store.as_ref(), &self.meta, range(block)).await?)
    }

    /// Runs the decoder, which panics on some damaged bytes.
    fn decoded<T>(&self, decode: impl FnOnce() -> Result<T, ArrowError>) -> DfResult<T> {
        let decoded = catch_panic(decode).map_err(|_| "a record batch is damaged".to_owned());
        decoded
            .and_then(|decoded| decoded.map_err(|error| shortened(&error.to_string())))
            .map_err(|why| self.corrupt(&why))
    }

    fn corrupt(&self, why: &str) -> DataFusionError {
        DataFusionError::External(Box::new(corrupt(&self.name, why, DAMAGED)))
    }

    /// The wanted columns in the types of the table. A column that the file lacks is null.
    fn as_wanted(&self, batch: &RecordBatch) -> DfResult<RecordBatch> {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let column = |field: &FieldRef| -> DfResult<ArrayRef> {
            match batch.column_by_name(field.name()) {
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
                Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
                Some(column) => cast_column(column, field.data_type(), &strict),
            }
        };
        let columns = self.wanted.fields().iter().map(column).collect::<DfResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options)?)
    }
}

struct ArrowReader {
    file: ArrowFile,
    decoder: FileDecoder,
    blocks: VecDeque<Block>,
    /// Rows of the last block.
    rest: Option<RecordBatch>,
}

impl ArrowReader {
    async fn next(&mut self) -> DfResult<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.rest.take() {
                let rows = self.file.rows.min(batch.num_rows());
                if rows < batch.num_rows() {
                    self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
                }
                return self.file.as_wanted(&batch.slice(0, rows)).map(Some);
            }
            let Some(block) = self.blocks.pop_front() else { return Ok(None) };
            let bytes = Buffer::from(self.file.block(&block).await?);
            self.rest = self.file.decoded(|| self.decoder.read_record_batch(&block, &bytes))?;
        }
    }
}
