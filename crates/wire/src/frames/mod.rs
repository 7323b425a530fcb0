//! Frames over a unix socket: header, descriptors, and Arrow batches in them.
//!
//! | member | job |
//! |---|---|
//! | `frame` | the header and the payload of a frame |
//! | `stream` | frames with descriptors, over a blocking stream |
//! | `batch` | Arrow batches as IPC messages, a frame for each |
//! | `bounds` | the sizes in a batch, checked before it is decoded |
//! | `compaction` | batches without the bytes of rows that they do not have |
//!
//! Invariant: a length is checked before memory is allocated for it.

mod batch;
mod bounds;
mod compaction;
mod frame;
mod stream;

pub use batch::{
    BatchDecoder, BatchEncoder, decode_schema, encode_schema, schema_from_text, schema_to_text,
};
pub use frame::{
    Frame, HEADER_BYTES, decode_header, read_frame, read_frame_within, read_header, read_payload,
    write_frame,
};
pub use stream::{FrameStream, MAX_DESCRIPTORS, write_frame_with};
