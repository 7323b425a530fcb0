//! Combines many wheels in one folder by hard links to their files.
//!
//! Several wheels may contain the same path: namespace packages that ship their `__init__.py`, or
//! packaging errors. Equal content is stored once. Among different contents, the wheel whose name
//! sorts first wins, so that the result is deterministic; the conflict is recorded.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::storage::make_folder;
use crate::{Error, Result};

/// A path that two wheels of an environment contain with different content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WheelConflict {
    /// The file, relative to the environment.
    pub file: String,
    /// The distribution whose file is used.
    pub kept: String,
    /// The distribution whose file is omitted.
    pub lost: String,
}

/// A wheel's name and the folder of its files.
#[derive(Clone, Debug)]
pub(crate) struct WheelFolder {
    pub(crate) name: String,
    pub(crate) site: PathBuf,
}

/// The result of [`link`].
#[derive(Debug, Default)]
pub(crate) struct Linked {
    pub(crate) conflicts: Vec<WheelConflict>,
    /// The bytes on disk in addition to the wheels: folders and copies.
    pub(crate) own_bytes: u64,
    /// Whether a file had to be copied, because hard links between the two folders are not
    /// possible.
    pub(crate) copied: bool,
}

/// Links the files of the sources, which must be sorted by name, into an existing empty folder.
pub(crate) fn link(sources: &[WheelFolder], target: &Path) -> Result<Linked> {
    let mut linker = Linker { sources, target, owners: HashMap::new(), linked: Linked::default() };
    for number in 0..sources.len() {
        linker.folder(number, Path::new(""))?;
    }
    Ok(linker.linked)
}

struct Linker<'a> {
    sources: &'a [WheelFolder],
    target: &'a Path,
    /// The existing paths, and the source that provided each first.
    owners: HashMap<PathBuf, usize>,
    linked: Linked,
}

impl Linker<'_> {
    fn folder(&mut self, number: usize, relative: &Path) -> Result<()> {
        let source = self.sources[number].site.join(relative);
        let mut folders = Vec::new();
        for entry in fs::read_dir(&source).map_err(Error::io("read", &source))? {
            let entry = entry.map_err(Error::io("read", &source))?;
            let path = relative.join(entry.file_name());
            if entry.file_type().map_err(Error::io("read", &source))?.is_dir() {
                folders.push(path);
            } else {
                self.file(number, &entry.path(), path)?;
            }
        }
        // Folders after files: byte code is accepted only from the wheel whose source file was.
        folders.into_iter().try_for_each(|path| self.enter(number, path))
    }

    fn enter(&mut self, number: usize, relative: PathBuf) -> Result<()> {
        let target = self.target.join(&relative);
        if !self.owners.contains_key(&relative) {
            make_folder(&target, 0o755)?;
            self.owners.insert(relative.clone(), number);
        } else if !target.is_dir() {
            self.record_conflict(number, &relative);
            return Ok(());
        }
        self.folder(number, &relative)?;
        if self.owners.get(&relative) == Some(&number) {
            let found = fs::metadata(&target).map_err(Error::io("read", &target))?;
            self.linked.own_bytes += found.blocks() * 512;
        }
        Ok(())
    }

    fn file(&mut self, number: usize, source: &Path, relative: PathBuf) -> Result<()> {
        if self.is_byte_code_of_another(number, &relative) {
            return Ok(());
        }
        let target = self.target.join(&relative);
        if self.owners.contains_key(&relative) {
            if !is_same(source, &target)? {
                self.record_conflict(number, &relative);
            }
            return Ok(());
        }
        if link_or_copy(source, &target).map_err(Error::io("link", &target))? == LinkMethod::Copied
        {
            self.linked.copied = true;
            let found = fs::symlink_metadata(&target).map_err(Error::io("read", &target))?;
            self.linked.own_bytes += found.blocks() * 512;
        }
        self.owners.insert(relative, number);
        Ok(())
    }

    /// Whether byte code belongs to a source from another wheel. Byte code is not validated against
    /// its source at import, so both must come from the same wheel.
    fn is_byte_code_of_another(&self, number: usize, relative: &Path) -> bool {
        let Some(cache) = relative.parent().filter(|parent| parent.ends_with("__pycache__")) else {
            return false;
        };
        let name = relative.file_name().unwrap_or_default().to_string_lossy();
        let module = name.split('.').next().unwrap_or_default();
        let source = cache.with_file_name(format!("{module}.py"));
        self.owners.get(&source).is_some_and(|owner| *owner != number)
    }

    fn record_conflict(&mut self, number: usize, relative: &Path) {
        let owner = self.owners.get(relative).copied().unwrap_or(number);
        let name = |number: usize| self.sources[number].name.clone();
        let file = relative.to_string_lossy().into_owned();
        let conflict = WheelConflict { file, kept: name(owner), lost: name(number) };
        tracing::warn!(?conflict, "two packages contain different files with the same path");
        self.linked.conflicts.push(conflict);
    }
}

#[derive(PartialEq, Eq)]
enum LinkMethod {
    Linked,
    Copied,
}

/// Creates a hard link, or copies if that fails: the paths may be on two file systems, the file may
/// have the maximum number of links, or the file system may not support hard links.
fn link_or_copy(source: &Path, target: &Path) -> io::Result<LinkMethod> {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    match fs::hard_link(source, target) {
        Ok(()) => Ok(LinkMethod::Linked),
        Err(error)
            if [CrossesDevices, PermissionDenied, TooManyLinks, Unsupported]
                .contains(&error.kind()) =>
        {
            copy(source, target).map(|()| LinkMethod::Copied)
        }
        Err(error) => Err(error),
    }
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    if source.is_symlink() {
        return symlink(fs::read_link(source)?, target);
    }
    fs::copy(source, target).map(drop)
}

fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let kind = |path: &Path| fs::symlink_metadata(path).map_err(Error::io("read", path));
    let first = kind(one)?;
    let second = kind(other)?;
    if !first.is_file() || !second.is_file() || first.len() != second.len() {
        return Ok(false);
    }
    let read = |path: &Path| fs::read(path).map_err(Error::io("read", path));
    Ok(first.ino() == second.ino() && first.dev() == second.dev() || read(one)? == read(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates sources `a`, `b`, … with these files.
    fn sources(folder: &Path, wheels: &[&[(&str, &str)]]) -> Vec<WheelFolder> {
        let named = wheels.iter().zip('a'..);
        named
            .map(|(files, name)| {
                let site = folder.join(name.to_string());
                for (path, text) in *files {
                    let path = site.join(path);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
                WheelFolder { name: name.to_string(), site }
            })
            .collect()
    }

    fn linked(folder: &Path, wheels: &[&[(&str, &str)]]) -> (PathBuf, Linked) {
        let target = folder.join("target");
        fs::create_dir(&target).unwrap();
        let done = link(&sources(folder, wheels), &target).unwrap();
        (target, done)
    }

    fn text(target: &Path, file: &str) -> String {
        fs::read_to_string(target.join(file)).unwrap_or_default()
    }

    #[test]
    fn wheels_share_folders_and_equal_files() {
        let folder = tempfile::tempdir().unwrap();
        let wheels: [&[_]; 2] = [
            &[("google/__init__.py", "same"), ("google/a.py", "a")],
            &[("google/__init__.py", "same"), ("google/b.py", "b")],
        ];
        let (target, done) = linked(folder.path(), &wheels);
        assert_eq!(
            (text(&target, "google/a.py"), text(&target, "google/b.py")),
            ("a".into(), "b".into())
        );
        assert_eq!((done.conflicts, done.copied), (vec![], false));
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(target.join("google/b.py")), inode(folder.path().join("b/google/b.py")));
    }

    #[test]
    fn the_first_wheel_by_name_wins_and_conflicts_are_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let code = "p/__pycache__/__init__.cpython-311.pyc";
        let wheels: [&[_]; 3] = [
            &[("p/__init__.py", "first")],
            &[("p/__init__.py", "second"), (code, "byte code of the second")],
            &[("p/__init__.py/odd", "a folder where others have a file")],
        ];
        let (target, done) = linked(folder.path(), &wheels);
        assert_eq!(text(&target, "p/__init__.py"), "first");
        assert!(!target.join(code).exists(), "it would be run instead of the first's source");
        let lost: Vec<_> =
            done.conflicts.iter().map(|one| (&*one.file, &*one.kept, &*one.lost)).collect();
        assert_eq!(lost, [("p/__init__.py", "a", "b"), ("p/__init__.py", "a", "c")]);
    }

    #[test]
    fn different_byte_code_of_equal_sources_is_not_a_conflict() {
        let folder = tempfile::tempdir().unwrap();
        let code = "p/__pycache__/x.cpython-311.pyc";
        let wheels: [&[_]; 2] =
            [&[("p/x.py", "same"), (code, "one")], &[("p/x.py", "same"), (code, "two")]];
        let (target, done) = linked(folder.path(), &wheels);
        assert_eq!((text(&target, code).as_str(), done.conflicts), ("one", vec![]));
    }

    #[test]
    fn copies_between_file_systems() {
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
        let near = tempfile::tempdir().unwrap();
        let far = tempfile::tempdir_in("/dev/shm");
        let Some(far) = far.ok().filter(|far| device(far.path()) != device(near.path())) else {
            eprintln!("skipped: there is no second file system");
            return;
        };
        let from = sources(far.path(), &[&[("x/y.py", "text")]]);
        symlink("y.py", from[0].site.join("x/z.py")).unwrap();
        let done = link(&from, near.path()).unwrap();
        assert!(done.copied && done.own_bytes > 0);
        assert_eq!(text(near.path(), "x/z.py"), "text");
        assert_eq!(fs::read_link(near.path().join("x/z.py")).unwrap(), Path::new("y.py"));
    }
}
