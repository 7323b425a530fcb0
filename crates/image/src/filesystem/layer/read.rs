//! Converts members of an archive to changes of a tree; writes contents to the blob of the layer.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use tar::EntryType;

use super::archive::{Archive, ArchiveMember, number, unreadable, wrong};
use super::pax::{self, PaxRecords};
use super::{LayerLimits, decompress};
use crate::block::{BlobSummary, BlobWriter, OciDigest};
use crate::filesystem::erofs::UNIT;
use crate::filesystem::tree::{
    Attributes, EntryPath, Extent, FileKind, LayerChange, LayerEntry, LinkTarget, MAX_NAME_BYTES,
    Time, Xattrs,
};
use crate::{Error, Result};

const WHITEOUT: &[u8] = b".wh.";
/// The prefix of names of an obsolete union file system, which are ignored. Only the name that
/// marks an opaque folder also has this prefix and is not ignored.
const WHITEOUT_META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Linux's XATTR_SIZE_MAX; the inode's word count allows little more for all attributes together.
const MAX_XATTR_BYTES: usize = 64 << 10;
const MAX_LINK_BYTES: usize = 4095;

/// A converted layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer {
    /// SHA-256 of the uncompressed archive, as in the image's configuration.
    pub diff_id: OciDigest,
    /// The contents of all its files.
    pub blob: BlobSummary,
    /// The changes to the layers below.
    pub entries: Vec<LayerEntry>,
    /// The number of device nodes that were omitted.
    pub devices: u64,
}

/// Reads a layer with any compression to its end; writes contents to `blob`.
pub fn read_layer<W: Write>(
    stream: impl Read,
    limits: LayerLimits,
    mut blob: BlobWriter<W>,
) -> Result<(Layer, W)> {
    let plain = decompress(stream).map_err(unreadable)?;
    let mut archive = Archive::new(Hashing::new(plain), limits);
    let mut reader = LayerReader { limits, entries: Vec::new(), metadata_bytes: 0, devices: 0 };
    while let Some(member) = archive.next()? {
        reader.member(member, &mut archive, &mut blob)?;
    }
    let diff_id = OciDigest::from_hasher(archive.finish()?.hasher);
    let (blob, out) = blob.finish()?;
    Ok((Layer { diff_id, blob, entries: reader.entries, devices: reader.devices }, out))
}

struct LayerReader {
    limits: LayerLimits,
    entries: Vec<LayerEntry>,
    metadata_bytes: u64,
    devices: u64,
}

impl LayerReader {
    fn member<W: Write>(
        &mut self,
        member: ArchiveMember,
        archive: &mut Archive<impl Read>,
        blob: &mut BlobWriter<W>,
    ) -> Result<()> {
        let path = EntryPath::parse(&member.path)?;
        self.count(&member)?;
        if let Some(change) = whiteout(&path)? {
            return self.push(change);
        }
        let change = match member.header.entry_type() {
            EntryType::Link => LayerChange::Link(EntryPath::parse(&member.link)?),
            EntryType::Char | EntryType::Block => {
                self.devices += 1;
                return Ok(());
            }
            _ => {
                LayerChange::Put(kind(&path, &member, archive, blob)?, attributes(&path, &member)?)
            }
        };
        self.push(Some(LayerEntry { path, change }))
    }

    fn push(&mut self, entry: Option<LayerEntry>) -> Result<()> {
        self.entries.extend(entry);
        LayerLimits::check(self.entries.len() as u64, self.limits.entries, "a layer", "entries")
    }

    fn count(&mut self, member: &ArchiveMember) -> Result<()> {
        let records: usize =
            member.records.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.metadata_bytes += (member.path.len() + member.link.len() + records) as u64;
        let limit = self.limits.metadata_bytes;
        LayerLimits::check(self.metadata_bytes, limit, "a layer", "bytes of names and attributes")
    }
}

/// Returns the change that a whiteout represents: `None` if the path is no whiteout, `Some(None)`
/// for a whiteout that is ignored.
fn whiteout(path: &EntryPath) -> Result<Option<Option<LayerEntry>>> {
    let Some((_, name)) = path.split() else { return Ok(None) };
    if name == OPAQUE {
        return Ok(Some(Some(LayerEntry {
            path: path.parent(),
            change: LayerChange::HideContent,
        })));
    }
    if name.starts_with(WHITEOUT_META) {
        return Ok(Some(None));
    }
    match name.strip_prefix(WHITEOUT) {
        None => Ok(None),
        Some(b"" | b"." | b"..") => {
            Err(Error::refused(format!("the entry `{path}`"), "it is a whiteout without a name"))
        }
        Some(hidden) => {
            Ok(Some(Some(LayerEntry { path: path.renamed(hidden), change: LayerChange::Hide })))
        }
    }
}

fn kind<W: Write>(
    path: &EntryPath,
    member: &ArchiveMember,
    archive: &mut Archive<impl Read>,
    blob: &mut BlobWriter<W>,
) -> Result<FileKind> {
    let refuse = |reason: String| Err(Error::refused(format!("the entry `{path}`"), reason));
    match member.header.entry_type() {
        EntryType::Directory => Ok(FileKind::Folder),
        EntryType::Fifo => Ok(FileKind::Fifo),
        EntryType::Symlink if member.link.is_empty() => refuse("it has no link target".to_owned()),
        EntryType::Symlink if member.link.len() > MAX_LINK_BYTES || member.link.contains(&0) => {
            refuse("its link target is invalid".to_owned())
        }
        EntryType::Symlink => Ok(FileKind::Symlink(LinkTarget(member.link.clone()))),
        // The form of folders in old archives.
        EntryType::Regular if member.path.ends_with(b"/") => Ok(FileKind::Folder),
        EntryType::Regular | EntryType::Continuous => content(member.size, archive, blob),
        other => refuse(format!("its type {:?} is unknown", char::from(other.as_byte()))),
    }
}

fn content<W: Write>(
    size: u64,
    archive: &mut Archive<impl Read>,
    blob: &mut BlobWriter<W>,
) -> Result<FileKind> {
    if size == 0 {
        return Ok(FileKind::File(Extent::default()));
    }
    let block = blob.position() / UNIT as u64;
    let mut buffer = [0; 64 << 10];
    loop {
        let count = archive.read_content(&mut buffer)?;
        if count == 0 {
            break;
        }
        blob.append(&buffer[..count])?;
    }
    blob.align(UNIT)?;
    Ok(FileKind::File(Extent { size, block }))
}

fn attributes(path: &EntryPath, member: &ArchiveMember) -> Result<Attributes> {
    let header = &member.header;
    let records = &member.records;
    let id = |key: &str, bytes: &[u8], field: io::Result<u64>| -> Result<u32> {
        let found = match number(records, key)? {
            Some(id) => id,
            None => or_zero(bytes, field, "an owner is not a number")?,
        };
        u32::try_from(found).map_err(|_| wrong("an owner does not fit into 32 bits"))
    };
    let fields = header.as_old();
    let mode = match header.entry_type() {
        // Linux has no other mode for links; the archive's mode is ignored.
        EntryType::Symlink => 0o777,
        _ => or_zero(&fields.mode, header.mode(), "a mode is not a number")?,
    };
    Ok(Attributes {
        mode: (mode & 0o7777) as u16,
        uid: id("uid", &fields.uid, header.uid())?,
        gid: id("gid", &fields.gid, header.gid())?,
        mtime: mtime(member)?,
        xattrs: xattrs(path, records)?,
    })
}

fn mtime(member: &ArchiveMember) -> Result<Time> {
    match member.records.get(&b"mtime"[..]) {
        Some(text) => pax::time(text).ok_or_else(|| wrong("a time is not a number")),
        None => {
            let field = &member.header.as_old().mtime;
            let seconds = or_zero(field, member.header.mtime(), "a time is not a number")?;
            Ok(Time { seconds: seconds as i64, nanos: 0 })
        }
    }
}

/// Parses a number. A blank field is zero, as in other readers.
fn or_zero<T: Default>(bytes: &[u8], field: io::Result<T>, reason: &str) -> Result<T> {
    if bytes.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(T::default());
    }
    field.map_err(|_| wrong(reason))
}

/// Collects the extended attributes of an entry. Only namespaces are accepted that a read-only file
/// system can store. Others are refused, because a program may rely on them.
fn xattrs(path: &EntryPath, records: &PaxRecords) -> Result<Xattrs> {
    let refuse = |reason: &str| {
        Err(Error::refused(format!("the entry `{path}`"), format!("its attributes {reason}")))
    };
    let mut found = Xattrs::new();
    for (key, value) in records {
        let Some(name) = key.strip_prefix(pax::XATTR) else { continue };
        if name.len() > MAX_NAME_BYTES || name.contains(&0) {
            return refuse("have an invalid name");
        }
        if crate::filesystem::erofs::xattr_prefix(name).is_none() {
            return refuse(&format!("have `{}`, of an unknown namespace", name.escape_ascii()));
        }
        found.insert(name.to_vec(), value.clone());
    }
    let bytes: usize = found.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    if bytes > MAX_XATTR_BYTES {
        return refuse("are longer than 64 KiB");
    }
    Ok(found)
}

struct Hashing<R> {
    stream: R,
    hasher: sha2::Sha256,
}

impl<R: Read> Hashing<R> {
    fn new(stream: R) -> Self {
        Self { stream, hasher: sha2::Sha256::new() }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::block::BlockSize;

    fn read(bytes: &[u8], limits: LayerLimits) -> Result<Layer> {
        let blob = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
        read_layer(bytes, limits, blob).map(|(layer, _)| layer)
    }

    fn archive(members: &[(&str, EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, link, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o4755);
            header.set_mtime(7);
            // Written directly: a builder would refuse malicious names.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn detects_whiteouts() {
        let members = [
            ("d/.wh.gone", EntryType::Regular, "", &b""[..]),
            ("d/.wh..wh..opq", EntryType::Regular, "", b""),
            (".wh..wh.plnk", EntryType::Directory, "", b""),
        ];
        let layer = read(&archive(&members), LayerLimits::default()).unwrap();
        let found: Vec<_> =
            layer.entries.iter().map(|entry| (entry.path.to_string(), &entry.change)).collect();
        let expected = [
            ("/d/gone".to_owned(), &LayerChange::Hide),
            ("/d".to_owned(), &LayerChange::HideContent),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn refuses_paths_outside_the_root_and_omits_devices() {
        for path in ["../a", "a/../../b", ".wh.", ".wh..."] {
            let bad = archive(&[(path, EntryType::Regular, "", b"x")]);
            read(&bad, LayerLimits::default()).unwrap_err();
        }
        let link = archive(&[("a", EntryType::Link, "../../etc/shadow", b"")]);
        read(&link, LayerLimits::default()).unwrap_err();
        let device = archive(&[("sda", EntryType::Block, "", b"")]);
        let layer = read(&device, LayerLimits::default()).unwrap();
        assert_eq!((layer.entries.len(), layer.devices), (0, 1));
    }

    #[test]
    fn a_decompression_bomb_is_stopped_at_the_limit() {
        let zeros = vec![0; 3 << 20];
        let bomb = archive(&[("zeros", EntryType::Regular, "", &zeros)]);
        let compressed = zstd::encode_all(&bomb[..], 3).unwrap();
        assert!(compressed.len() < 2000);
        let limits = LayerLimits { bytes: 1 << 20, ..LayerLimits::default() };
        assert!(matches!(read(&compressed, limits), Err(Error::Limit { .. })));
        let limits = LayerLimits { entries: 1, ..LayerLimits::default() };
        let many = archive(&[("a", EntryType::Fifo, "", b""), ("b", EntryType::Fifo, "", b"")]);
        assert!(matches!(read(&many, limits), Err(Error::Limit { .. })));
    }

    #[test]
    fn a_truncated_layer_is_refused() {
        let whole = archive(&[("a", EntryType::Regular, "", &[1; 5000])]);
        for end in [100, 512, 2000, 5000, 512 + 5000 + 100] {
            read(&whole[..end], LayerLimits::default()).unwrap_err();
        }
    }

    #[test]
    fn files_begin_at_block_boundaries() {
        let members = [
            ("a", EntryType::Regular, "", &[1; 5000][..]),
            ("empty", EntryType::Regular, "", b""),
            ("b", EntryType::Regular, "", &[2; 10]),
        ];
        let layer = read(&archive(&members), LayerLimits::default()).unwrap();
        let extents: Vec<_> = layer
            .entries
            .iter()
            .map(|entry| match &entry.change {
                LayerChange::Put(FileKind::File(extent), _) => (extent.block, extent.size),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(extents, [(0, 5000), (0, 0), (2, 10)]);
        assert_eq!(layer.blob.raw_size, 3 * 4096);
    }

    proptest! {
        #[test]
        fn never_panics_on_damaged_archives(at in 0usize..3000, value in any::<u8>()) {
            let members = [("a/b", EntryType::Regular, "", &b"text"[..]), ("l", EntryType::Symlink, "a", b"")];
            let mut bytes = archive(&members);
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = read(&bytes, LayerLimits::default());
        }
    }
}
