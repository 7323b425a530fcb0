//! Tests of the file: several processes, the mode, failures, older layouts.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::Expect;
use crate::conformance::{Rig, conformance_tests};

struct InFile {
    store: Redb,
    clock: Clock,
    _folder: TempDir,
}

impl InFile {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::paused();
        let store = Redb::hold(folder.path().join("store"), None, clock.clone()).unwrap();
        Self { store, clock, _folder: folder }
    }
}

#[async_trait]
impl Rig for InFile {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

conformance_tests!(InFile::new());

/// The parts of the suite that need neither watches nor leases.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_opened_for_each_transaction_has_the_same_keys_and_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let store = Redb::visit(folder.path().join("store"), None);
    crate::conformance::keys::all(&store).await;
    crate::conformance::transactions::all(&store).await;
}

fn held(path: &Path) -> Redb {
    Redb::hold(path.to_owned(), None, Clock::paused()).unwrap()
}

#[tokio::test]
async fn a_read_creates_no_file_and_watches_need_a_file_that_is_held_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Redb::visit(path.clone(), None);
    assert!(store.get("k").await.unwrap().is_none());
    assert!(store.list("", Page::default()).await.unwrap().entries.is_empty());
    assert!(!path.exists());
    let refused = store.watch("", Since::Now).await.err();
    assert!(matches!(refused, Some(Error::Unsupported { .. })));
    assert!(matches!(store.lease(Duration::ZERO).await, Err(Error::Unsupported { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_open_the_file_for_one_transaction_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let writes = (0..8).map(|number| {
        let store = Redb::visit(path.clone(), None);
        tokio::spawn(async move {
            store.put(&format!("k{number}"), Bytes::new(), Expect::Absent).await.unwrap();
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let listed = held(&path).list("k", Page::default()).await.unwrap();
    assert_eq!((listed.entries.len(), listed.revision), (8, Revision(8)));
}

#[tokio::test]
async fn a_file_that_is_held_open_is_busy_for_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let held = held(&path);
    let visitor = Redb::visit(path.clone(), None);
    // Together they would wait for four minutes if each waited as for a transaction.
    let begun = Instant::now();
    for _ in 0..50 {
        assert!(matches!(visitor.get("k").await, Err(Error::Busy { .. })));
    }
    assert!(begun.elapsed() < Duration::from_secs(120));
    drop(held);
    assert!(visitor.get("k").await.unwrap().is_none());
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let text = "not a store ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    assert!(Redb::hold(path.clone(), None, Clock::real()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// A store with 300 entries, closed.
async fn filled(path: &Path) -> Vec<u8> {
    let store = held(path);
    for number in 0..300 {
        let value = Bytes::from(vec![number as u8; 700]);
        store.put(&format!("k{number:03}"), value, Expect::Absent).await.unwrap();
    }
    drop(store);
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let whole = filled(&path).await;
    let half = whole.len() / 2;
    let used = whole.windows(700).position(|window| window.iter().all(|byte| *byte == 7)).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let garbage = (0..whole.len()).map(|at| (at * 31 % 251) as u8).collect();
    let damaged: [(&str, Vec<u8>); 7] = [
        ("empty", Vec::new()),
        ("truncated", whole[..half].to_vec()),
        ("a header alone", whole[..320].to_vec()),
        ("zeroed", vec![0; whole.len()]),
        ("zeroed after its header", [&whole[..4096], &vec![0; whole.len() - 4096]].concat()),
        ("a bit of a value", flipped(used + 300)),
        ("garbage", garbage),
    ];
    for (what, bytes) in damaged {
        std::fs::write(&path, &bytes).unwrap();
        let failed = Redb::hold(path.clone(), None, Clock::real()).err();
        assert!(matches!(failed, Some(Error::Corrupt { .. })), "{what}: {failed:?}");
        assert!(matches!(check(&path), Err(Error::Corrupt { .. })), "{what}");
        assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len(), "{what}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{what}: it was changed");
    }
    std::fs::write(&path, &whole).unwrap();
    let listed = held(&path).list("k", Page::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 300);
}

#[tokio::test]
async fn a_copy_has_the_entries_and_revision_of_one_snapshot_and_replaces_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let copy = folder.path().join("copy");
    filled(&path).await;
    let store = held(&path);
    let lease = store.lease(Duration::from_secs(60)).await.unwrap();
    let leased = Transaction::new().put_leased("leased", "", Expect::Any, lease);
    store.transaction(leased).await.unwrap();
    let at = store.copy_to(copy.clone()).await.unwrap();
    store.put("later", "".into(), Expect::Any).await.unwrap();
    assert!(matches!(store.copy_to(copy.clone()).await, Err(Error::Io { .. })));
    check(&copy).unwrap();
    let own = store.list("k", Page::default()).await.unwrap();
    let listed = held(&copy).list("", Page::default()).await.unwrap();
    assert_eq!((listed.revision, at), (Revision(301), Revision(301)));
    assert_eq!(listed.entries, own.entries);
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy", "copy.lock", "store", "store.lock"]);
}

#[tokio::test]
async fn versions_and_revisions_survive_closing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = held(&path);
    let first = store.put("k", "1".into(), Expect::Absent).await.unwrap();
    drop(store);
    let store = held(&path);
    let second = store.put("k", "2".into(), Expect::Version(first)).await.unwrap();
    assert!(second > first);
    let compacted = store.watch("", Since::Revision(Revision(1))).await.err();
    assert!(matches!(compacted, Some(Error::Compacted { .. })), "history is of this process");
}

#[tokio::test]
async fn leases_end_with_the_process_that_holds_the_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = held(&path);
    let lease = store.lease(Duration::from_secs(60)).await.unwrap();
    let put = Transaction::new().put_leased("leased", "", Expect::Any, lease);
    store.transaction(put.put("stays", "", Expect::Any)).await.unwrap();
    drop(store);
    let listed = held(&path).list("", Page::default()).await.unwrap();
    let keys: Vec<_> = listed.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["stays"]);
}

#[tokio::test]
async fn the_file_has_mode_0600_and_is_not_opened_through_a_symbolic_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    drop(held(&path));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    drop(held(&path));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Redb::hold(link, None, Clock::real()).is_err());
}

/// Checks that a server whose disk was full can write again.
#[tokio::test]
async fn the_file_is_opened_again_after_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let store = held(&folder.path().join("store"));
    store.put("k", "1".into(), Expect::Any).await.unwrap();
    let failed = store
        .inner
        .file
        .run(|_| -> Result<(), WriteFailure> { Err(::redb::StorageError::PreviousIo.into()) });
    assert!(matches!(failed, Err(Error::Io { .. })));
    store.put("k", "2".into(), Expect::Any).await.unwrap();
    assert_eq!(store.get("k").await.unwrap().unwrap().value, "2");
}

/// A file system of 8 MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", folder.path(), "tmpfs", flags, c"size=8m").unwrap();
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_full_disk_is_a_typed_error_and_later_writes_succeed_when_there_is_space() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let disk = SmallDisk::new();
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 2 << 20]).unwrap();
    let store = held(&disk.0.path().join("store"));
    let mut acknowledged = 0;
    let full = loop {
        let value = Bytes::from(vec![1; 1 << 20]);
        match store.put(&format!("k{acknowledged}"), value, Expect::Absent).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    std::fs::remove_file(&ballast).unwrap();
    store.put("after", "".into(), Expect::Absent).await.unwrap();
    let listed = store.list("k", Page::default()).await.unwrap();
    assert_eq!(listed.entries.len(), acknowledged);
}

#[derive(Debug)]
struct Upper;

impl Convert for Upper {
    fn tables(&self) -> &'static [&'static str] {
        &["old", "older"]
    }

    fn entries(
        &self,
        table: &str,
        key: &str,
        value: &[u8],
        older: &Older<'_>,
    ) -> Vec<(String, Vec<u8>)> {
        let other = older.row("old", "a").unwrap_or_default();
        vec![(format!("{table}/{key}"), [value, &other].concat())]
    }
}

#[tokio::test]
async fn an_older_layout_is_converted_once() {
    const OLD: ::redb::TableDefinition<&str, &[u8]> = ::redb::TableDefinition::new("old");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let database = ::redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(OLD).unwrap().insert("a", &b"1"[..]).unwrap();
    write.open_table(OLD).unwrap().insert("b", &b"2"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let visit = Redb::visit(path.clone(), Some(Arc::new(Upper)));
    assert_eq!(visit.get("old/b").await.unwrap().unwrap().value, "21");
    let changed = visit.put("old/b", "new".into(), Expect::Any).await.unwrap();
    let held = Redb::hold(path, Some(Arc::new(Upper)), Clock::real()).unwrap();
    let entry = held.get("old/b").await.unwrap().unwrap();
    assert_eq!((entry.value, entry.version), ("new".into(), changed));
    assert_eq!(held.get("old/a").await.unwrap().unwrap().value, "11");
}
