//! Copies of the state: made, counted, refused and put back.

use bytes::Bytes;
use snowmelt_store::{Clock, Expect, Page, Store};
use tempfile::TempDir;

use super::*;
use crate::state::offline_backup;

fn held(state_dir: &Path) -> Redb {
    Redb::hold(state(state_dir), None, Clock::real()).unwrap()
}

async fn put(store: &Redb, key: &str) {
    store.put(key, Bytes::from(vec![7; 4000]), Expect::Any).await.unwrap();
}

async fn keys(store: &Redb) -> Vec<String> {
    let listed = store.list("", Page::default()).await.unwrap();
    listed.entries.into_iter().map(|entry| entry.key).collect()
}

fn damaged(state_dir: &Path) {
    let path = state(state_dir);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
}

async fn refused(state_dir: &Path) -> ErrorReport {
    crate::state::records::Records::open(state(state_dir), true).await.err().unwrap()
}

#[tokio::test]
async fn a_damaged_state_is_replaced_by_its_newest_copy_and_kept() {
    let folder = TempDir::new().unwrap();
    let store = held(folder.path());
    put(&store, "a").await;
    let first = make(&store).await.unwrap();
    put(&store, "b").await;
    let second = make(&store).await.unwrap();
    put(&store, "lost").await;
    drop(store);
    damaged(folder.path());
    let bytes = std::fs::read(state(folder.path())).unwrap();
    let report = refused(folder.path()).await;
    assert_eq!(report.code, "SM-0505");
    let hint = report.hint.unwrap();
    assert!(hint.contains("backup --restore") && hint.contains(&second.file), "{hint}");
    let restored = restore(folder.path(), None).unwrap();
    assert_eq!(restored.from.display().to_string(), second.file);
    assert!(std::fs::read(restored.kept.unwrap()).unwrap() == bytes);
    assert_eq!(keys(&held(folder.path())).await, ["a", "b"]);
    offline_backup::copy(folder.path()).await.unwrap();
    assert_eq!(copies(folder.path()).len(), 3);
    restore(folder.path(), Some(Path::new(&first.file))).unwrap();
    assert_eq!(keys(&held(folder.path())).await, ["a"]);
}

#[tokio::test]
async fn an_empty_file_is_not_an_empty_platform() {
    let folder = TempDir::new().unwrap();
    std::fs::write(state(folder.path()), "").unwrap();
    let report = refused(folder.path()).await;
    assert!(report.message.contains("empty"), "{}", report.message);
    assert!(report.hint.unwrap().contains("there is no copy"));
    assert_eq!(std::fs::metadata(state(folder.path())).unwrap().len(), 0);
}

#[tokio::test]
async fn a_copy_that_is_damaged_replaces_nothing() {
    let folder = TempDir::new().unwrap();
    let store = held(folder.path());
    put(&store, "a").await;
    let copy = make(&store).await.unwrap();
    drop(store);
    let bytes = std::fs::read(&copy.file).unwrap();
    std::fs::write(&copy.file, &bytes[..bytes.len() - 9000]).unwrap();
    let failed = restore(folder.path(), None).unwrap_err();
    assert!(failed.message.contains(&copy.file), "{}", failed.message);
    assert_eq!(keys(&held(folder.path())).await, ["a"]);
    let names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("restored")), "{names:?}");
    assert!(restore(TempDir::new().unwrap().path(), None).is_err(), "there is no copy");
}

#[tokio::test]
async fn old_copies_are_removed_and_those_of_a_lost_state_are_not() {
    let folder = TempDir::new().unwrap();
    let store = held(folder.path());
    for number in 0..MAX_COPIES + 3 {
        put(&store, &format!("{number}")).await;
        make(&store).await.unwrap();
        assert!(!due(&store).await.unwrap(), "nothing has changed since");
    }
    let of_first = copies(folder.path());
    assert_eq!(of_first.len(), MAX_COPIES);
    assert_eq!(of_first.last().unwrap().revision, MAX_COPIES as u64 + 3);
    drop(store);
    std::fs::remove_file(state(folder.path())).unwrap();
    let store = held(folder.path());
    assert!(!due(&store).await.unwrap(), "an empty state has nothing to copy");
    put(&store, "new").await;
    assert!(due(&store).await.unwrap());
    make(&store).await.unwrap();
    assert!(of_first.iter().all(|copy| copy.path.exists()));
}

#[tokio::test]
async fn a_server_that_starts_copies_a_state_that_was_not() {
    let folder = TempDir::new().unwrap();
    let store = held(folder.path());
    put(&store, "a").await;
    std::fs::create_dir(folder.path().join(FOLDER)).unwrap();
    let left = folder.path().join(FOLDER).join("new-1-1.partial");
    std::fs::write(&left, "of a server that was killed").unwrap();
    let over = CancellationToken::new();
    let keeping = tokio::spawn(keep(store, over.clone()));
    crate::platform::rig::until("a copy", async || !copies(folder.path()).is_empty()).await;
    over.cancel();
    keeping.await.unwrap();
    assert!(!left.exists());
}
