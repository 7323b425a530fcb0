//! Arrow batches as IPC messages, one frame per batch.
//!
//! The concatenated payloads of one direction are an Arrow IPC stream: a schema message, then
//! record batches, each preceded by its dictionaries.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    write_message,
};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::bounds;
use super::compaction::dense;
use crate::{Error, Frame, Kind, Result};

/// Turns batches of one schema into frames.
pub struct BatchEncoder {
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

impl Default for BatchEncoder {
    fn default() -> Self {
        Self {
            generator: IpcDataGenerator::default(),
            // A stream may replace a dictionary, so it is not an error here.
            dictionaries: DictionaryTracker::new(false),
            options: IpcWriteOptions::default(),
            context: IpcWriteContext::default(),
        }
    }
}

impl BatchEncoder {
    /// The frame that must come before the first batch.
    pub fn schema(&mut self, schema: &Schema) -> Result<Frame> {
        let encoded = self.generator.schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut self.dictionaries,
            &self.options,
        );
        let mut payload = Vec::new();
        write_message(&mut payload, encoded, &self.options)?;
        Ok(Frame::new(Kind::Schema, payload))
    }

    /// A frame with one batch and the dictionaries that it needs.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Frame> {
        let dense = dense(batch)?;
        let (dictionaries, encoded) = self.generator.encode(
            dense.as_ref().unwrap_or(batch),
            &mut self.dictionaries,
            &self.options,
            &mut self.context,
        )?;
        let length = |data: &EncodedData| data.ipc_message.len() + data.arrow_data.len() + 64;
        let lengths = dictionaries.iter().map(length).sum::<usize>() + length(&encoded);
        let mut payload = Vec::with_capacity(lengths);
        for dictionary in dictionaries {
            write_message(&mut payload, dictionary, &self.options)?;
        }
        write_message(&mut payload, encoded, &self.options)?;
        Ok(Frame::new(Kind::Batch, payload))
    }
}

/// Turns the frames of one direction back into batches.
#[derive(Default)]
pub struct BatchDecoder {
    decoder: StreamDecoder,
    // The stream decoder has the schema only when the next message begins; a caller needs it
    // earlier, because there may be no batch at all.
    schema: Option<SchemaRef>,
}

impl BatchDecoder {
    /// Decodes a [`Kind::Schema`] or [`Kind::Batch`] frame; returns the batches that it completes.
    ///
    /// # Errors
    /// The frame is not valid, also in cases where Arrow's reader would panic.
    pub fn push(&mut self, frame: &Frame) -> Result<Vec<RecordBatch>> {
        bounds::check(frame)?;
        catch_panics(|| self.decode(frame))
    }

    fn decode(&mut self, frame: &Frame) -> Result<Vec<RecordBatch>> {
        if frame.kind == Kind::Schema {
            self.schema = Some(decode_schema(&frame.payload)?);
        }
        let mut buffer = Buffer::from(frame.payload.clone());
        let mut batches = Vec::new();
        while !buffer.is_empty() {
            if let Some(batch) = self.decoder.decode(&mut buffer)? {
                batches.push(batch);
            }
        }
        if frame.kind == Kind::Batch && batches.is_empty() {
            batches.push(self.without_body()?);
        }
        Ok(batches)
    }

    /// Decodes a batch without columns. It has no body, but the stream decoder reads a body only
    /// when there are more bytes: so it gets one byte, which it does not consume.
    fn without_body(&mut self) -> Result<RecordBatch> {
        let batch = self.decoder.decode(&mut Buffer::from(vec![0xff]))?;
        let missing = || ArrowError::IpcError("a batch frame holds no batch".to_owned());
        Ok(batch.ok_or_else(missing)?)
    }

    /// The schema, once its frame was decoded.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.schema.clone()
    }
}

/// A schema as an Arrow IPC schema message.
pub fn encode_schema(schema: &Schema) -> Result<Vec<u8>> {
    Ok(BatchEncoder::default().schema(schema)?.payload.to_vec())
}

/// A schema from an Arrow IPC schema message.
pub fn decode_schema(message: &[u8]) -> Result<SchemaRef> {
    check_encapsulated(message)?;
    catch_panics(|| Ok(Arc::new(try_schema_from_ipc_buffer(message)?)))
}

/// Runs Arrow's reader on bytes of a sandbox and catches its panics, which invalid data can cause.
fn catch_panics<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| ArrowError::IpcError("a message is damaged".to_owned());
    catch_unwind(AssertUnwindSafe(read)).map_err(panicked)?
}

/// Arrow's reader slices by the announced length, so a length beyond the end is refused here.
fn check_encapsulated(message: &[u8]) -> Result<()> {
    let announced =
        message.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let marked = message.starts_with(&[0xff; 4]);
    match announced {
        Some(length) if marked && length as usize <= message.len() - 8 => Ok(()),
        _ => Err(ArrowError::IpcError("no schema message".to_owned()).into()),
    }
}

/// A schema as text for JSON: base64 of its IPC message, as `pyarrow.Schema.serialize()` makes it.
pub fn schema_to_text(schema: &Schema) -> Result<String> {
    Ok(STANDARD.encode(encode_schema(schema)?))
}

/// A schema from the text of [`schema_to_text`].
pub fn schema_from_text(text: &str) -> Result<SchemaRef> {
    let invalid = |error| ArrowError::IpcError(format!("not base64: {error}"));
    let message = STANDARD.decode(text).map_err(|error| Error::Arrow(invalid(error)))?;
    decode_schema(&message)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        ArrayRef, DictionaryArray, Int64Array, RecordBatchOptions, StringArray, types::Int32Type,
    };

    use super::*;

    fn batch() -> RecordBatch {
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as ArrayRef),
            ("s", Arc::new(StringArray::from(vec!["x", "", "z"]))),
            ("d", Arc::new(words)),
        ])
        .unwrap()
    }

    #[test]
    fn batches_are_decoded_as_encoded() {
        let mut encoder = BatchEncoder::default();
        let mut decoder = BatchDecoder::default();
        let batch = batch();
        assert!(decoder.push(&encoder.schema(&batch.schema()).unwrap()).unwrap().is_empty());
        for _ in 0..2 {
            let back = decoder.push(&encoder.batch(&batch).unwrap()).unwrap();
            assert_eq!(back, std::slice::from_ref(&batch));
        }
    }

    #[test]
    fn rows_without_columns_are_decoded_as_encoded() {
        let mut encoder = BatchEncoder::default();
        let mut decoder = BatchDecoder::default();
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        decoder.push(&encoder.schema(&batch.schema()).unwrap()).unwrap();
        for _ in 0..2 {
            let back = decoder.push(&encoder.batch(&batch).unwrap()).unwrap();
            assert_eq!(back.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [5]);
        }
    }

    #[test]
    fn schemas_are_read_back_from_text() {
        let schema = batch().schema();
        let text = schema_to_text(&schema).unwrap();
        assert_eq!(schema_from_text(&text).unwrap().fields(), schema.fields());
    }

    /// A function that writes its own Arrow messages could announce any size: the reader would
    /// reserve that much.
    #[test]
    fn compressed_bodies_are_refused() {
        let mut decoder = BatchDecoder::default();
        let schema =
            Schema::new(vec![arrow_schema::Field::new("n", arrow_schema::DataType::Int64, false)]);
        decoder.push(&BatchEncoder::default().schema(&schema).unwrap()).unwrap();
        let message = compressed_message(10_000);
        let mut payload = Vec::new();
        payload.extend_from_slice(&[0xff; 4]);
        payload.extend_from_slice(&(message.len() as u32).to_le_bytes());
        payload.extend_from_slice(&message);
        payload.extend_from_slice(&(1i64 << 62).to_le_bytes());
        let error = decoder.push(&Frame::new(Kind::Batch, payload)).unwrap_err();
        assert!(error.to_string().contains("compressed"), "{error}");
    }

    fn compressed_message(rows: i64) -> Vec<u8> {
        use arrow_ipc::*;
        let mut builder = flatbuffers::FlatBufferBuilder::new();
        let compression = BodyCompression::create(&mut builder, &BodyCompressionArgs::default());
        let nodes = builder.create_vector(&[FieldNode::new(rows, 0)]);
        let buffers =
            builder.create_vector(&[arrow_ipc::Buffer::new(0, 0), arrow_ipc::Buffer::new(0, 8)]);
        let batch = arrow_ipc::RecordBatch::create(
            &mut builder,
            &RecordBatchArgs {
                length: rows,
                nodes: Some(nodes),
                buffers: Some(buffers),
                compression: Some(compression),
                ..RecordBatchArgs::default()
            },
        );
        let message = Message::create(
            &mut builder,
            &MessageArgs {
                version: MetadataVersion::V5,
                header_type: MessageHeader::RecordBatch,
                header: Some(batch.as_union_value()),
                bodyLength: 8,
                ..MessageArgs::default()
            },
        );
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }

    #[test]
    fn garbage_is_refused() {
        assert!(decode_schema(b"no arrow here at all").is_err());
        assert!(schema_from_text("%%%").is_err());
    }
}
