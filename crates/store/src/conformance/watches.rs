//! Tests of watches: every change, once, in the order of revisions.

use std::sync::Arc;

use futures::StreamExt;

use crate::{Expect, KeyChange, Page, Revision, Since, Store, StoreEvent, Transaction, Watch};

/// All tests of watches.
pub async fn all(store: Arc<dyn Store>) {
    a_watch_reports_puts_and_deletes_of_its_prefix(&*store).await;
    a_watch_begins_at_a_revision(&*store).await;
    a_watch_after_a_list_misses_nothing(&store).await;
    changes_of_one_transaction_share_a_revision(&*store).await;
    a_refused_transaction_is_not_reported(&*store).await;
}

async fn next(watch: &mut Watch) -> StoreEvent {
    watch.next().await.expect("the watch goes on").unwrap()
}

async fn a_watch_reports_puts_and_deletes_of_its_prefix(store: &dyn Store) {
    store.put("watch/before", "".into(), Expect::Any).await.unwrap();
    let mut watch = store.watch("watch/", Since::Now).await.unwrap();
    store.put("watch/a", "1".into(), Expect::Any).await.unwrap();
    store.put("unwatched", "".into(), Expect::Any).await.unwrap();
    let last = store.put("watch/a", "2".into(), Expect::Any).await.unwrap();
    store.delete("watch/a", Expect::Any).await.unwrap();
    store.delete("watch/a", Expect::Any).await.unwrap();
    store.put("watch/end", "".into(), Expect::Any).await.unwrap();
    let mut reported = Vec::new();
    for _ in 0..4 {
        reported.push(next(&mut watch).await);
    }
    assert_eq!(reported[1].revision, Revision(last.0));
    let reported: Vec<_> = reported.into_iter().map(|event| (event.key, event.change)).collect();
    let expected = [
        ("watch/a", KeyChange::Put("1".into())),
        ("watch/a", KeyChange::Put("2".into())),
        ("watch/a", KeyChange::Delete),
        ("watch/end", KeyChange::Put("".into())),
    ];
    assert_eq!(reported, expected.map(|(key, change)| (key.to_owned(), change)));
}

async fn a_watch_begins_at_a_revision(store: &dyn Store) {
    let mut versions = Vec::new();
    for number in 0..3 {
        versions.push(store.put(&format!("since/{number}"), "".into(), Expect::Any).await.unwrap());
    }
    let since = Since::Revision(Revision(versions[1].0));
    let mut watch = store.watch("since/", since).await.unwrap();
    assert_eq!(next(&mut watch).await.key, "since/1");
    assert_eq!(next(&mut watch).await.key, "since/2");
    store.put("since/3", "".into(), Expect::Any).await.unwrap();
    assert_eq!(next(&mut watch).await.key, "since/3");
}

/// Checks that the list and the events after it contain every concurrent write exactly once.
async fn a_watch_after_a_list_misses_nothing(store: &Arc<dyn Store>) {
    const WRITERS: usize = 4;
    const EACH: usize = 25;
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for number in 0..EACH {
                let key = format!("all/{writer}/{number}");
                store.put(&key, "".into(), Expect::Absent).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let listed = store.list("all/", Page::default()).await.unwrap();
    let mut watch = store.watch("all/", Since::Revision(listed.revision.next())).await.unwrap();
    let mut keys: Vec<_> = listed.entries.into_iter().map(|entry| entry.key).collect();
    let mut last = listed.revision;
    while keys.len() < WRITERS * EACH {
        let event = next(&mut watch).await;
        assert!(event.revision > last, "revisions grow");
        last = event.revision;
        keys.push(event.key);
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), WRITERS * EACH, "each is reported once");
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn changes_of_one_transaction_share_a_revision(store: &dyn Store) {
    let mut watch = store.watch("shared/", Since::Now).await.unwrap();
    store.put("shared/b", "".into(), Expect::Any).await.unwrap();
    next(&mut watch).await;
    let both = Transaction::new()
        .put("shared/c", "", Expect::Any)
        .delete("shared/b", Expect::Any)
        .put("shared/a", "", Expect::Any);
    let revision = store.transaction(both).await.unwrap().revision;
    let mut keys = Vec::new();
    for _ in 0..3 {
        let event = next(&mut watch).await;
        assert_eq!(event.revision, revision);
        keys.push(event.key);
    }
    keys.sort();
    assert_eq!(keys, ["shared/a", "shared/b", "shared/c"]);
}

async fn a_refused_transaction_is_not_reported(store: &dyn Store) {
    let mut watch = store.watch("refused/", Since::Now).await.unwrap();
    let refused = Transaction::new()
        .put("refused/a", "", Expect::Any)
        .check("refused/absent", Expect::Version(crate::KeyVersion(1)));
    store.transaction(refused).await.unwrap_err();
    store.put("refused/b", "".into(), Expect::Any).await.unwrap();
    assert_eq!(next(&mut watch).await.key, "refused/b");
}
