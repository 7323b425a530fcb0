//! Tests of a single key: read, written and deleted with the version that it had.

use crate::{Error, Expect, KeyVersion, Store};

/// All tests of single keys.
pub async fn all(store: &dyn Store) {
    values_are_replaced_and_deleted(store).await;
    a_write_expects_a_version(store).await;
    a_version_is_never_used_twice(store).await;
    any_bytes_are_kept(store).await;
    an_empty_key_is_refused(store).await;
}

async fn values_are_replaced_and_deleted(store: &dyn Store) {
    assert!(store.get("replaced").await.unwrap().is_none());
    let first = store.put("replaced", "1".into(), Expect::Any).await.unwrap();
    let entry = store.get("replaced").await.unwrap().unwrap();
    assert_eq!(
        (entry.key.as_str(), &entry.value[..], entry.version),
        ("replaced", &b"1"[..], first)
    );
    let second = store.put("replaced", "2".into(), Expect::Any).await.unwrap();
    assert!(second > first);
    assert_eq!(store.get("replaced").await.unwrap().unwrap().value, "2");
    assert_eq!(store.delete("replaced", Expect::Any).await.unwrap(), Some(second));
    assert_eq!(store.delete("replaced", Expect::Any).await.unwrap(), None);
    assert!(store.get("replaced").await.unwrap().is_none());
}

async fn a_write_expects_a_version(store: &dyn Store) {
    let wrong = store.put("cas", "0".into(), Expect::Version(KeyVersion(1 << 40))).await;
    refused(wrong, "cas", None);
    let first = store.put("cas", "1".into(), Expect::Absent).await.unwrap();
    refused(store.put("cas", "2".into(), Expect::Absent).await, "cas", Some(first));
    let second = store.put("cas", "2".into(), Expect::Version(first)).await.unwrap();
    refused(store.put("cas", "3".into(), Expect::Version(first)).await, "cas", Some(second));
    refused(store.delete("cas", Expect::Version(first)).await, "cas", Some(second));
    refused(store.delete("cas", Expect::Absent).await, "cas", Some(second));
    assert_eq!(store.get("cas").await.unwrap().unwrap().value, "2");
    assert_eq!(store.delete("cas", Expect::Version(second)).await.unwrap(), Some(second));
    refused(store.delete("cas", Expect::Version(second)).await, "cas", None);
}

/// Checks that a version is never used twice: otherwise a client that was away could replace a key
/// that is no longer the one it saw.
async fn a_version_is_never_used_twice(store: &dyn Store) {
    let first = store.put("again", "1".into(), Expect::Absent).await.unwrap();
    store.delete("again", Expect::Any).await.unwrap();
    let second = store.put("again", "1".into(), Expect::Absent).await.unwrap();
    assert!(second > first);
    refused(store.put("again", "2".into(), Expect::Version(first)).await, "again", Some(second));
}

async fn any_bytes_are_kept(store: &dyn Store) {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    store.put("bytes/ä/\u{10ffff}", bytes.clone().into(), Expect::Any).await.unwrap();
    assert_eq!(store.get("bytes/ä/\u{10ffff}").await.unwrap().unwrap().value, bytes);
    store.put("bytes/empty", "".into(), Expect::Any).await.unwrap();
    assert!(store.get("bytes/empty").await.unwrap().unwrap().value.is_empty());
}

async fn an_empty_key_is_refused(store: &dyn Store) {
    let refused = store.put("", "".into(), Expect::Any).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

/// Checks that an operation was refused because of the version that it found.
pub(super) fn refused<T: std::fmt::Debug>(
    done: Result<T, Error>,
    expected: &str,
    version: Option<KeyVersion>,
) {
    match done {
        Err(Error::Conflict { key, found }) => {
            assert_eq!((key.as_str(), found), (expected, version));
        }
        other => panic!("no conflict: {other:?}"),
    }
}
