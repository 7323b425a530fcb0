//! Requests and replies of FUSE (Linux, include/uapi/linux/fuse.h, version 7.31 and later), in the
//! machine's byte order.

use rustix::io::Errno;

/// The bytes of a request's header.
const IN_HEADER: usize = 40;
/// The bytes of a reply's header.
pub(super) const OUT_HEADER: usize = 16;
/// The node number of the root folder.
pub(super) const ROOT: u64 = 1;

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Flags that every mount requests from the kernel: concurrent reads and lookups, large reads.
const ALWAYS: u32 = 1 | 1 << 15 | 1 << 18 | 1 << 22;
/// The maximum size of a read in pages: 1 MiB.
const READ_PAGES: u16 = 256;
/// The number of requests in flight before the kernel queues more.
const BACKGROUND: u16 = 64;
/// The time in seconds for which names and attributes are valid: nothing changes.
pub(super) const FOREVER: u64 = 1 << 32;
const KEEP_CACHE: u32 = 1 << 1;
const NO_FLUSH: u32 = 1 << 5;

/// The operation of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FuseOperation {
    Init {
        flags: u32,
    },
    Lookup {
        folder: u64,
        name: Vec<u8>,
    },
    GetAttributes {
        node: u64,
    },
    ReadLink {
        node: u64,
    },
    Open,
    Read {
        node: u64,
        offset: u64,
        size: u32,
    },
    /// Lists names of a folder, in at most `size` bytes.
    List {
        node: u64,
        offset: u64,
        size: u32,
        with_attributes: bool,
    },
    /// Reads an extended attribute; only its length if `size` is 0.
    GetXattr {
        node: u64,
        size: u32,
        name: Vec<u8>,
    },
    /// Lists the names of the extended attributes; `user` is the caller's user id.
    ListXattrs {
        node: u64,
        size: u32,
        user: u32,
    },
    Statistics,
    Flush,
    /// An operation that is answered with success and no data.
    Ignored,
    /// An operation that is not answered.
    NoReply,
    /// An operation that is not supported.
    Unknown,
}

/// A FUSE request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FuseRequest {
    pub unique: u64,
    pub operation: FuseOperation,
}

impl FuseRequest {
    /// Parses a request; `None` if it is too short, which means that the protocol versions differ.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(IN_HEADER)?;
        let opcode = u32_at(head, 4)?;
        let unique = u64_at(head, 8)?;
        let node = u64_at(head, 16)?;
        let operation = match opcode {
            26 => FuseOperation::Init { flags: u32_at(body, 12)? },
            1 => FuseOperation::Lookup { folder: node, name: text_at(body, 0)? },
            3 => FuseOperation::GetAttributes { node },
            5 => FuseOperation::ReadLink { node },
            // open, opendir
            14 | 27 => FuseOperation::Open,
            15 => FuseOperation::Read { node, offset: u64_at(body, 8)?, size: u32_at(body, 16)? },
            17 => FuseOperation::Statistics,
            22 => FuseOperation::GetXattr { node, size: u32_at(body, 0)?, name: text_at(body, 8)? },
            23 => {
                FuseOperation::ListXattrs { node, size: u32_at(body, 0)?, user: u32_at(head, 24)? }
            }
            25 => FuseOperation::Flush,
            // readdir, readdirplus
            28 | 44 => FuseOperation::List {
                node,
                offset: u64_at(body, 8)?,
                size: u32_at(body, 16)?,
                with_attributes: opcode == 44,
            },
            // release, releasedir, destroy
            18 | 29 | 38 => FuseOperation::Ignored,
            // forget, batch_forget, interrupt
            2 | 42 | 36 => FuseOperation::NoReply,
            _ => FuseOperation::Unknown,
        };
        Some(Self { unique, operation })
    }
}

/// Encodes the header of a reply; `error` is an errno.
pub(super) fn header(unique: u64, error: i32, body: usize) -> [u8; OUT_HEADER] {
    let mut bytes = [0; OUT_HEADER];
    bytes[..4].copy_from_slice(&((OUT_HEADER + body) as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// Encodes the notification that makes the kernel resend all requests that were read but not
/// answered.
pub(super) fn resend() -> [u8; OUT_HEADER] {
    const RESEND: i32 = 7;
    // A notification is a reply without a request; its code takes the place of the errno.
    header(0, -RESEND, 0)
}

/// Encodes the reply to `init`: the wanted flags among those that the kernel supports, and its
/// read-ahead limit.
pub(super) fn init(supported: u32, wanted: u32, read_ahead: u32) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u32(MAJOR).u32(MINOR);
    reply.u32(read_ahead).u32(supported & (ALWAYS | wanted));
    reply.u16(BACKGROUND).u16(BACKGROUND * 3 / 4);
    // Maximum write, time granularity, maximum pages of a read.
    reply.u32(4096).u32(1).u16(READ_PAGES);
    reply.0.resize(64, 0);
    reply.0
}

/// Encodes the reply to `open`.
pub(super) fn opened() -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(0).u32(KEEP_CACHE | NO_FLUSH).u32(0);
    reply.0
}

/// Encodes the reply to `lookup`.
pub(super) fn found(node: u64, size: u64) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(node).u64(0).u64(FOREVER).u64(FOREVER).u32(0).u32(0);
    reply.attributes(node, size);
    reply.0
}

/// Encodes the reply to `getattr`.
pub(super) fn attributes(node: u64, size: u64) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(FOREVER).u32(0).u32(0);
    reply.attributes(node, size);
    reply.0
}

/// Encodes the reply to `getxattr` and `listxattr`: the value, or its length if `room` is 0, which
/// the kernel requests first.
pub(super) fn sized(value: &[u8], room: u32) -> Result<Vec<u8>, Errno> {
    match room {
        0 => {
            let mut reply = Reply::default();
            reply.u32(value.len() as u32).u32(0);
            Ok(reply.0)
        }
        room if value.len() <= room as usize => Ok(value.to_vec()),
        _ => Err(Errno::RANGE),
    }
}

/// The body of a reply.
#[derive(Default)]
pub(super) struct Reply(pub Vec<u8>);

impl Reply {
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn attributes(&mut self, node: u64, size: u64) {
        let mode = if node == ROOT { 0o040_500 } else { 0o100_400 };
        self.u64(node).u64(size).u64(size.div_ceil(512));
        // Three times, then their nanoseconds.
        self.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        // Mode, links, user, group, device, block size, flags.
        self.u32(mode).u32(1).u32(0).u32(0).u32(0).u32(4096).u32(0);
    }
}

/// Reads a name that is terminated by a zero byte.
fn text_at(bytes: &[u8], at: usize) -> Option<Vec<u8>> {
    let bytes = bytes.get(at..)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(bytes[..end].to_vec())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_kernels_lengths() {
        let lengths =
            [init(!0, 0, 0).len(), found(2, 9).len(), attributes(2, 9).len(), opened().len()];
        assert_eq!(lengths, [64, 40 + 88, 16 + 88, 16]);
    }

    #[test]
    fn refuses_a_truncated_request() {
        let mut read = vec![0; IN_HEADER + 40];
        read[4] = 15;
        read[IN_HEADER + 16] = 7;
        let request = FuseRequest::parse(&read).unwrap();
        assert_eq!(request.operation, FuseOperation::Read { node: 0, offset: 0, size: 7 });
        assert!((0..IN_HEADER + 20).all(|end| FuseRequest::parse(&read[..end]).is_none()));
    }
}
