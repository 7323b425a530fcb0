//! Requests the files of an image as the kernel does, and checks each reply by the kernel's rules.

use snowmelt_image::mount::Unmounted;

const LOOKUP: u8 = 1;
const ATTRIBUTES: u8 = 3;
const LINK: u8 = 5;
const READ: u8 = 15;
const STATISTICS: u8 = 17;
const XATTR: u8 = 22;
const XATTRS: u8 = 23;
const LIST: u8 = 28;
const LIST_PLUS: u8 = 44;
/// Opcodes whose replies depend on the image.
pub const OPCODES: [u8; 9] =
    [LOOKUP, ATTRIBUTES, LINK, READ, STATISTICS, XATTR, XATTRS, LIST, LIST_PLUS];

const FOLDER: u8 = 0o4;
const FILE: u8 = 0o10;
const SYMLINK: u8 = 0o12;

const ROOT: u64 = 1;
const ENTRY_BYTES: u32 = 128;
const MAX_LINK_BYTES: u32 = 4095;
/// A buffer for the largest attributes that an inode can have.
const XATTR_ROOM: u32 = 1 << 20;
/// EIO, EINVAL, ERANGE, ENOSYS, ENODATA.
const ERRNOS: [i32; 5] = [5, 22, 34, 38, 61];

/// A FUSE request.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub opcode: u8,
    pub node: u64,
    pub offset: u64,
    pub room: u32,
    pub name: &'a [u8],
}

impl Request<'_> {
    pub fn of(opcode: u8, node: u64) -> Self {
        Self { opcode, node, offset: 0, room: 4096, name: b"" }
    }

    fn encode(&self) -> Vec<u8> {
        let head = [
            &[0; 4][..],
            &u32::from(self.opcode).to_ne_bytes(),
            &[0; 8],
            &self.node.to_ne_bytes(),
            &[0; 16],
        ];
        let room = self.room.to_ne_bytes();
        let name = [self.name, &[0]].concat();
        let body = match self.opcode {
            LOOKUP => name,
            XATTR | XATTRS => [&room[..], &[0; 4], &name].concat(),
            _ => [&[0; 8][..], &self.offset.to_ne_bytes(), &room, &[0; 20]].concat(),
        };
        [&head.concat()[..], &body].concat()
    }

    /// The size of the kernel's buffer for the reply.
    fn buffer(&self) -> u32 {
        match self.opcode {
            LOOKUP | ATTRIBUTES | STATISTICS => ENTRY_BYTES,
            LINK => MAX_LINK_BYTES,
            // Only the length.
            XATTR | XATTRS if self.room == 0 => 8,
            _ => self.room,
        }
    }
}

/// An entry of a listing.
struct Listed {
    name: Vec<u8>,
    number: u64,
    next: u64,
    /// The file's attributes, if the listing includes them.
    entry: Option<Vec<u8>>,
}

/// The files, and all numbers that were listed.
pub struct Kernel {
    files: Unmounted,
    pub known: Vec<u64>,
}

impl Kernel {
    pub fn new(metadata: &[u8], layers: &[u64]) -> Self {
        Self { files: Unmounted::new(metadata, layers), known: vec![ROOT] }
    }

    /// Sends any request.
    pub fn try_any(&self, request: Request<'_>) {
        match request.opcode {
            LIST | LIST_PLUS => drop(self.list(request)),
            _ => drop(self.send(request)),
        }
    }

    /// `None` if the reply is an error, which a process that reads the file would receive.
    fn send(&self, request: Request<'_>) -> Option<Vec<u8>> {
        let before = self.files.reads();
        let reply = self.files.request(&request.encode()).expect("it is answered");
        // A lookup is a binary search over at most 2^52 blocks; a listed name takes 32 bytes, and a
        // block contains at least one.
        assert!(self.files.reads() - before <= 60 + u64::from(request.room / 16));
        match reply {
            Ok(bytes) => {
                assert!(bytes.len() <= request.buffer() as usize);
                Some(bytes)
            }
            Err(errno) => {
                assert!(ERRNOS.contains(&errno), "{errno}");
                None
            }
        }
    }

    /// The names of a folder from an offset on, as many as fit into the buffer.
    fn list(&self, request: Request<'_>) -> Option<Vec<Listed>> {
        let reply = self.send(request)?;
        let mut at = request.offset;
        let mut rest = &reply[..];
        let mut listed = Vec::new();
        while !rest.is_empty() {
            let one = take(&mut rest, request.opcode == LIST_PLUS);
            assert!(one.next > at, "offsets in a listing increase");
            assert!((1..256).contains(&one.name.len()), "{:?}", one.name);
            assert!(!one.name.iter().any(|byte| matches!(byte, 0 | b'/')), "{:?}", one.name);
            at = one.next;
            listed.push(one);
        }
        Some(listed)
    }

    /// Reads everything about the first files that can be reached from the root. If the image is
    /// `whole`, no reply may be an error.
    pub fn walk(&mut self, whole: bool) {
        self.must(whole, Request::of(STATISTICS, ROOT));
        let mut at = 0;
        while let Some(node) = self.known.get(at).copied().filter(|_| at < 32) {
            let kind = self.file(node, whole);
            self.xattrs(node, whole);
            let link = self.send(Request::of(LINK, node));
            assert!(link.is_some() == (kind == SYMLINK) || !whole);
            self.folder(node, whole && kind == FOLDER);
            at += 1;
        }
    }

    /// Reads a file's attributes and bytes; returns its type.
    fn file(&self, node: u64, whole: bool) -> u8 {
        let attributes = self.must(whole, Request::of(ATTRIBUTES, node)).unwrap_or_default();
        let number = |at: usize| attributes.get(at..at + 8).and_then(|it| it.first_chunk::<8>());
        let size = number(24).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let kind = attributes.get(77).map_or(0, |upper| upper >> 4);
        for offset in [0, size.saturating_sub(1), size, u64::MAX] {
            let read = self.must(whole, Request { offset, ..Request::of(READ, node) });
            let expected = if kind == FILE { size.saturating_sub(offset).min(4096) } else { 0 };
            assert!(read.is_none_or(|read| read.len() as u64 == expected));
        }
        kind
    }

    fn xattrs(&self, node: u64, whole: bool) {
        self.must(whole, Request { room: 0, ..Request::of(XATTRS, node) });
        let names = self.must(whole, Request { room: XATTR_ROOM, ..Request::of(XATTRS, node) });
        let names = names.unwrap_or_default();
        for name in names.split_inclusive(|byte| *byte == 0).take(4) {
            let name = name.strip_suffix(&[0]).expect("each name has an end");
            assert!((1..256).contains(&name.len()), "the kernel refuses the whole list");
            let found = self.send(Request { room: XATTR_ROOM, name, ..Request::of(XATTR, node) });
            assert!(found.is_some(), "a listed attribute can be read: {name:?}");
        }
    }

    /// Lists the first names of a folder with and without attributes, and looks each of them up.
    fn folder(&mut self, node: u64, whole: bool) {
        let mut offset = 0;
        for _ in 0..4 {
            let plain = self.list(Request { offset, ..Request::of(LIST, node) });
            assert!(plain.is_some() || !whole, "the names of {node}");
            let plain = plain.unwrap_or_default();
            let Some(last) = plain.last() else { return };
            let plus = self
                .list(Request { offset, ..Request::of(LIST_PLUS, node) })
                .expect("it is listed");
            for (one, other) in plain.iter().zip(&plus) {
                assert!((&one.name, one.number) == (&other.name, other.number));
                self.found(node, other, whole);
            }
            plain.iter().for_each(|one| self.remember(one.number));
            offset = last.next;
        }
    }

    fn remember(&mut self, number: u64) {
        if self.known.len() < 64 && !self.known.contains(&number) {
            self.known.push(number);
        }
    }

    fn found(&self, folder: u64, listed: &Listed, whole: bool) {
        let found = self.send(Request { name: &listed.name, ..Request::of(LOOKUP, folder) });
        if whole && !matches!(&listed.name[..], b"." | b"..") {
            assert!(found.is_some() && found == listed.entry, "{:?}", listed.name);
        }
    }

    fn must(&self, whole: bool, request: Request<'_>) -> Option<Vec<u8>> {
        let reply = self.send(request);
        assert!(reply.is_some() || !whole, "opcode {} of {}", request.opcode, request.node);
        reply
    }
}

/// Removes the first entry of a listing and returns it.
fn take(rest: &mut &[u8], plus: bool) -> Listed {
    let mut next = |length: usize| {
        let (taken, left) = rest.split_at(length);
        *rest = left;
        taken
    };
    let entry = plus.then(|| next(ENTRY_BYTES as usize).to_vec());
    let head = next(24);
    let number = |at: usize| u64::from_ne_bytes(*head[at..].first_chunk().expect("eight bytes"));
    let length = number(16) as u32 as usize;
    let name = next(length.next_multiple_of(8))[..length].to_vec();
    Listed { name, number: number(0), next: number(8), entry }
}
