//! The on-disk structures of EROFS (Linux, fs/erofs/erofs_fs.h), all little-endian.

use super::field::Field;
use crate::filesystem::tree::Time;

/// The bytes of a file system block, the unit of addresses.
pub const UNIT: usize = 4096;
/// The offset of the superblock.
pub(super) const SUPER_OFFSET: usize = 1024;
const SUPER_BYTES: usize = 128;
/// The bytes of a device slot; the slots follow the superblock.
const SLOT_BYTES: usize = 128;
/// The unit in bytes in which inode numbers count offsets.
pub(super) const NID_BYTES: u64 = 32;
/// The bytes of an extended inode.
pub(super) const INODE_BYTES: usize = 64;
/// The bytes of a chunk index entry.
pub(super) const CHUNK_BYTES: usize = 8;

const MAGIC: u32 = 0xe0f5_e1e2;
const COMPAT_CHECKSUM: u32 = 1;
const COMPAT_MTIME: u32 = 2;
const INCOMPAT_CHUNKED: u32 = 4;
const INCOMPAT_DEVICES: u32 = 8;
const CHUNK_INDEXES: u32 = 0x20;
const CHUNK_BITS_MOST: u32 = 31;

/// The layout of an inode's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeLayout {
    /// Whole blocks at an address.
    Plain,
    /// The last, partial block follows the inode; the others are at an address.
    Inline,
    /// A chunk index follows the inode.
    Chunks,
}

/// File types in folder entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameType {
    File = 1,
    Folder = 2,
    Fifo = 5,
    Symlink = 7,
}

impl NameType {
    pub fn of(number: u8) -> Option<Self> {
        [Self::File, Self::Folder, Self::Fifo, Self::Symlink]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Returns the type as stat(2) encodes it: the upper bits of a mode.
    pub fn of_stat(self) -> u32 {
        match self {
            Self::File => 0o10,
            Self::Folder => 0o4,
            Self::Fifo => 0o1,
            Self::Symlink => 0o12,
        }
    }
}

/// An inode in the extended form.
pub(crate) struct Inode {
    pub layout: InodeLayout,
    pub xattr_bytes: usize,
    pub mode: u16,
    pub size: u64,
    /// The address of the content, or the format of the chunk index.
    pub union: u32,
    pub number: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    pub links: u32,
}

impl Inode {
    pub fn encode(&self) -> [u8; INODE_BYTES] {
        let layout = match self.layout {
            InodeLayout::Plain => 0,
            InodeLayout::Inline => 2,
            InodeLayout::Chunks => 4,
        };
        let mut bytes = Bytes([0; INODE_BYTES]);
        // The lowest bit marks the extended form.
        bytes.put(0, &(1u16 | layout << 1).to_le_bytes());
        bytes.put(2, &super::xattr::words(self.xattr_bytes).to_le_bytes());
        bytes.put(4, &self.mode.to_le_bytes());
        bytes.put(8, &self.size.to_le_bytes());
        bytes.put(16, &self.union.to_le_bytes());
        bytes.put(20, &self.number.to_le_bytes());
        bytes.put(24, &self.uid.to_le_bytes());
        bytes.put(28, &self.gid.to_le_bytes());
        bytes.put(32, &self.mtime.seconds.to_le_bytes());
        bytes.put(40, &self.mtime.nanos.to_le_bytes());
        bytes.put(44, &self.links.to_le_bytes());
        bytes.0
    }

    /// Decodes an inode; `None` for other forms. `bytes` has [`INODE_BYTES`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let layout = match bytes.u16_at(0) {
            1 => InodeLayout::Plain,
            5 => InodeLayout::Inline,
            9 => InodeLayout::Chunks,
            _ => return None,
        };
        Some(Self {
            layout,
            xattr_bytes: super::xattr::bytes(bytes.u16_at(2)),
            mode: bytes.u16_at(4),
            size: bytes.u64_at(8),
            union: bytes.u32_at(16),
            number: bytes.u32_at(20),
            uid: bytes.u32_at(24),
            gid: bytes.u32_at(28),
            mtime: Time { seconds: bytes.u64_at(32) as i64, nanos: bytes.u32_at(40) },
            links: bytes.u32_at(44),
        })
    }
}

/// Returns the format of a chunk index with one chunk that holds the whole file, which is
/// contiguous.
pub(super) fn chunk_form(size: u64) -> u32 {
    let units = size.div_ceil(UNIT as u64).next_power_of_two();
    CHUNK_INDEXES | units.trailing_zeros().min(CHUNK_BITS_MOST)
}

/// Encodes a chunk index entry: the device, counted from 1, and the address on it.
pub(super) fn chunk(device: u16, block: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = Bytes([0; CHUNK_BYTES]);
    bytes.put(2, &device.to_le_bytes());
    bytes.put(4, &block.to_le_bytes());
    bytes.0
}

/// The fields of the superblock.
pub(super) struct Super {
    pub root: u16,
    pub inodes: u64,
    pub blocks: u32,
    pub uuid: [u8; 16],
}

/// Returns the bytes from the start of the file system to the end of the device slots.
pub(super) fn head_bytes(devices: usize) -> usize {
    SUPER_OFFSET + SUPER_BYTES + devices * SLOT_BYTES
}

/// Writes superblock, device slots and checksum to the beginning of `image`. `devices` are the
/// devices' sizes in blocks.
pub(super) fn put_head(image: &mut [u8], super_: &Super, devices: &[u32]) {
    let mut bytes = Bytes([0; SUPER_BYTES]);
    bytes.put(0, &MAGIC.to_le_bytes());
    bytes.put(8, &(COMPAT_CHECKSUM | COMPAT_MTIME).to_le_bytes());
    bytes.put(12, &[UNIT.trailing_zeros() as u8]);
    bytes.put(14, &super_.root.to_le_bytes());
    bytes.put(16, &super_.inodes.to_le_bytes());
    bytes.put(36, &super_.blocks.to_le_bytes());
    bytes.put(48, &super_.uuid);
    let devices_bit = if devices.is_empty() { 0 } else { INCOMPAT_DEVICES };
    bytes.put(80, &(INCOMPAT_CHUNKED | devices_bit).to_le_bytes());
    bytes.put(86, &(devices.len() as u16).to_le_bytes());
    let slots = SUPER_OFFSET + SUPER_BYTES;
    bytes.put(88, &((slots / SLOT_BYTES) as u16).to_le_bytes());
    image[SUPER_OFFSET..slots].copy_from_slice(&bytes.0);
    for (index, blocks) in devices.iter().enumerate() {
        let at = slots + index * SLOT_BYTES;
        image[at + 64..at + 68].copy_from_slice(&blocks.to_le_bytes());
    }
    seal(image);
}

/// Writes the checksum of the first block.
pub(super) fn seal(image: &mut [u8]) {
    let sum = checksum(image);
    image[SUPER_OFFSET + 4..SUPER_OFFSET + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The fields of superblock and device slots that a reader needs.
pub(super) struct Head {
    pub root: u16,
    pub inodes: u64,
    /// The size of the metadata part in blocks.
    pub blocks: u32,
    /// The size of each device in blocks.
    pub devices: Vec<u32>,
}

/// Decodes superblock and device slots; `None` if [`put_head`] cannot have written them.
pub(super) fn head(image: &[u8]) -> Option<Head> {
    let bytes = image.get(SUPER_OFFSET..UNIT)?;
    let count = usize::from(bytes.u16_at(86));
    let devices_bit = if count == 0 { 0 } else { INCOMPAT_DEVICES };
    let slots = SUPER_OFFSET + SUPER_BYTES;
    let is_ours = bytes.u32_at(0) == MAGIC
        && bytes.u32_at(8) == COMPAT_CHECKSUM | COMPAT_MTIME
        && bytes[12] == UNIT.trailing_zeros() as u8
        && bytes.u32_at(40) == 0
        && bytes.u32_at(80) == INCOMPAT_CHUNKED | devices_bit
        && usize::from(bytes.u16_at(88)) == slots / SLOT_BYTES
        && bytes.u32_at(4) == checksum(image);
    let slots = image.get(slots..head_bytes(count)).filter(|_| is_ours)?;
    let devices = slots.chunks_exact(SLOT_BYTES).map(|slot| slot.u32_at(64)).collect();
    let inodes = bytes.u64_at(16);
    let blocks = bytes.u32_at(36);
    Some(Head { root: bytes.u16_at(14), inodes, blocks, devices })
}

/// Computes the checksum of an image's superblock, with the checksum field set to zero.
fn checksum(image: &[u8]) -> u32 {
    let mut bytes = image[SUPER_OFFSET..UNIT].to_vec();
    bytes[4..8].fill(0);
    crc32c(&bytes)
}

struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Bytes<N> {
    fn put(&mut self, at: usize, field: &[u8]) {
        self.0[at..at + field.len()].copy_from_slice(field);
    }
}

/// Computes CRC-32C as the kernel does: the initial value is all ones and the result is not
/// inverted. The computation is bit by bit, which suffices for three kilobytes per image.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_crc32c() {
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn one_chunk_holds_a_whole_file() {
        for (size, bits) in [(1, 0), (4096, 0), (4097, 1), (1 << 30, 18), ((1 << 30) + 1, 19)] {
            assert_eq!(chunk_form(size), 0x20 | bits, "{size}");
        }
    }
}
