//! Members of a tar file, read in place.
//!
//! Invariant: names are only looked up in the archive, never opened as files, so a member or a link
//! leads to another member or nowhere, whatever its name is. The memory for the list of members is
//! limited; contents are read on demand.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

use super::document::MAX_DOCUMENT_BYTES;
use crate::filesystem::layer::{Archive, LayerLimits, decompress, is_compressed};
use crate::{Error, Result};

/// The maximum number of members: an image has at most 127 layers with a few files each.
const MAX_MEMBERS: usize = 10_000;
/// The maximum length of a name, as in the kernel.
const MAX_NAME_BYTES: usize = 4096;
/// The maximum size of an archive after decompression.
const MAX_UNPACKED_BYTES: u64 = 64 << 30;

/// A tar file and the positions of its members.
pub(super) struct TarMembers {
    path: PathBuf,
    file: File,
    found: HashMap<PathBuf, TarMember>,
}

enum TarMember {
    /// A file, as offset and length of its content.
    File(u64, u64),
    /// A link to another member. Old versions of Docker store a layer that two images share in this
    /// way.
    Link(PathBuf),
}

impl TarMembers {
    /// Opens an archive and finds its members. A compressed archive is decompressed first.
    pub fn open(path: &Path) -> Result<Self> {
        let file = plain_file(path)?;
        let mut members = Self { path: path.to_owned(), file, found: HashMap::new() };
        members.find_all().map_err(|error| members.of_file(error))?;
        Ok(members)
    }

    /// Returns the content of a member.
    pub fn content(&self, name: &Path) -> Option<impl Read + '_> {
        let (at, left) = self.find(name)?;
        Some(FileSection { file: &self.file, at, left })
    }

    /// Reads the content of a small member.
    pub fn document(&self, name: &Path) -> Result<Vec<u8>> {
        let Some((at, size)) = self.find(name) else {
            let name = name.display();
            return Err(self.refused(format!("it has no `{name}`: is it from `docker save`?")));
        };
        if size > MAX_DOCUMENT_BYTES {
            let what = name.display().to_string();
            return Err(Error::Limit { what, limit: MAX_DOCUMENT_BYTES, unit: "bytes" });
        }
        let mut bytes = vec![0; size as usize];
        match self.file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.refused(format!("it ends inside `{}`", name.display())))
            }
            read => read.map(|()| bytes).map_err(Error::io("read", &self.path)),
        }
    }

    /// Returns the error for an invalid archive.
    pub fn refused(&self, reason: impl Into<String>) -> Error {
        refused(&self.path, reason)
    }

    fn find_all(&mut self) -> Result<()> {
        let limits = LayerLimits { bytes: u64::MAX, ..LayerLimits::default() };
        let mut archive = Archive::new(&self.file, limits);
        while let Some(member) = archive.next()? {
            if member.path.len().max(member.link.len()) > MAX_NAME_BYTES {
                return Err(self.refused("it contains a name longer than 4096 bytes"));
            }
            let path = plain(as_path(&member.path));
            let target = as_path(&member.link);
            let entry = match member.header.entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    Some(TarMember::File(archive.position(), member.size))
                }
                EntryType::Symlink => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    Some(TarMember::Link(plain(&folder.join(target))))
                }
                EntryType::Link => Some(TarMember::Link(plain(target))),
                _ => None,
            };
            self.found.extend(entry.map(|entry| (path, entry)));
            if self.found.len() > MAX_MEMBERS {
                let what = self.path.display().to_string();
                let limit = MAX_MEMBERS as u64;
                return Err(Error::Limit { what, limit, unit: "members" });
            }
            archive.jump()?;
        }
        Ok(())
    }

    fn find(&self, name: &Path) -> Option<(u64, u64)> {
        let mut name = plain(name);
        // A link must lead to a file: `docker save` does not write links to links.
        for _ in 0..2 {
            match self.found.get(&name)? {
                TarMember::File(at, size) => return Some((*at, *size)),
                TarMember::Link(target) => name.clone_from(target),
            }
        }
        None
    }

    /// Replaces the subject of an error about a layer's archive by this archive.
    fn of_file(&self, error: Error) -> Error {
        match error {
            Error::Refused { reason, .. } => self.refused(reason),
            error => error,
        }
    }
}

fn refused(path: &Path, reason: impl Into<String>) -> Error {
    Error::refused(format!("the archive {}", path.display()), reason)
}

/// Opens the file, or decompresses it to an unnamed temporary file: members of a compressed stream
/// cannot be read in place.
fn plain_file(path: &Path) -> Result<File> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut start = Vec::new();
    (&file).take(4).read_to_end(&mut start).map_err(Error::io("read", path))?;
    file.rewind().map_err(Error::io("read", path))?;
    if !is_compressed(&start) {
        return Ok(file);
    }
    let unpacked = tempfile::tempfile().map_err(Error::io("unpack", path))?;
    let mut out = BufWriter::with_capacity(1 << 20, unpacked);
    let copied = decompress(file)
        .and_then(|plain| io::copy(&mut plain.take(MAX_UNPACKED_BYTES + 1), &mut out))
        .and_then(|bytes| out.flush().map(|()| bytes));
    let bytes = copied.map_err(|error| match error.raw_os_error() {
        Some(_) => Error::io("unpack", path)(error),
        None => refused(path, format!("it cannot be decompressed: {error}")),
    })?;
    if bytes > MAX_UNPACKED_BYTES {
        let what = format!("the archive {}", path.display());
        return Err(Error::Limit { what, limit: MAX_UNPACKED_BYTES, unit: "uncompressed bytes" });
    }
    let mut unpacked = out.into_inner().map_err(|error| Error::io("unpack", path)(error.into()))?;
    unpacked.rewind().map_err(Error::io("read", path))?;
    Ok(unpacked)
}

/// A section of a file, which is read from its beginning.
struct FileSection<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for FileSection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns the path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
        plain
    })
}
