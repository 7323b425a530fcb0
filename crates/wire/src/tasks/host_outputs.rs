//! The protocol of a connection over which a task reads outputs on another host.
//!
//! The reader sends a [`ReadRange`] for each range that it wants, as many as it likes before the
//! first answer. The answers come in the order of the requests: the length of the range (8 bytes,
//! little endian), then its bytes. A request that is not allowed ends the connection.
//!
//! Invariant: a request names an output by its place in the list with which the connection was
//! opened, so a reader can name no other.

use serde::{Deserialize, Serialize};

/// The bytes of an encoded [`ReadRange`].
pub const READ_BYTES: usize = 24;

/// The longest range of one request.
pub const MAX_READ_BYTES: u64 = 4 << 20;

/// The outputs that can be read over one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOutputs {
    /// The name of the host, for messages.
    pub host: String,
    /// The tasks; the place in this list names an output in requests.
    pub tasks: Vec<u32>,
}

/// A request for a range of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The place of the task in [`HostOutputs::tasks`].
    pub output: u32,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes, at most [`MAX_READ_BYTES`].
    pub length: u64,
}

impl ReadRange {
    /// The request as it is sent: three numbers of 8 bytes, little endian.
    pub fn encode(self) -> [u8; READ_BYTES] {
        let mut bytes = [0; READ_BYTES];
        bytes[..8].copy_from_slice(&u64::from(self.output).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// The request in these bytes; `None` if its numbers are too large for one.
    pub fn decode(bytes: &[u8; READ_BYTES]) -> Option<Self> {
        let number = |from: usize| {
            let mut one = [0; 8];
            one.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(one)
        };
        let output = u32::try_from(number(0)).ok()?;
        let offset = number(8);
        let length = number(16);
        (length <= MAX_READ_BYTES).then_some(Self { output, offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        let range = ReadRange { output: 7, offset: 1 << 40, length: MAX_READ_BYTES };
        assert_eq!(ReadRange::decode(&range.encode()), Some(range));
    }

    #[test]
    fn a_range_that_is_too_long_is_refused() {
        let range = ReadRange { output: 0, offset: 0, length: MAX_READ_BYTES + 1 };
        assert_eq!(ReadRange::decode(&range.encode()), None);
        assert_eq!(ReadRange::decode(&[255; READ_BYTES]), None);
    }
}
