//! Members of a tar file, read where they stand.
//!
//! Invariant: names are looked up, never opened, so a member or a link leads to another member or to
//! nothing, whatever it is called. What is read to find the members is bounded; their contents are
//! read by whoever asks for one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

use super::document::LARGEST;
use crate::layer::{Archive, Limits, is_pressed, unpress};
use crate::{Error, Result};

/// The most members: an image has at most 127 layers, and each is a handful of files.
const MOST_MEMBERS: usize = 10_000;
/// The most bytes of a name, as the kernel has it.
const LONGEST_NAME: usize = 4096;
/// The most bytes of a compressed archive once it is unpacked.
const MOST_UNPACKED: u64 = 64 << 30;

/// A tar file and where its members are.
pub(super) struct Members {
    path: PathBuf,
    file: File,
    found: HashMap<PathBuf, Member>,
}

enum Member {
    /// Where the content begins, and its length.
    File(u64, u64),
    /// Older versions save a layer that two images share as a link.
    Link(PathBuf),
}

impl Members {
    /// Finds all members. Of a compressed file they are those of what is in it.
    pub fn open(path: &Path) -> Result<Self> {
        let file = plain_file(path)?;
        let mut members = Self { path: path.to_owned(), file, found: HashMap::new() };
        members.find_all().map_err(|error| members.of_file(error))?;
        Ok(members)
    }

    /// What a member has.
    pub fn content(&self, name: &Path) -> Option<impl Read + '_> {
        let (at, left) = self.find(name)?;
        Some(Section { file: &self.file, at, left })
    }

    /// All of a small member.
    pub fn document(&self, name: &Path) -> Result<Vec<u8>> {
        let Some((at, size)) = self.find(name) else {
            let name = name.display();
            return Err(self.refused(format!("it has no `{name}`: is it from `docker save`?")));
        };
        if size > LARGEST {
            let what = name.display().to_string();
            return Err(Error::Limit { what, limit: LARGEST, unit: "bytes" });
        }
        let mut bytes = vec![0; size as usize];
        match self.file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.refused(format!("it ends inside `{}`", name.display())))
            }
            read => read.map(|()| bytes).map_err(Error::io("read", &self.path)),
        }
    }

    /// The archive is not what it should be.
    pub fn refused(&self, reason: impl Into<String>) -> Error {
        refused(&self.path, reason)
    }

    fn find_all(&mut self) -> Result<()> {
        let limits = Limits { bytes: u64::MAX, ..Limits::default() };
        let mut archive = Archive::new(&self.file, limits);
        while let Some(member) = archive.next()? {
            if member.path.len().max(member.link.len()) > LONGEST_NAME {
                return Err(self.refused("a name in it is longer than any file's"));
            }
            let path = plain(as_path(&member.path));
            let target = as_path(&member.link);
            let entry = match member.header.entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    Some(Member::File(archive.position(), member.size))
                }
                EntryType::Symlink => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    Some(Member::Link(plain(&folder.join(target))))
                }
                EntryType::Link => Some(Member::Link(plain(target))),
                _ => None,
            };
            self.found.extend(entry.map(|entry| (path, entry)));
            if self.found.len() > MOST_MEMBERS {
                let (what, limit) = (self.path.display().to_string(), MOST_MEMBERS as u64);
                return Err(Error::Limit { what, limit, unit: "members" });
            }
            archive.jump()?;
        }
        Ok(())
    }

    fn find(&self, name: &Path) -> Option<(u64, u64)> {
        let mut name = plain(name);
        // A link leads to a file; one that leads to a link is no layer that anybody saved.
        for _ in 0..2 {
            match self.found.get(&name)? {
                Member::File(at, size) => return Some((*at, *size)),
                Member::Link(target) => name.clone_from(target),
            }
        }
        None
    }

    /// What was found wrong with a layer's archive is wrong with this one.
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

/// The file, or a file without a name with what it is once it is unpacked: a member of a compressed
/// stream cannot be read where it stands.
fn plain_file(path: &Path) -> Result<File> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut start = Vec::new();
    (&file).take(4).read_to_end(&mut start).map_err(Error::io("read", path))?;
    file.rewind().map_err(Error::io("read", path))?;
    if !is_pressed(&start) {
        return Ok(file);
    }
    let unpacked = tempfile::tempfile().map_err(Error::io("unpack", path))?;
    let mut out = BufWriter::with_capacity(1 << 20, unpacked);
    let copied = unpress(file)
        .and_then(|plain| io::copy(&mut plain.take(MOST_UNPACKED + 1), &mut out))
        .and_then(|bytes| out.flush().map(|()| bytes));
    let bytes = copied.map_err(|error| match error.raw_os_error() {
        Some(_) => Error::io("unpack", path)(error),
        None => refused(path, format!("it cannot be unpacked: {error}")),
    })?;
    if bytes > MOST_UNPACKED {
        let what = format!("the archive {}", path.display());
        return Err(Error::Limit { what, limit: MOST_UNPACKED, unit: "uncompressed bytes" });
    }
    let mut unpacked = out.into_inner().map_err(|error| Error::io("unpack", path)(error.into()))?;
    unpacked.rewind().map_err(Error::io("read", path))?;
    Ok(unpacked)
}

/// Part of a file.
struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Section<'_> {
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

/// Without `.` and `..`.
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
