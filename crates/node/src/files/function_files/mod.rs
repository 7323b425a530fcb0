//! Files of functions on disk: each content once for each tenant, and folders of links to the
//! contents, which instances see.
//!
//! `DIR/TENANT/blobs/SHA256` has the bytes of a file, and `DIR/TENANT/trees/DIGEST-ID/NAME` is a
//! hard link to them. A tenant only reaches contents that it has sent, so knowing the digest of
//! another tenant's file gives nothing.
//!
//! Invariants: a file under the name of a digest has that digest, and is whole, because it got
//! there by a rename. A folder is not removed while an instance may see it: its users hold a lock
//! on it, which ends with their process.

mod budget;
mod receive;
mod sweep;
mod tree;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use snowmelt_api::is_file_digest;
use snowmelt_types::Tenant;

use super::code::state;
use crate::{Error, Result};

pub(crate) use budget::Budget;
pub use receive::Receiving;
pub(crate) use sweep::{entries, is_older};
pub(crate) use tree::FileTree;

/// How long a file that nothing refers to is kept after its last use: functions that are not
/// registered come with each query.
pub const UNUSED_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The prefix of the names of files and folders that are being made or removed.
const TEMPORARY: &str = ".tmp-";

/// The store of the files of functions, of all tenants.
#[derive(Clone, Debug)]
pub struct FileStore {
    root: PathBuf,
    /// The budget of each tenant; absent where control sends the files, which has received them
    /// within its own budget.
    budget: Option<Budget>,
}

impl FileStore {
    /// Uses the folder `root`, which is made when it is needed; no budget applies.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), budget: None }
    }

    /// Limits the files that each tenant sends by a budget.
    pub(crate) fn with_budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Returns whether a tenant has sent any files.
    pub fn has_any(&self, tenant: &Tenant) -> bool {
        self.blobs(tenant).is_dir()
    }

    /// Returns the digests of the contents that a tenant has not sent, sorted, each once. The
    /// contents that it has sent count as used now.
    pub fn missing(&self, tenant: &Tenant, digests: &[String]) -> Vec<String> {
        let is_missing = |digest: &&String| !is_file_digest(digest) || !self.touch(tenant, digest);
        let mut missing: Vec<_> = digests.iter().filter(is_missing).cloned().collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Opens a content to send it elsewhere; returns it with its length in bytes.
    pub(crate) fn open(&self, tenant: &Tenant, digest: &str) -> Result<(File, u64)> {
        let path = self.blob(tenant, digest)?;
        let file = File::open(&path).map_err(|error| absent_or(digest, &path, error))?;
        let size = file.metadata().map_err(state(&path))?.len();
        Ok((file, size))
    }

    fn touch(&self, tenant: &Tenant, digest: &str) -> bool {
        let path = self.blobs(tenant).join(digest);
        let touched = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        touched.is_ok()
    }

    fn blobs(&self, tenant: &Tenant) -> PathBuf {
        self.root.join(tenant.as_str()).join("blobs")
    }

    fn trees(&self, tenant: &Tenant) -> PathBuf {
        self.root.join(tenant.as_str()).join("trees")
    }

    fn blob(&self, tenant: &Tenant, digest: &str) -> Result<PathBuf> {
        if !is_file_digest(digest) {
            let reason = format!("`{digest}` is not the SHA-256 of a file");
            return Err(Error::FunctionFile { reason });
        }
        Ok(self.blobs(tenant).join(digest))
    }
}

/// Makes the error for a content that cannot be opened.
fn absent_or(digest: &str, path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::FunctionFile { reason: format!("the file with SHA-256 {digest} was not sent") }
        }
        _ => state(path)(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use snowmelt_api::{FileRef, FileRefs};

    use super::*;

    struct Rig {
        _folder: tempfile::TempDir,
        store: FileStore,
        tenant: Tenant,
    }

    fn rig() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().join("files"));
        Rig { _folder: folder, store, tenant: Tenant::default() }
    }

    impl Rig {
        fn put(&self, text: &str) -> FileRef {
            let digest = receive::digest_of(text.as_bytes());
            let mut receiving = self.store.receive(&self.tenant, &digest).unwrap();
            receiving.write(text.as_bytes()).unwrap();
            receiving.finish().unwrap();
            FileRef { digest, size: text.len() as u64 }
        }

        fn count(&self) -> usize {
            std::fs::read_dir(self.store.blobs(&self.tenant)).unwrap().count()
        }

        fn release(&self, files: &FileRefs) -> Vec<String> {
            let digests = files.values().map(|file| file.digest.clone()).collect();
            self.store.release(&self.tenant, &digests).unwrap().into_iter().collect()
        }
    }

    fn named(files: &[(&str, &FileRef)]) -> FileRefs {
        files.iter().map(|(name, file)| ((*name).to_owned(), (*file).clone())).collect()
    }

    #[test]
    fn a_content_is_kept_once_and_seen_under_its_names() {
        let rig = rig();
        let model = rig.put("model");
        let words = rig.put("words");
        rig.put("model");
        assert_eq!(rig.count(), 2);
        let files = named(&[("model.pkl", &model), ("a/b/words.txt", &words), ("copy", &model)]);
        let tree = rig.store.tree(&rig.tenant, &files).unwrap();
        let seen = |name: &str| std::fs::read_to_string(tree.path().join(name)).unwrap();
        assert_eq!((seen("model.pkl"), seen("copy")), ("model".into(), "model".into()));
        assert_eq!(seen("a/b/words.txt"), "words");
        let found = tree.path().join("copy").metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.nlink()), (0o444, 3));
        let folder = tree.path().join("a").metadata().unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o755);
        let again = rig.store.tree(&rig.tenant, &files).unwrap();
        assert_eq!((again.digest(), again.path()), (tree.digest(), tree.path()));
        let other = rig.store.tree(&rig.tenant, &named(&[("model", &model)])).unwrap();
        assert_ne!(other.digest(), tree.digest());
    }

    #[test]
    fn what_was_not_sent_or_differs_is_refused() {
        let rig = rig();
        let model = rig.put("model");
        let other = FileRef { digest: "0".repeat(64), size: 1 };
        let asked = [model.digest.clone(), other.digest.clone(), other.digest.clone()];
        assert_eq!(rig.store.missing(&rig.tenant, &asked), [&*other.digest]);
        let tree = |files| rig.store.tree(&rig.tenant, &files).unwrap_err().to_string();
        assert!(tree(named(&[("x.bin", &other)])).contains("x.bin` was not sent"));
        let long = FileRef { size: 6, ..model.clone() };
        assert!(tree(named(&[("x.bin", &long)])).contains("has 5 bytes"));
        assert!(tree(named(&[("../x", &model)])).contains("`../x`"));
        // Another tenant that knows the digest has no part in it.
        let stranger: Tenant = "stranger".parse().unwrap();
        assert_eq!(rig.store.missing(&stranger, &asked[..1]), asked[..1]);
        assert!(rig.store.tree(&stranger, &named(&[("x", &model)])).is_err());
        let mut receiving = rig.store.receive(&rig.tenant, &other.digest).unwrap();
        receiving.write(b"something else").unwrap();
        assert!(receiving.finish().unwrap_err().to_string().contains("changed"));
        assert!(rig.store.receive(&rig.tenant, "../../x").is_err());
        assert_eq!(rig.count(), 1, "nothing of it is left");
        let trees = std::fs::read_dir(rig.store.trees(&rig.tenant)).unwrap().count();
        assert_eq!(trees, 0);
    }

    #[test]
    fn what_is_released_goes_once_nobody_sees_it() {
        let rig = rig();
        let model = rig.put("model");
        let words = rig.put("words");
        let files = named(&[("model", &model)]);
        let tree = rig.store.tree(&rig.tenant, &files).unwrap();
        assert_eq!(rig.release(&files), [&*model.digest], "it is seen");
        assert!(tree.path().join("model").exists());
        let first = tree.path().to_owned();
        drop(tree);
        assert_eq!(rig.release(&files), [] as [String; 0]);
        assert_eq!(rig.count(), 1);
        assert!(!first.exists());
        // A root that shows the folder before is not taken for one that shows the next.
        rig.put("model");
        assert_ne!(rig.store.tree(&rig.tenant, &files).unwrap().path(), first);
        assert_eq!(rig.release(&files), [] as [String; 0]);
        assert!(rig.store.open(&rig.tenant, &words.digest).is_ok());
        assert!(rig.store.open(&rig.tenant, &model.digest).is_err());
        assert_eq!(rig.release(&files), [] as [String; 0], "again changes nothing");
    }

    #[test]
    fn what_is_unused_for_long_goes_unless_something_refers_to_it() {
        let rig = rig();
        let model = rig.put("model");
        let words = rig.put("words");
        let seen = rig.put("seen");
        let tree = rig.store.tree(&rig.tenant, &named(&[("seen", &seen)])).unwrap();
        drop(rig.store.tree(&rig.tenant, &named(&[("words", &words)])).unwrap());
        let kept = BTreeSet::from([(rig.tenant.clone(), model.digest.clone())]);
        rig.store.sweep(&kept, UNUSED_KEPT).unwrap();
        assert_eq!(rig.count(), 3, "all were used lately");
        let prune = |of, dry| rig.store.prune(&kept, Duration::ZERO, of, dry).unwrap();
        let other = "other".parse().unwrap();
        assert_eq!(prune(Some(&other), false).files, 0);
        let counted = prune(Some(&rig.tenant), true);
        assert_eq!((counted.files, rig.count()), (1, 3), "a count removes nothing");
        assert_eq!(prune(Some(&rig.tenant), false), counted);
        assert_eq!(rig.count(), 2);
        assert!(rig.store.open(&rig.tenant, &model.digest).is_ok());
        assert!(rig.store.open(&rig.tenant, &words.digest).is_err());
        assert!(tree.path().join("seen").exists());
    }
}
