//! Checks the sizes in an Arrow IPC frame before it is decoded.
//!
//! Arrow's reader trusts the sizes in a message: it reserves as many bytes as a compressed buffer
//! claims to hold, and slices by the offsets in the message. A frame comes from a sandbox, so
//! every length is first compared with the number of bytes received.
//!
//! Invariant: a frame that passes needs no more memory to decode than it has bytes, up to a small
//! factor, except for columns of type Null, whose rows are bounded.

use arrow_ipc::{DictionaryBatch, Message, MessageHeader, RecordBatch, root_as_message};
use arrow_schema::ArrowError;

use crate::{Error, Frame, Kind, Result};

/// The maximum number of rows of a batch, and of values of one of its columns. A batch of the
/// platform has 8,192 rows; a column of lists can have many more values.
const MAX_VALUES: i64 = i32::MAX as i64;

/// The number of bytes before the metadata of a message: a marker and the length of the metadata.
const PREFIX: usize = 8;

/// Refuses a [`Kind::Schema`] or [`Kind::Batch`] frame that announces more than it contains.
pub(crate) fn check(frame: &Frame) -> Result<()> {
    let mut rest: &[u8] = &frame.payload;
    while !rest.is_empty() {
        let (metadata, after) = metadata(rest)?;
        let message = root_as_message(metadata)
            .map_err(|error| refused(&format!("its metadata is damaged: {error}")))?;
        let body = usize::try_from(message.bodyLength()).ok().and_then(|body| after.get(..body));
        let body = body.ok_or_else(|| refused("its body is longer than the frame"))?;
        check_message(&message, frame.kind, body.len() as u64)?;
        rest = &after[body.len()..];
    }
    Ok(())
}

/// The metadata of the first message, and the remaining bytes.
fn metadata(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let length = bytes.get(4..PREFIX).and_then(|length| length.try_into().ok());
    let length = length.map(u32::from_le_bytes).filter(|_| bytes.starts_with(&[0xff; 4]));
    let split = length.and_then(|length| bytes[PREFIX..].split_at_checked(length as usize));
    split.ok_or_else(|| refused("its metadata is longer than the frame"))
}

fn check_message(message: &Message<'_>, kind: Kind, body: u64) -> Result<()> {
    match (kind, message.header_type()) {
        (Kind::Schema, MessageHeader::Schema) => Ok(()),
        (Kind::Batch, MessageHeader::RecordBatch) => {
            message.header_as_record_batch().map_or(Ok(()), |batch| check_batch(&batch, body))
        }
        (Kind::Batch, MessageHeader::DictionaryBatch) => {
            let values =
                message.header_as_dictionary_batch().as_ref().and_then(DictionaryBatch::data);
            values.map_or(Ok(()), |values| check_batch(&values, body))
        }
        (_, found) => Err(refused(&format!("it holds a message of type {found:?}"))),
    }
}

fn check_batch(batch: &RecordBatch<'_>, body: u64) -> Result<()> {
    // The platform does not compress batches, because they do not leave the machine.
    if batch.compression().is_some() {
        return Err(refused("its buffers are compressed"));
    }
    let counted = |values: i64| (0..=MAX_VALUES).contains(&values);
    let mut nodes = batch.nodes().into_iter().flatten();
    if !counted(batch.length()) || nodes.any(|node| !counted(node.length())) {
        return Err(refused("it announces more values than the limit"));
    }
    let inside = |offset: i64, length: i64| {
        let end = u64::try_from(offset).ok().zip(u64::try_from(length).ok());
        end.and_then(|(offset, length)| offset.checked_add(length)).is_some_and(|end| end <= body)
    };
    let mut buffers = batch.buffers().into_iter().flatten();
    if buffers.any(|buffer| !inside(buffer.offset(), buffer.length())) {
        return Err(refused("a buffer lies outside its body"));
    }
    Ok(())
}

fn refused(why: &str) -> Error {
    ArrowError::IpcError(format!("a frame is refused: {why}")).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};

    use super::*;
    use crate::BatchEncoder;

    fn frames() -> (Frame, Frame) {
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from_iter(0..100)) as ArrayRef),
            ("s", Arc::new(StringArray::from_iter((0..100).map(|n| Some(n.to_string()))))),
        ])
        .unwrap();
        let mut encoder = BatchEncoder::default();
        let schema = encoder.schema(&batch.schema()).unwrap();
        (schema, encoder.batch(&batch).unwrap())
    }

    #[test]
    fn frames_of_the_platform_pass() {
        let (schema, batch) = frames();
        check(&schema).unwrap();
        check(&batch).unwrap();
    }

    #[test]
    fn a_truncated_frame_is_refused_at_every_length() {
        let (_, batch) = frames();
        for length in 1..batch.payload.len() {
            let cut = Frame::new(Kind::Batch, batch.payload.slice(..length));
            assert!(check(&cut).is_err(), "{length}");
        }
    }

    #[test]
    fn a_message_of_another_kind_is_refused() {
        let (schema, batch) = frames();
        assert!(check(&Frame::new(Kind::Batch, schema.payload)).is_err());
        assert!(check(&Frame::new(Kind::Schema, batch.payload)).is_err());
    }

    /// Sets each part of the metadata to extreme values: the decoder must neither read beyond the
    /// frame nor end the process.
    #[test]
    fn a_frame_with_false_metadata_is_refused_or_decoded() {
        let (schema, batch) = frames();
        for claim in [1i64 << 62, -1, i64::from(u32::MAX)] {
            for at in (8..batch.payload.len().min(1024)).step_by(4) {
                let mut bytes = batch.payload.to_vec();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&claim.to_le_bytes()[..end - at]);
                let mut decoder = crate::BatchDecoder::default();
                decoder.push(&schema).unwrap();
                let _ = decoder.push(&Frame::new(Kind::Batch, bytes));
            }
        }
    }
}
