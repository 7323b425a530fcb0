//! Long values: files that are named, shared, swept, used again and missing.

use tempfile::TempDir;

use super::sweep::{ASIDE, remove_unused};
use super::*;
use crate::conformance::{Rig, conformance_tests};
use crate::memory::Memory;
use crate::{Clock, Expect};

struct LongRig {
    store: LongValues,
    clock: Clock,
    folder: TempDir,
}

impl LongRig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::paused();
        let memory = Arc::new(Memory::new(clock.clone()));
        let store = LongValues::new(memory, folder.path(), 1).unwrap();
        Self { store, clock, folder }
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }
}

#[async_trait]
impl Rig for LongRig {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

conformance_tests!(LongRig::new());

#[tokio::test]
async fn a_file_is_removed_when_no_value_names_it() {
    let rig = LongRig::new();
    let store = &rig.store;
    store.put("a", "long".into(), Expect::Any).await.unwrap();
    store.put("b", "long".into(), Expect::Any).await.unwrap();
    store.put("c", "s".into(), Expect::Any).await.unwrap();
    assert_eq!(rig.files(), 1);
    store.delete("a", Expect::Any).await.unwrap();
    let later = SystemTime::now() + Duration::from_secs(1);
    assert_eq!(store.sweep_before(later).await.unwrap(), 0);
    assert_eq!(store.get("b").await.unwrap().unwrap().value, "long");
    store.put("b", "s".into(), Expect::Any).await.unwrap();
    assert_eq!(store.sweep_before(later).await.unwrap(), 0, "an earlier list may read it");
    assert_eq!(store.sweep().await.unwrap(), 0, "a transaction may be about to name it");
    assert_eq!(store.sweep_before(later).await.unwrap(), 1);
    assert_eq!(rig.files(), 0);
}

#[tokio::test]
async fn a_value_that_looks_like_the_name_of_a_file_is_kept_as_it_is() {
    let rig = LongRig::new();
    let forged = Bytes::from_static(b"\0file ../../etc/passwd");
    rig.store.put("a", forged.clone(), Expect::Any).await.unwrap();
    assert_eq!(rig.store.get("a").await.unwrap().unwrap().value, forged);
}

#[tokio::test]
async fn a_missing_file_is_an_error_that_names_the_folder() {
    let rig = LongRig::new();
    rig.store.put("a", "long".into(), Expect::Any).await.unwrap();
    for file in std::fs::read_dir(rig.folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let missing = rig.store.get("a").await.unwrap_err();
    assert!(matches!(missing, Error::Corrupt { .. }), "{missing}");
    assert!(missing.to_string().contains("share this folder"), "{missing}");
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_does_not_keep_the_others() {
    let rig = LongRig::new();
    // No file, so it cannot be removed as one.
    std::fs::create_dir(rig.folder.path().join("folder")).unwrap();
    for value in ["long", "other", "third"] {
        rig.store.put("a", value.into(), Expect::Any).await.unwrap();
    }
    let later = SystemTime::now() + Duration::from_secs(1);
    assert_eq!(rig.store.sweep_before(later).await.unwrap(), 0);
    assert!(matches!(rig.store.sweep_before(later).await, Err(Error::Io { .. })));
    assert_eq!(rig.files(), 2, "the named one and the folder");
    assert_eq!(rig.store.get("a").await.unwrap().unwrap().value, "third");
}

#[tokio::test]
async fn a_file_that_a_sweep_has_moved_is_read_and_written_again() {
    let rig = LongRig::new();
    rig.store.put("a", "long".into(), Expect::Any).await.unwrap();
    let name = Digest::of("long").as_str().to_owned();
    let path = rig.folder.path().join(&name);
    let aside = rig.folder.path().join(format!("{ASIDE}{name}"));
    std::fs::rename(&path, &aside).unwrap();
    assert_eq!(rig.store.get("a").await.unwrap().unwrap().value, "long");
    rig.store.put("b", "long".into(), Expect::Any).await.unwrap();
    assert!(path.exists(), "the sweep may remove the other one");
    let later = SystemTime::now() + Duration::from_secs(1);
    rig.store.sweep_before(later).await.unwrap();
    rig.store.sweep_before(later).await.unwrap();
    assert_eq!(rig.store.get("b").await.unwrap().unwrap().value, "long");
}

#[tokio::test]
async fn a_file_that_is_used_while_a_sweep_moves_it_stays() {
    let rig = LongRig::new();
    rig.store.put("a", "long".into(), Expect::Any).await.unwrap();
    let path = rig.folder.path().join(Digest::of("long").as_str());
    let later = SystemTime::now() + Duration::from_secs(1);
    let folder = rig.folder.path();
    let name = Digest::of("long").as_str().to_owned();
    File::open(&path).unwrap().set_modified(later).unwrap();
    assert!(!remove_unused(folder, &name, later).unwrap());
    assert!(path.exists());
    assert!(remove_unused(folder, &name, later + Duration::from_secs(1)).unwrap());
    assert!(!is_used_again(&path).unwrap());
}
