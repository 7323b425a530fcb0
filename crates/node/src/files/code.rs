//! User code on disk, once by content, in the form in which a runtime inside a sandbox reads it: a
//! JSON file for Python, the files themselves for a program.
//!
//! Invariants: a folder with a digest's name is whole, because it got there by a rename. Its time
//! of change is the time of its last use. The code that an instance was made of is locked as long
//! as the instance lives, and is not removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::Digest;
use snowmelt_wire::{CodeFile, SourceCode};

use crate::{Error, Result};

/// The name of the JSON file in the stored folder of a piece of Python code.
pub(crate) const CODE_FILE: &str = "code.json";

/// The name of the folder beside `CODE_FILE` with the files of Python code that is a folder of
/// files (`python/snowmelt/_runtime/code.py`).
const CODE_FILES: &str = "files";

/// How long code that nothing refers to is kept after its last use.
pub const CODE_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The number and size of the files that a sweep removed, or would remove in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedFiles {
    /// The number of files, or of folders of code.
    pub files: u64,
    /// The bytes on the disk of the removed files.
    pub bytes: u64,
}

impl RemovedFiles {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// A store of code: a folder with a folder for each piece of code, named by its digest.
#[derive(Clone, Debug)]
pub struct CodeStore {
    root: PathBuf,
}

impl CodeStore {
    /// Opens the store in the folder `root`, which is made if it is missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root).map_err(state(&root))?;
        Ok(Self { root })
    }

    /// Stores code unless it is stored already; returns its digest and folder.
    pub fn put(&self, code: &SourceCode) -> Result<(Digest, PathBuf)> {
        let text = encoded(code).map_err(state(&self.root))?;
        let digest = Digest::of(&text);
        let folder = self.root.join(digest.as_str());
        let is_whole = match code {
            SourceCode::Files { .. } => folder.is_dir(),
            _ => folder.join(CODE_FILE).is_file(),
        };
        if is_whole {
            used(&folder);
        } else {
            let whole = tempfile::Builder::new()
                .permissions(Permissions::from_mode(0o755))
                .tempdir_in(&self.root)
                .map_err(state(&self.root))?;
            match code {
                SourceCode::Files { files } => write_all(whole.path(), files)?,
                SourceCode::Folder { files, .. } => {
                    write_all(&whole.path().join(CODE_FILES), files)?;
                    write(&whole.path().join(CODE_FILE), &text, 0o644)?;
                }
                _ => write(&whole.path().join(CODE_FILE), &text, 0o644)?,
            }
            publish(whole, &folder)?;
        }
        Ok((digest, folder))
    }

    /// Returns the folder of stored code, and notes that the code is used now.
    ///
    /// # Errors
    /// `Error::CodeMissing` for code that is not stored, or a digest that is not 64 hexadecimal
    /// digits.
    pub fn find(&self, digest: &Digest) -> Result<PathBuf> {
        // Another host may have sent the digest.
        let plain = digest.as_str().len() == 64
            && digest.as_str().bytes().all(|byte| byte.is_ascii_hexdigit());
        let folder = self.root.join(if plain { digest.as_str() } else { "" });
        match plain && folder.is_dir() {
            true => {
                used(&folder);
                Ok(folder)
            }
            false => Err(Error::CodeMissing { folder }),
        }
    }

    /// Returns the digest under which code is stored; `None` if the code cannot be encoded.
    pub fn digest(code: &SourceCode) -> Option<Digest> {
        encoded(code).ok().map(Digest::of)
    }

    /// Locks stored code against removal as long as the returned lock lives.
    pub fn hold(folder: &Path) -> Result<Lock> {
        let opened = File::open(folder).map_err(state(folder))?;
        let held = Lock::wait(opened, LockMode::Shared).map_err(state(folder))?;
        // The sweep moves code away while it holds the exclusive lock.
        match folder.is_dir() {
            true => Ok(held),
            false => Err(Error::CodeMissing { folder: folder.to_owned() }),
        }
    }

    /// Removes code that was not used for the time `unused`, that is not among `kept` and that no
    /// living instance was made of, and what a killed process has left; with `dry`, only counts it.
    pub fn sweep(
        &self,
        kept: &BTreeSet<Digest>,
        unused: Duration,
        dry: bool,
    ) -> Result<RemovedFiles> {
        let mut removed = RemovedFiles::default();
        for entry in std::fs::read_dir(&self.root).map_err(state(&self.root))? {
            let entry = entry.map_err(state(&self.root))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_kept = kept.iter().any(|digest| digest.as_str() == name);
            let found = entry.metadata().map_err(state(&self.root))?;
            let age = found.modified().ok().and_then(|used| used.elapsed().ok());
            if is_kept || age.is_none_or(|age| age < unused) {
                continue;
            }
            let folder = File::open(entry.path()).map_err(state(&self.root));
            let alone = Lock::attempt(folder?, LockMode::Exclusive).map_err(state(&self.root))?;
            let Some(_alone) = alone else { continue };
            let bytes = bytes_of(&entry.path());
            if dry {
                removed.add(bytes);
                continue;
            }
            // The code gets another name first, so that it is never seen in parts.
            let aside = tempfile::tempdir_in(&self.root).map_err(state(&self.root))?;
            match std::fs::rename(entry.path(), aside.path().join("code")) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                moved => {
                    moved.map_err(state(&self.root))?;
                    removed.add(bytes);
                }
            }
        }
        Ok(removed)
    }

    /// Returns stored code in its original form, which has the same digest.
    pub fn files(&self, digest: &Digest) -> Result<SourceCode> {
        let folder = self.find(digest)?;
        let python = folder.join(CODE_FILE);
        if let Ok(text) = std::fs::read(&python)
            && Digest::of(&text) == *digest
        {
            return serde_json::from_slice(&text)
                .map_err(|error| state(&python)(std::io::Error::other(error)));
        }
        let mut files = BTreeMap::new();
        read_all(&folder, &folder, &mut files)?;
        Ok(SourceCode::Files { files })
    }
}

fn encoded(code: &SourceCode) -> std::io::Result<Vec<u8>> {
    serde_json::to_vec(code).map_err(std::io::Error::other)
}

/// Returns the bytes on the disk of a folder with all that is in it; files that vanish meanwhile
/// count nothing.
fn bytes_of(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten();
    found.blocks() * 512 + inside.map(|entry| bytes_of(&entry.path())).sum::<u64>()
}

/// Notes that code is used now. If the note fails, the code is removed earlier, and stored again
/// when it is needed.
fn used(folder: &Path) {
    let noted = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    if let Err(error) = noted {
        tracing::debug!(%error, "the use of code cannot be noted");
    }
}

fn read_all(top: &Path, folder: &Path, files: &mut BTreeMap<String, CodeFile>) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(state(folder))? {
        let path = entry.map_err(state(folder))?.path();
        let found = path.symlink_metadata().map_err(state(&path))?;
        if found.is_dir() {
            read_all(top, &path, files)?;
            continue;
        }
        let bytes = std::fs::read(&path).map_err(state(&path))?;
        let executable = found.permissions().mode() & 0o100 != 0;
        let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
        files.insert(name, CodeFile::new(&bytes, executable));
    }
    Ok(())
}

fn write_all(folder: &Path, files: &BTreeMap<String, CodeFile>) -> Result<()> {
    for (name, file) in files {
        let invalid = |reason| Error::CodeFile { name: name.clone(), reason };
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !inside || name.contains('\0') {
            return Err(invalid("it is not a path inside the folder".to_owned()));
        }
        let bytes = file.bytes().ok_or_else(|| invalid("its data is not base64".to_owned()))?;
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        // The name may be that of a folder of another file, or too long.
        std::fs::create_dir_all(parent).map_err(|error| match error.kind() {
            ErrorKind::StorageFull => state(parent)(error),
            _ => invalid(error.to_string()),
        })?;
        write(&path, &bytes, if file.executable { 0o755 } else { 0o644 })?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let written = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    };
    written().map_err(state(path))
}

/// Renames a complete folder to its final name. Several processes may do so at once: one rename
/// wins, and the others find what they wanted.
fn publish(whole: tempfile::TempDir, folder: &Path) -> Result<()> {
    match std::fs::rename(whole.path(), folder) {
        Err(error) if !folder.is_dir() => Err(state(folder)(error)),
        Err(_) => Ok(()),
        Ok(()) => {
            drop(whole.keep());
            Ok(())
        }
    }
}

/// Makes the error for a path of the state folder that cannot be used.
pub(crate) fn state(path: &Path) -> impl Fn(std::io::Error) -> Error + use<'_> {
    move |source| Error::State { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> SourceCode {
        SourceCode::Source { file: "udfs.py".into(), text: text.into() }
    }

    fn files(names: &[&str]) -> SourceCode {
        let file = |name: &&str| ((*name).to_owned(), CodeFile::new(name.as_bytes(), true));
        SourceCode::Files { files: names.iter().map(file).collect() }
    }

    fn store() -> (tempfile::TempDir, CodeStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = CodeStore::open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn the_same_code_has_one_folder() {
        let (_folder, store) = store();
        let (first, place) = store.put(&code("x = 1")).unwrap();
        assert_eq!(store.put(&code("x = 1")).unwrap().0, first);
        assert_ne!(store.put(&code("x = 2")).unwrap().0, first);
        let read: SourceCode =
            serde_json::from_slice(&std::fs::read(place.join(CODE_FILE)).unwrap()).unwrap();
        assert_eq!(read, code("x = 1"));
        assert_eq!(store.find(&first).unwrap(), place);
        assert!(matches!(store.find(&Digest::of("other")), Err(Error::CodeMissing { .. })));
    }

    #[test]
    fn files_lie_as_they_were_named() {
        let (folder, store) = store();
        let (_, place) = store.put(&files(&["main", "lib/a.mjs"])).unwrap();
        assert_eq!(std::fs::read(place.join("lib/a.mjs")).unwrap(), b"lib/a.mjs");
        let mode = place.join("main").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary folder");
    }

    /// Removes code that was used, but that nothing refers to: every version of a function once
    /// stayed for ever.
    #[test]
    fn code_that_is_not_used_any_more_is_removed() {
        let (folder, store) = store();
        let count = || std::fs::read_dir(folder.path()).unwrap().count();
        let old = SystemTime::now() - CODE_KEPT;
        let put = |text: &str| {
            let (digest, place) = store.put(&code(text)).unwrap();
            File::open(place).unwrap().set_modified(old).unwrap();
            digest
        };
        let deployed = put("deployed");
        let used = put("used");
        let found = put("found");
        (0..20).for_each(|version| drop(put(&format!("x = {version}"))));
        store.put(&code("used")).unwrap();
        store.find(&found).unwrap();
        std::fs::create_dir(folder.path().join(".tmp-of-a-dead-process")).unwrap();
        let kept = BTreeSet::from([deployed.clone()]);
        let held = CodeStore::hold(&store.find(&used).unwrap()).unwrap();
        let counted = store.sweep(&kept, CODE_KEPT, true).unwrap();
        assert_eq!((counted.files, count()), (20, 24));
        assert_eq!(store.sweep(&kept, CODE_KEPT, false).unwrap(), counted);
        assert_eq!(count(), 4, "what is new may be in the making");
        for digest in [&deployed, &used, &found] {
            store.find(digest).unwrap();
        }
        assert_eq!(CodeStore::digest(&code("deployed")), Some(deployed));
        store.sweep(&kept, Duration::ZERO, false).unwrap();
        store.find(&used).expect("an instance has it");
        drop(held);
        store.sweep(&kept, Duration::ZERO, false).unwrap();
        assert_eq!(count(), 1);
    }

    #[test]
    fn files_are_read_as_they_came() {
        let (_folder, store) = store();
        let mut code = files(&["main", "lib/deep/a.mjs"]);
        if let SourceCode::Files { files } = &mut code {
            files.insert("data.txt".into(), CodeFile::new(b"plain", false));
        }
        let (digest, _) = store.put(&code).unwrap();
        let read = store.files(&digest).unwrap();
        assert_eq!(read, code);
        let (python, _) = store.put(&self::code("x = 1")).unwrap();
        assert_eq!(store.files(&python).unwrap(), self::code("x = 1"));
        assert_eq!(store.put(&read).unwrap().0, digest, "another host names it alike");
    }

    #[test]
    fn the_files_of_a_python_folder_lie_beside_its_code() {
        let (_folder, store) = store();
        let SourceCode::Files { files } = files(&["app.py", "lib/a.py"]) else { panic!() };
        let code = SourceCode::Folder { file: "app.py".into(), files };
        let (digest, place) = store.put(&code).unwrap();
        assert_eq!(std::fs::read(place.join("files/lib/a.py")).unwrap(), b"lib/a.py");
        assert_eq!(store.files(&digest).unwrap(), code);
        let outside = BTreeMap::from([("../a.py".into(), CodeFile::new(b"", false))]);
        let refused = store.put(&SourceCode::Folder { file: "../a.py".into(), files: outside });
        assert!(matches!(refused, Err(Error::CodeFile { .. })), "{refused:?}");
    }

    #[test]
    fn a_digest_that_is_a_path_finds_nothing() {
        let (folder, store) = store();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        for text in ["..", "inner", "/", ""] {
            let digest: Digest = serde_json::from_value(text.into()).unwrap();
            assert!(store.find(&digest).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_outside_the_folder_is_refused_and_nothing_is_left() {
        let (folder, store) = store();
        for names in [&["../a"][..], &["/etc/a"], &["a/../../b"], &[""], &["a", "a/b"], &["./a"]] {
            let refused = store.put(&files(names));
            assert!(matches!(refused, Err(Error::CodeFile { .. })), "{names:?}: {refused:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
