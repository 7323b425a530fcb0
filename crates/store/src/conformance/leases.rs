//! Tests of keys that are deleted with their lease.

use std::time::Duration;

use futures::StreamExt;

use super::Rig;
use crate::{Error, Expect, KeyChange, LeaseId, Since, Store, Transaction, Watch};

const TTL: Duration = Duration::from_secs(6);
/// A part of the time to live of a lease: one is less than that time, two are more.
const PART: Duration = Duration::from_secs(4);

/// All tests of leases.
pub async fn all(rig: &dyn Rig) {
    keys_are_deleted_when_their_lease_expires(rig).await;
    keys_stay_while_the_lease_is_kept_alive(rig).await;
    keys_are_deleted_in_one_transaction_when_their_lease_is_revoked(rig).await;
    a_key_that_is_written_again_leaves_its_lease(rig).await;
}

async fn put(store: &dyn Store, key: &str, lease: LeaseId) {
    let put = Transaction::new().put_leased(key, "", Expect::Any, lease);
    store.transaction(put).await.unwrap();
}

/// Waits until a key is deleted.
async fn deleted(watch: &mut Watch, key: &str) {
    while let Some(event) = watch.next().await {
        let event = event.unwrap();
        if event.key == key && event.change == KeyChange::Delete {
            return;
        }
    }
    panic!("the watch ended");
}

fn over<T: std::fmt::Debug>(done: Result<T, Error>) {
    assert!(matches!(done, Err(Error::LeaseOver { .. })), "{done:?}");
}

async fn keys_are_deleted_when_their_lease_expires(rig: &dyn Rig) {
    let store = rig.store();
    let mut watch = store.watch("up/", Since::Now).await.unwrap();
    let lease = store.lease(TTL).await.unwrap();
    put(&*store, "up/a", lease).await;
    store.put("up/stays", "".into(), Expect::Any).await.unwrap();
    rig.pass(2 * TTL).await;
    deleted(&mut watch, "up/a").await;
    assert!(store.get("up/a").await.unwrap().is_none());
    assert!(store.get("up/stays").await.unwrap().is_some());
    over(store.keep_alive(lease).await);
    over(store.revoke(lease).await);
    over(store.transaction(Transaction::new().put_leased("up/a", "", Expect::Any, lease)).await);
    assert!(store.get("up/a").await.unwrap().is_none());
}

async fn keys_stay_while_the_lease_is_kept_alive(rig: &dyn Rig) {
    let store = rig.store();
    let mut watch = store.watch("alive/", Since::Now).await.unwrap();
    let kept = store.lease(TTL).await.unwrap();
    let lost = store.lease(TTL).await.unwrap();
    put(&*store, "alive/kept", kept).await;
    put(&*store, "alive/lost", lost).await;
    rig.pass(PART).await;
    store.keep_alive(kept).await.unwrap();
    rig.pass(PART).await;
    // Both leases were granted at the same time.
    deleted(&mut watch, "alive/lost").await;
    assert!(store.get("alive/kept").await.unwrap().is_some());
    store.keep_alive(kept).await.unwrap();
    rig.pass(2 * TTL).await;
    deleted(&mut watch, "alive/kept").await;
}

async fn keys_are_deleted_in_one_transaction_when_their_lease_is_revoked(rig: &dyn Rig) {
    let store = rig.store();
    let lease = store.lease(TTL).await.unwrap();
    put(&*store, "revoked/a", lease).await;
    put(&*store, "revoked/b", lease).await;
    let mut watch = store.watch("revoked/", Since::Now).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert!(store.get("revoked/a").await.unwrap().is_none());
    let first = watch.next().await.unwrap().unwrap();
    let second = watch.next().await.unwrap().unwrap();
    assert_eq!(first.revision, second.revision);
    over(store.revoke(lease).await);
    over(store.keep_alive(lease).await);
}

async fn a_key_that_is_written_again_leaves_its_lease(rig: &dyn Rig) {
    let store = rig.store();
    let old = store.lease(TTL).await.unwrap();
    let new = store.lease(TTL).await.unwrap();
    for key in ["leaves/none", "leaves/other"] {
        put(&*store, key, old).await;
    }
    store.put("leaves/none", "".into(), Expect::Any).await.unwrap();
    put(&*store, "leaves/other", new).await;
    store.revoke(old).await.unwrap();
    assert!(store.get("leaves/none").await.unwrap().is_some());
    assert!(store.get("leaves/other").await.unwrap().is_some());
    store.revoke(new).await.unwrap();
    assert!(store.get("leaves/none").await.unwrap().is_some());
    assert!(store.get("leaves/other").await.unwrap().is_none());
}
