//! Files that several tests read, made once for all of their processes.
//!
//! Each test may be a process of its own. The first one makes the files, in a folder whose name has the
//! time of this program's build, and the others find them. Every process holds a shared lock of the
//! folder that it reads, so that a later program removes only folders that nobody reads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use tempfile::TempDir;

/// A folder of files that stays as long as its process.
pub struct Shared {
    path: PathBuf,
    _lock: File,
}

impl Shared {
    /// The folder `name`, with the files that `make` writes into the folder that it is given.
    pub fn new(name: &str, make: impl FnOnce(&Path)) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = fs::metadata(std::env::current_exe().unwrap()).unwrap().modified().unwrap();
        let name = format!("{name}-{}", built.duration_since(UNIX_EPOCH).unwrap().as_nanos());
        let path = root.join(&name);
        let lock = lock_file(root, &name);
        let mut make = Some(make);
        loop {
            lock.lock().unwrap();
            if !path.exists() {
                remove_others(root, &name);
                let unfinished = TempDir::new_in(root).unwrap();
                make.take().expect("a folder is made once")(unfinished.path());
                fs::rename(unfinished.keep(), &path).unwrap();
            }
            lock.unlock().unwrap();
            lock.lock_shared().unwrap();
            // A later program may have removed it between the two locks.
            if path.exists() {
                break;
            }
        }
        Self { path, _lock: lock }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock_file(root: &Path, name: &str) -> File {
    let path = root.join(format!("{name}.lock"));
    File::options().create(true).truncate(false).write(true).open(path).unwrap()
}

/// Removes what earlier programs have made by the same name, unless one of them still reads it.
fn remove_others(root: &Path, name: &str) {
    let prefix = name.rsplit_once('-').map_or(name, |(prefix, _)| prefix);
    for entry in fs::read_dir(root).unwrap().flatten() {
        let found = entry.file_name().into_string().unwrap_or_default();
        let is_ours = found.rsplit_once('-').is_some_and(|(of, _)| of == prefix);
        if is_ours && found != name && entry.path().is_dir() {
            let lock = lock_file(root, &found);
            if lock.try_lock().is_ok() {
                // Another process may remove it at the same time.
                let _ = fs::remove_dir_all(entry.path());
                let _ = fs::remove_file(root.join(format!("{found}.lock")));
            }
        }
    }
}
