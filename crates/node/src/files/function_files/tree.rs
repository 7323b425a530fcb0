//! A folder with the files of a function under their names, as links to their contents.

use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use snowmelt_api::{FileRef, FileRefs, check_files};
use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::{Digest, SandboxId, Tenant};

use super::{FileStore, TEMPORARY};
use crate::files::code::state;
use crate::{Error, Result};

/// A folder of a function's files, which is not removed as long as this value lives.
#[derive(Debug)]
pub(crate) struct FileTree {
    path: PathBuf,
    digest: Digest,
    _used: Lock,
}

impl FileTree {
    /// Returns where the folder is on this host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the digest of the names of the files and of their contents.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl FileStore {
    /// Returns the folder with these files, whose contents the tenant has sent before; makes it if
    /// there is none.
    pub(crate) fn tree(&self, tenant: &Tenant, files: &FileRefs) -> Result<FileTree> {
        check_files(files).map_err(|reason| Error::FunctionFile { reason })?;
        let parts = files.iter().flat_map(|(name, file)| [name.as_str(), file.digest.as_str()]);
        let digest = Digest::of_parts(["files-1"].into_iter().chain(parts));
        loop {
            for path in self.made(tenant, &digest)? {
                if let Some(used) = used(&path).map_err(state(&path))? {
                    return Ok(FileTree { path, digest, _used: used });
                }
            }
            self.make(tenant, files, &digest)?;
        }
    }

    /// Returns the folders that were made for the files with the digest `digest`.
    fn made(&self, tenant: &Tenant, digest: &Digest) -> Result<Vec<PathBuf>> {
        let trees = self.trees(tenant);
        let found = match std::fs::read_dir(&trees) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.and_then(Iterator::collect::<std::io::Result<Vec<_>>>),
        };
        let found = found.map_err(state(&trees))?.into_iter();
        let is_of = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.split('-').next() == Some(digest.as_str())
        };
        Ok(found.map(|entry| entry.path()).filter(is_of).collect())
    }

    /// Makes a folder under a name that no other folder ever had: roots of sandboxes are kept by
    /// the paths that they show, and a kept root that shows a removed folder shows nothing, even if
    /// a new folder has its name.
    fn make(&self, tenant: &Tenant, files: &FileRefs, digest: &Digest) -> Result<()> {
        let trees = self.trees(tenant);
        std::fs::create_dir_all(&trees).map_err(state(&trees))?;
        let whole = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&trees)
            .map_err(state(&trees))?;
        for (name, file) in files {
            self.link(tenant, name, file, &whole.path().join(name))?;
        }
        let path = trees.join(format!("{digest}-{}", SandboxId::new().as_str()));
        std::fs::rename(whole.path(), &path).map_err(state(&path))?;
        drop(whole.keep());
        Ok(())
    }

    fn link(&self, tenant: &Tenant, name: &str, file: &FileRef, to: &Path) -> Result<()> {
        let refuse = |reason: String| Error::FunctionFile { reason };
        let blob = self.blob(tenant, &file.digest)?;
        let missing = || {
            refuse(format!("the file `{name}` was not sent: there is no SHA-256 {}", file.digest))
        };
        let found = blob.metadata().map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => state(&blob)(error),
        })?;
        if found.len() != file.size {
            let has = found.len();
            let said = file.size;
            return Err(refuse(format!("the file `{name}` has {has} bytes, and not {said}")));
        }
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(state(folder))?;
        }
        std::fs::hard_link(&blob, to).map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => state(to)(error),
        })
    }
}

/// Locks a folder against its removal; `None` if it is not there.
fn used(path: &Path) -> std::io::Result<Option<Lock>> {
    let folder = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let lock = Lock::wait(folder, LockMode::Shared)?;
    // The one who held the exclusive lock may have removed the folder.
    match path.metadata() {
        Ok(found) if found.ino() == lock.file().metadata()?.ino() => {
            lock.file().set_modified(SystemTime::now())?;
            Ok(Some(lock))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
