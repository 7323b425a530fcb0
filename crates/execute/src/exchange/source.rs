//! Sources: the storage of the output of a task, for the tasks that read it.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use snowmelt_wire::{Error as WireError, Frame, HEADER_BYTES, Kind, decode_header};

use crate::Error;

/// Frames as they arrive. Dropping it stops what is under way.
pub(crate) type Frames = BoxStream<'static, Result<Frame, Error>>;

/// The complete output of one task in some medium.
pub(crate) trait OutputSource: fmt::Debug + Send + Sync {
    /// The frames of some byte ranges (offset and length), in this order. Each range holds whole
    /// `Batch` frames.
    fn frames(&self, ranges: Vec<(u64, u64)>) -> Frames;
}

/// A granted file.
#[derive(Debug)]
pub(crate) struct FileSource(Arc<File>);

impl FileSource {
    pub(crate) fn new(file: File) -> Self {
        Self(Arc::new(file))
    }
}

impl OutputSource for FileSource {
    fn frames(&self, mut ranges: Vec<(u64, u64)>) -> Frames {
        ranges.reverse();
        let rest = (Arc::clone(&self.0), ranges);
        let frames = stream::try_unfold(rest, |(file, mut ranges)| async move {
            while let Some(range) = ranges.last_mut() {
                if range.1 > 0 {
                    let frame = take_frame(&file, range)?;
                    return Ok(Some((frame, (file, ranges))));
                }
                ranges.pop();
            }
            Ok(None)
        });
        frames.boxed()
    }
}

/// Reads the first frame of a range and removes it from the range.
fn take_frame(file: &File, (offset, length): &mut (u64, u64)) -> Result<Frame, Error> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, *offset).map_err(Error::Exchange)?;
    let payload_bytes = batch_bytes(header, *length)?;
    let mut payload = vec![0; payload_bytes];
    file.read_exact_at(&mut payload, *offset + HEADER_BYTES as u64).map_err(Error::Exchange)?;
    let whole = (HEADER_BYTES + payload_bytes) as u64;
    *offset += whole;
    *length -= whole;
    Ok(Frame::new(Kind::Batch, payload))
}

/// The length of the payload of a `Batch` frame that is within the `left` bytes of its range.
pub(crate) fn batch_bytes(header: [u8; HEADER_BYTES], left: u64) -> Result<usize, Error> {
    let (kind, length) = decode_header(header)?;
    match kind == Kind::Batch && (HEADER_BYTES + length) as u64 <= left {
        true => Ok(length),
        false => Err(WireError::Unexpected { found: kind, expected: "Batch" }.into()),
    }
}
