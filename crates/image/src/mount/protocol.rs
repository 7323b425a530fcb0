//! Requests and replies of FUSE (Linux, include/uapi/linux/fuse.h, version 7.31 and later), in the
//! byte order of the machine.

use rustix::io::Errno;

/// Bytes before every request's own.
const IN_HEADER: usize = 40;
/// Bytes before every reply's own.
pub(super) const OUT_HEADER: usize = 16;
/// The folder with the files.
pub(super) const ROOT: u64 = 1;

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// What every mount wants of the kernel: several reads and lookups at once, large ones.
const ALWAYS: u32 = 1 | 1 << 15 | 1 << 18 | 1 << 22;
/// Pages of a read at most: 1 MiB.
const READ_PAGES: u16 = 256;
/// Requests under way before the kernel queues the rest.
const BACKGROUND: u16 = 64;
/// Replies about names and attributes hold for ever: nothing changes.
pub(super) const FOREVER: u64 = 1 << 32;
const KEEP_CACHE: u32 = 1 << 1;
const NO_FLUSH: u32 = 1 << 5;

/// What the kernel asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
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
    /// Names of a folder, in at most so many bytes.
    List {
        node: u64,
        offset: u64,
        size: u32,
        with_attributes: bool,
    },
    /// An extended attribute; only its length if `size` is 0.
    GetXattr {
        node: u64,
        size: u32,
        name: Vec<u8>,
    },
    /// Their names, for a user.
    ListXattrs {
        node: u64,
        size: u32,
        user: u32,
    },
    Statistics,
    Flush,
    /// Answered by nothing but success.
    Nothing,
    /// Not answered at all.
    Silent,
    /// Not there.
    Unknown,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub unique: u64,
    pub ask: Ask,
}

impl Request {
    /// `None` for what is too short to be one: then the two sides speak different protocols.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(IN_HEADER)?;
        let (opcode, unique, node) = (u32_at(head, 4)?, u64_at(head, 8)?, u64_at(head, 16)?);
        let ask = match opcode {
            26 => Ask::Init { flags: u32_at(body, 12)? },
            1 => Ask::Lookup { folder: node, name: text_at(body, 0)? },
            3 => Ask::GetAttributes { node },
            5 => Ask::ReadLink { node },
            // open, opendir
            14 | 27 => Ask::Open,
            15 => Ask::Read { node, offset: u64_at(body, 8)?, size: u32_at(body, 16)? },
            17 => Ask::Statistics,
            22 => Ask::GetXattr { node, size: u32_at(body, 0)?, name: text_at(body, 8)? },
            23 => Ask::ListXattrs { node, size: u32_at(body, 0)?, user: u32_at(head, 24)? },
            25 => Ask::Flush,
            // readdir, readdirplus
            28 | 44 => Ask::List {
                node,
                offset: u64_at(body, 8)?,
                size: u32_at(body, 16)?,
                with_attributes: opcode == 44,
            },
            // release, releasedir, destroy
            18 | 29 | 38 => Ask::Nothing,
            // forget, batch_forget, interrupt
            2 | 42 | 36 => Ask::Silent,
            _ => Ask::Unknown,
        };
        Some(Self { unique, ask })
    }
}

/// The header of a reply; `error` is an errno.
pub(super) fn header(unique: u64, error: i32, body: usize) -> [u8; OUT_HEADER] {
    let mut bytes = [0; OUT_HEADER];
    bytes[..4].copy_from_slice(&((OUT_HEADER + body) as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// The notice by which the kernel gives all requests that were taken and not answered once more.
pub(super) fn resend() -> [u8; OUT_HEADER] {
    const RESEND: i32 = 7;
    // A notice is a reply to nothing; its code stands where a reply has its errno.
    header(0, -RESEND, 0)
}

/// The reply to `init`: what is wanted of what the kernel has, and how far it may read ahead.
pub(super) fn init(has: u32, wanted: u32, ahead: u32) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u32(MAJOR).u32(MINOR);
    reply.u32(ahead).u32(has & (ALWAYS | wanted));
    reply.u16(BACKGROUND).u16(BACKGROUND * 3 / 4);
    // Largest write, granularity of times, pages of a read.
    reply.u32(4096).u32(1).u16(READ_PAGES);
    reply.0.resize(64, 0);
    reply.0
}

/// The reply to `open`.
pub(super) fn opened() -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(0).u32(KEEP_CACHE | NO_FLUSH).u32(0);
    reply.0
}

/// The reply to `lookup`.
pub(super) fn found(node: u64, size: u64) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(node).u64(0).u64(FOREVER).u64(FOREVER).u32(0).u32(0);
    reply.attributes(node, size);
    reply.0
}

/// The reply to `getattr`.
pub(super) fn attributes(node: u64, size: u64) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(FOREVER).u32(0).u32(0);
    reply.attributes(node, size);
    reply.0
}

/// The reply to `getxattr` and `listxattr`: the length where the kernel has no room, which it asks
/// for first.
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

/// A reply's own bytes.
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
        // Three times, with their parts of a second.
        self.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        // Mode, links, user, group, device, block size, flags.
        self.u32(mode).u32(1).u32(0).u32(0).u32(0).u32(4096).u32(0);
    }
}

/// A name, which a zero byte ends.
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
    fn a_request_that_is_cut_off_is_none() {
        let mut read = vec![0; IN_HEADER + 40];
        read[4] = 15;
        read[IN_HEADER + 16] = 7;
        let request = Request::parse(&read).unwrap();
        assert_eq!(request.ask, Ask::Read { node: 0, offset: 0, size: 7 });
        assert!((0..IN_HEADER + 20).all(|end| Request::parse(&read[..end]).is_none()));
    }
}
