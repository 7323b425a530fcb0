//! A folder of files as an image of one layer: the archive that a layer would be, written in the
//! order of names, so that equal folders give equal bytes.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::io::Errno;
use tar::{EntryType, Header};

use super::{Described, Origin};
use crate::{Error, Result};

/// A folder, read when its layer is.
pub struct FolderOrigin {
    root: PathBuf,
}

impl FolderOrigin {
    /// It must be there.
    pub fn open(root: &Path) -> Result<Self> {
        if !root.is_dir() {
            return Err(Error::missing(format!("the folder {}", root.display())));
        }
        Ok(Self { root: root.to_owned() })
    }
}

impl Origin for FolderOrigin {
    fn describe(&self) -> Result<Described> {
        Ok(Described { config: None, layers: 1, original: None })
    }

    fn layer(&self, _index: usize) -> Result<Box<dyn Read + '_>> {
        let failed = |source| Error::io("read", &self.root)(source);
        let (reader, writer) = io::pipe().map_err(failed)?;
        let root = self.root.clone();
        let thread = std::thread::Builder::new().name("image-folder".to_owned());
        let thread = thread.spawn(move || write(&root, writer)).map_err(failed)?;
        Ok(Box::new(Stream { reader, thread: Some(thread) }))
    }
}

/// The archive as it is written; an error of the writer comes at the end.
struct Stream {
    reader: io::PipeReader,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if count == 0
            && !buffer.is_empty()
            && let Some(thread) = self.thread.take()
        {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer stopped")))?;
        }
        Ok(count)
    }
}

fn write(root: &Path, out: io::PipeWriter) -> io::Result<()> {
    let mut archive = Archive { out: io::BufWriter::new(out), links: HashMap::new() };
    archive.member(root, Path::new("."))?;
    // Two records of zeros end an archive.
    archive.out.write_all(&[0; 1024])?;
    archive.out.flush()
}

struct Archive<W> {
    out: W,
    /// First names of files that have several.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Archive<W> {
    fn member(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let metadata = path.symlink_metadata()?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.head(path, name, &metadata, EntryType::Directory, b"", 0)?;
            return self.folder(path, name);
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
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return self.head(path, name, &metadata, EntryType::Fifo, b"", 0);
        }
        // Sockets are bound to their process; devices would be left out later.
        Ok(())
    }

    fn folder(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let mut names: Vec<_> = fs::read_dir(path)?
            .map(|entry| entry.map(|e| e.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        names.iter().try_for_each(|child| self.member(&path.join(child), &name.join(child)))
    }

    /// A file that shrinks or grows meanwhile is an error: half of it is nobody's.
    fn file(&mut self, path: &Path, name: &Path, metadata: &Metadata) -> io::Result<()> {
        let size = metadata.size();
        self.head(path, name, metadata, EntryType::Regular, b"", size)?;
        let mut content = File::open(path)?.take(size + 1);
        let copied = io::copy(&mut content, &mut self.out)?;
        if copied != size {
            return Err(io::Error::other(format!("{} changed meanwhile", path.display())));
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
        let mut records = xattrs(path)?;
        records.insert(b"path".to_vec(), name.as_os_str().as_bytes().to_vec());
        if !link.is_empty() {
            records.insert(b"linkpath".to_vec(), link.to_vec());
        }
        let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
        records.insert(b"mtime".to_vec(), time(seconds, nanos).into_bytes());
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
        header.set_mode(metadata.mode() & 0o7777);
        header.set_uid(u64::from(metadata.uid()));
        header.set_gid(u64::from(metadata.gid()));
        header.set_size(size);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = (size % 512) as usize;
        if over == 0 { Ok(()) } else { self.out.write_all(&[0; 512][over..]) }
    }
}

/// As the reader of layers has it: the part below a second counts upwards.
fn time(seconds: i64, nanos: i64) -> String {
    if seconds < 0 && nanos > 0 {
        let whole = seconds + 1;
        let sign = if whole == 0 { "-" } else { "" };
        return format!("{sign}{whole}.{:09}", 1_000_000_000 - nanos);
    }
    format!("{seconds}.{nanos:09}")
}

/// `length key=value\n`, where the length counts its own digits.
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
