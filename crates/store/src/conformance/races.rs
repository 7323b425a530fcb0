//! Tests of concurrent writes of the same keys from many threads.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Error, Expect, Store, Transaction};

const WRITERS: usize = 8;
const EACH: usize = 20;

/// All tests of concurrent writes.
pub async fn all(store: Arc<dyn Store>) {
    one_of_several_concurrent_creates_succeeds(&store).await;
    no_increment_is_lost(&store).await;
    concurrent_transactions_are_atomic(&store).await;
}

async fn one_of_several_concurrent_creates_succeeds(store: &Arc<dyn Store>) {
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            store.put("created", Bytes::from(writer.to_string()), Expect::Absent).await
        })
    });
    let mut won = Vec::new();
    let mut lost = Vec::new();
    for (writer, done) in writers.collect::<Vec<_>>().into_iter().enumerate() {
        match done.await.unwrap() {
            Ok(version) => won.push((writer, version)),
            Err(Error::Conflict { found, .. }) => lost.push(found),
            Err(error) => panic!("{error}"),
        }
    }
    let [(winner, version)] = won[..] else { panic!("{won:?} won") };
    assert_eq!(store.get("created").await.unwrap().unwrap().value, winner.to_string());
    assert!(
        lost.iter().all(|found| *found == Some(version)),
        "conflicts have the version of the winner"
    );
}

async fn no_increment_is_lost(store: &Arc<dyn Store>) {
    store.put("counter", "0".into(), Expect::Absent).await.unwrap();
    let writers = (0..WRITERS).map(|_| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for _ in 0..EACH {
                increment(&*store).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let counted = store.get("counter").await.unwrap().unwrap().value;
    assert_eq!(counted, (WRITERS * EACH).to_string());
}

async fn increment(store: &dyn Store) {
    loop {
        let entry = store.get("counter").await.unwrap().unwrap();
        let number: usize = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        let next = Bytes::from((number + 1).to_string());
        match store.put("counter", next, Expect::Version(entry.version)).await {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => continue,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks that two keys which transactions write in different orders always have the same value.
async fn concurrent_transactions_are_atomic(store: &Arc<dyn Store>) {
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let (first, second) =
                if writer % 2 == 0 { ("cross/a", "cross/b") } else { ("cross/b", "cross/a") };
            for _ in 0..EACH {
                let value = Bytes::from(writer.to_string());
                let both = Transaction::new().put(first, value.clone(), Expect::Any).put(
                    second,
                    value,
                    Expect::Any,
                );
                store.transaction(both).await.unwrap();
                let listed = store.list("cross/", crate::Page::default()).await.unwrap();
                let [a, b] = &listed.entries[..] else { panic!("{listed:?}") };
                assert_eq!((&a.value, a.version), (&b.value, b.version));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}
