//! Converts a folder on this machine to the archive of a layer, ordered by names, so that equal
//! folders produce equal bytes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tar::{EntryType, Header};

use crate::filesystem::tree::EntryPath;

/// The options with which a folder is converted to a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackOptions {
    /// The path of the folder's content in the image.
    pub at: EntryPath,
    /// Owners and times of the files.
    pub stamp: Stamp,
    /// Omits non-empty folders with default attributes: the image implies them, and where the image
    /// has a link instead (for example `/lib`), the link is kept.
    pub implied_folders: bool,
}

/// The attributes of files that are taken from this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Owners and times of this machine.
    #[default]
    Kept,
    /// The times of this machine, with root as the owner: for files of an archive, such as a
    /// package.
    Root,
    /// Only the attributes that Git stores: content, links and executable bits. Owned by root, mode
    /// 755 or 644, changed at the beginning of 1980, the earliest time that every archive format
    /// supports. Equal contents thus produce equal layers, wherever and whenever they were checked
    /// out.
    Fixed,
}

const FIXED_SECONDS: i64 = 315_532_800;

/// A file's attributes in the layer.
struct Stamped {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Writes the archive of a folder.
pub(super) fn write(root: &Path, shape: &PackOptions, out: impl Write) -> io::Result<()> {
    let out = io::BufWriter::new(out);
    let mut archive = Archive { out, shape, links: HashMap::new() };
    let top = shape
        .at
        .names()
        .iter()
        .fold(PathBuf::from("."), |path, name| path.join(OsStr::from_bytes(name)));
    archive.member(root, &top)?;
    // An archive ends with two records of zeros.
    archive.out.write_all(&[0; 1024])?;
    archive.out.flush()
}

struct Archive<'a, W> {
    out: W,
    shape: &'a PackOptions,
    /// The first names of files with several names, by device and inode number.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Archive<'_, W> {
    fn member(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let metadata = path.symlink_metadata()?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            let names = names(path)?;
            let implied = self.shape.implied_folders && !names.is_empty();
            if !implied || self.is_special(path, name, &metadata)? {
                self.head(path, name, &metadata, EntryType::Directory, b"", 0)?;
            }
            return names
                .iter()
                .try_for_each(|member| self.member(&path.join(member), &name.join(member)));
        }
        if metadata.nlink() > 1 {
            let first = self.links.entry((metadata.dev(), metadata.ino()));
            let first = first.or_insert_with(|| name.to_owned()).clone();
            if first != name {
                let target = first.as_os_str().as_bytes();
                return self.head(path, name, &metadata, EntryType::Link, target, 0);
            }
        }
        if kind.is_symlink() {
            let target = fs::read_link(path)?;
            let target = target.as_os_str().as_bytes();
            return self.head(path, name, &metadata, EntryType::Symlink, target, 0);
        }
        if kind.is_file() {
            return self.file(path, name, &metadata);
        }
        if kind.is_fifo() {
            return self.head(path, name, &metadata, EntryType::Fifo, b"", 0);
        }
        // Sockets are useless without their process; devices are omitted on conversion.
        Ok(())
    }

    /// Returns whether a folder's attributes differ from those of an implied folder. The root is
    /// never special.
    fn is_special(&self, path: &Path, name: &Path, metadata: &Metadata) -> io::Result<bool> {
        let stamped = self.stamped(path, metadata)?;
        let plain = stamped.mode == 0o755 && stamped.owner == (0, 0) && stamped.xattrs.is_empty();
        Ok(!plain && name != Path::new("."))
    }

    fn stamped(&self, path: &Path, metadata: &Metadata) -> io::Result<Stamped> {
        let stamp = self.shape.stamp;
        if stamp == Stamp::Fixed {
            let executable = metadata.is_dir() || metadata.mode() & 0o111 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            let owner = (0, 0);
            let mtime = (FIXED_SECONDS, 0);
            return Ok(Stamped { mode, owner, mtime, xattrs: BTreeMap::new() });
        }
        let owner = if stamp == Stamp::Root { (0, 0) } else { (metadata.uid(), metadata.gid()) };
        let mtime = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Stamped { mode: metadata.mode() & 0o7777, owner, mtime, xattrs: xattrs(path)? })
    }

    /// Writes a file. Fails if the file's size changes while it is read, because its content would
    /// be inconsistent.
    fn file(&mut self, path: &Path, name: &Path, metadata: &Metadata) -> io::Result<()> {
        let size = metadata.size();
        self.head(path, name, metadata, EntryType::Regular, b"", size)?;
        let mut content = File::open(path)?.take(size + 1);
        let copied = io::copy(&mut content, &mut self.out)?;
        if copied != size {
            return Err(io::Error::other(format!("{} changed while it was read", path.display())));
        }
        self.pad(size)
    }

    fn head(
        &mut self,
        path: &Path,
        name: &Path,
        metadata: &Metadata,
        kind: EntryType,
        link: &[u8],
        size: u64,
    ) -> io::Result<()> {
        let stamped = self.stamped(path, metadata)?;
        let mut records = stamped.xattrs;
        records.insert(b"path".to_vec(), name.as_os_str().as_bytes().to_vec());
        if !link.is_empty() {
            records.insert(b"linkpath".to_vec(), link.to_vec());
        }
        records.insert(b"mtime".to_vec(), time(stamped.mtime.0, stamped.mtime.1).into_bytes());
        records.insert(b"size".to_vec(), size.to_string().into_bytes());
        let extended: Vec<u8> =
            records.iter().flat_map(|(key, value)| record(key, value)).collect();
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(extended.len() as u64);
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(&extended)?;
        self.pad(extended.len() as u64)?;

        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(stamped.mode);
        header.set_uid(u64::from(stamped.owner.0));
        header.set_gid(u64::from(stamped.owner.1));
        header.set_size(size);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = (size % 512) as usize;
        if over == 0 { Ok(()) } else { self.out.write_all(&[0; 512][over..]) }
    }
}

/// Lists the names in a folder, ordered bytewise.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = entries.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Formats a time for the layer reader: the fraction of a second counts upwards.
fn time(seconds: i64, nanos: i64) -> String {
    if seconds < 0 && nanos > 0 {
        let whole = seconds + 1;
        let sign = if whole == 0 { "-" } else { "" };
        return format!("{sign}{whole}.{:09}", 1_000_000_000 - nanos);
    }
    format!("{seconds}.{nanos:09}")
}

/// Encodes a record `length key=value\n`; the length includes its own digits.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let mut bytes = format!("{length} ").into_bytes();
    for part in [key, b"=", value, b"\n"] {
        bytes.extend_from_slice(part);
    }
    bytes
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Err(Errno::NOTSUP) => 0,
        listed => listed?,
    };
    let mut found = BTreeMap::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert([b"SCHILY.xattr.", name].concat(), value);
    }
    Ok(found)
}
