//! What can go wrong between two processes.

use snowmelt_types::{Code, ErrorReport, Report};

use crate::{Kind, MAX_PAYLOAD_BYTES};

/// A failure on the wire. All but [`Error::Io`] and [`Error::Closed`] mean that the other side
/// broke the protocol.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The other side ended the connection where a frame was due.
    #[error("the other side closed the connection")]
    Closed,
    /// A frame of a kind that this version does not know.
    #[error("a frame has the unknown kind {0}")]
    UnknownKind(u8),
    /// A frame of a known kind at the wrong moment.
    #[error("a {found:?} frame came where {expected} was due")]
    Unexpected {
        /// What came.
        found: Kind,
        /// What should have come.
        expected: &'static str,
    },
    /// A frame that is longer than any may be.
    #[error("a frame of {0} bytes is longer than the limit of {MAX_PAYLOAD_BYTES}")]
    TooLong(u64),
    /// A payload that is no valid message.
    #[error("a {kind:?} frame does not hold a valid message: {source}")]
    Json {
        /// The frame's kind.
        kind: Kind,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A payload that is no valid Arrow data.
    #[error("a frame does not hold valid Arrow data: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// Fewer descriptors came than were announced.
    #[error("{found} descriptors came where {expected} were announced")]
    Descriptors {
        /// How many came.
        found: usize,
        /// How many should have come.
        expected: usize,
    },
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        ErrorReport::new(Code::PROTOCOL, self.to_string())
    }
}
