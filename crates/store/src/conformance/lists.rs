//! Tests of lists by prefix.

use crate::{Expect, Page, Revision, Store};

/// All tests of lists.
pub async fn all(store: &dyn Store) {
    a_list_has_every_key_of_its_prefix_in_order(store).await;
    pages_follow_one_another(store).await;
    a_list_has_the_revision_of_its_snapshot(store).await;
}

async fn keys(store: &dyn Store, prefix: &str, page: Page) -> (Vec<String>, bool) {
    let listed = store.list(prefix, page).await.unwrap();
    (listed.entries.into_iter().map(|entry| entry.key).collect(), listed.more)
}

async fn a_list_has_every_key_of_its_prefix_in_order(store: &dyn Store) {
    assert!(keys(store, "list/", Page::default()).await.0.is_empty());
    for key in ["list/b", "list/a", "list/a/b", "list/ä", "list", "list0", "lisu/a", "list/"] {
        store.put(key, key.to_owned().into(), Expect::Any).await.unwrap();
    }
    let expected = ["list/", "list/a", "list/a/b", "list/b", "list/ä"];
    assert_eq!(
        keys(store, "list/", Page::default()).await,
        (expected.map(Into::into).into(), false)
    );
    let listed = store.list("list/", Page::default()).await.unwrap();
    assert!(listed.entries.iter().all(|entry| entry.value == entry.key));
    store.delete("list/a", Expect::Any).await.unwrap();
    assert_eq!(keys(store, "list/a", Page::default()).await.0, ["list/a/b"]);
    assert!(keys(store, "", Page::default()).await.0.len() >= 7);
}

async fn pages_follow_one_another(store: &dyn Store) {
    for number in 0..10 {
        store.put(&format!("page/{number}"), "".into(), Expect::Any).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut page = Page::first(4);
    loop {
        let (found, more) = keys(store, "page/", page).await;
        assert!(found.len() <= 4);
        let last = found.last().cloned();
        seen.extend(found);
        match last.filter(|_| more) {
            Some(last) => page = Page::after(last, 4),
            None => break,
        }
    }
    assert_eq!(seen, (0..10).map(|number| format!("page/{number}")).collect::<Vec<_>>());
    let whole = keys(store, "page/", Page::first(10)).await;
    assert!(!whole.1, "nothing follows the last");
    assert_eq!(keys(store, "page/", Page::after("page/8", 4)).await.0, ["page/9"]);
    assert_eq!(keys(store, "page/", Page::after("a", 1)).await.0, ["page/0"]);
    assert!(keys(store, "page/", Page::after("q", 1)).await.0.is_empty());
}

async fn a_list_has_the_revision_of_its_snapshot(store: &dyn Store) {
    let version = store.put("revision", "".into(), Expect::Any).await.unwrap();
    let listed = store.list("absent", Page::default()).await.unwrap();
    assert_eq!(listed.revision, Revision(version.0));
}
