//! Tests of transactions of several keys.

use super::keys::refused;
use crate::{Error, Expect, KeyVersion, Store, Transaction};

/// All tests of transactions.
pub async fn all(store: &dyn Store) {
    a_transaction_writes_all_its_keys_with_one_version(store).await;
    a_transaction_that_is_refused_changes_nothing(store).await;
    a_transaction_returns_the_previous_versions(store).await;
    a_transaction_without_a_change_does_not_increment_the_revision(store).await;
    a_transaction_names_a_key_once(store).await;
}

async fn a_transaction_writes_all_its_keys_with_one_version(store: &dyn Store) {
    let both =
        Transaction::new().put("both/a", "1", Expect::Absent).put("both/b", "2", Expect::Absent);
    let done = store.transaction(both).await.unwrap();
    for (key, value) in [("both/a", "1"), ("both/b", "2")] {
        let entry = store.get(key).await.unwrap().unwrap();
        assert_eq!((entry.value, entry.version), (value.into(), done.version()));
    }
}

async fn a_transaction_that_is_refused_changes_nothing(store: &dyn Store) {
    let kept = store.put("whole/kept", "1".into(), Expect::Any).await.unwrap();
    let refusals = [
        Transaction::new().put("whole/last", "", Expect::Version(kept)),
        Transaction::new().delete("whole/last", Expect::Version(kept)),
        Transaction::new().check("whole/last", Expect::Version(kept)),
    ];
    for refusal in refusals {
        let mut all = Transaction::new().put("whole/new", "", Expect::Absent);
        all = all.put("whole/kept", "2", Expect::Any);
        all.operations.extend(refusal.operations);
        refused(store.transaction(all).await, "whole/last", None);
        assert!(store.get("whole/new").await.unwrap().is_none());
        assert_eq!(store.get("whole/kept").await.unwrap().unwrap().version, kept);
    }
}

async fn a_transaction_returns_the_previous_versions(store: &dyn Store) {
    let first = store.put("found/a", "1".into(), Expect::Any).await.unwrap();
    let second = store.put("found/b", "1".into(), Expect::Any).await.unwrap();
    let all = Transaction::new()
        .put("found/a", "2", Expect::Any)
        .delete("found/b", Expect::Any)
        .check("found/c", Expect::Absent);
    let found: [Option<KeyVersion>; 3] = [Some(first), Some(second), None];
    assert_eq!(store.transaction(all).await.unwrap().found, found);
}

async fn a_transaction_without_a_change_does_not_increment_the_revision(store: &dyn Store) {
    let before = store.put("unchanged", "".into(), Expect::Any).await.unwrap();
    let nothing = Transaction::new()
        .delete("absent", Expect::Any)
        .check("unchanged", Expect::Version(before));
    assert_eq!(store.transaction(nothing).await.unwrap().version(), before);
    let after = store.put("unchanged", "".into(), Expect::Any).await.unwrap();
    assert_eq!(after.0, before.0 + 1);
}

async fn a_transaction_names_a_key_once(store: &dyn Store) {
    let twice = Transaction::new().put("twice", "", Expect::Any).delete("twice", Expect::Any);
    let refused = store.transaction(twice).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert!(store.get("twice").await.unwrap().is_none());
}
