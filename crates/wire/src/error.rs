//! Errors of the communication between two processes.

use snowmelt_types::{Code, ErrorReport, Report};

use crate::{Kind, MAX_PAYLOAD_BYTES};

/// A communication error. All but [`Error::Io`] and [`Error::Closed`] mean that the other side
/// violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The connection has ended: the other side closed it where a frame was expected.
    #[error("the other side closed the connection")]
    Closed,
    /// The frame's kind is unknown to this version.
    #[error("a frame has the unknown kind {0}")]
    UnknownKind(u8),
    /// The frame's kind is not expected at this point.
    #[error("received a {found:?} frame, expected {expected}")]
    Unexpected {
        /// The kind of the received frame.
        found: Kind,
        /// The kind expected.
        expected: &'static str,
    },
    /// The frame is longer than the limit.
    #[error("a frame of {0} bytes is longer than the limit of {MAX_PAYLOAD_BYTES}")]
    TooLong(u64),
    /// The payload is not a valid message.
    #[error("a {kind:?} frame does not hold a valid message: {source}")]
    Json {
        /// The frame's kind.
        kind: Kind,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The payload is not valid Arrow data.
    #[error("a frame does not hold valid Arrow data: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The number of descriptors is wrong.
    #[error("received {found} descriptors, expected {expected}")]
    Descriptors {
        /// The number of received descriptors.
        found: usize,
        /// The number expected.
        expected: usize,
    },
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        ErrorReport::new(Code::PROTOCOL, self.to_string())
    }
}
