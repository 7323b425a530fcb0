//! Tests of the limits of etcd: of a value, of a transaction, of its space.

use bytes::Bytes;

use super::server::EtcdProcess;
use crate::etcd::{Etcd, EtcdSettings, MAX_BYTES, MAX_OPERATIONS};
use crate::{Error, Expect, Store, Transaction};

fn puts(number: usize, expect: Expect) -> Transaction {
    (0..number).fold(Transaction::new(), |all, number| all.put(format!("{number}"), "", expect))
}

#[tokio::test]
async fn what_exceeds_the_limits_is_refused_before_it_is_sent() {
    // Nothing listens on this port.
    let store = Etcd::new(EtcdSettings::parse("etcd://127.0.0.1:1").unwrap()).unwrap();
    let long = store.put("long", vec![0; MAX_BYTES].into(), Expect::Any).await.unwrap_err();
    assert!(matches!(long, Error::TooLarge { .. }), "{long}");
    assert!(long.to_string().contains("`long` of 1568768 bytes"), "{long}");
    for (number, expect) in [(MAX_OPERATIONS, Expect::Absent), (MAX_OPERATIONS, Expect::Any)] {
        let many = store.transaction(puts(number, expect)).await.unwrap_err();
        assert!(matches!(many, Error::TooLarge { .. }), "{many}");
    }
    let checks = (0..=MAX_OPERATIONS)
        .fold(Transaction::new(), |all, number| all.check(format!("{number}"), Expect::Absent));
    let many = store.transaction(checks).await.unwrap_err();
    assert!(matches!(many, Error::TooLarge { .. }), "{many}");
}

#[tokio::test]
async fn what_meets_the_limits_is_taken() {
    let server = EtcdProcess::start();
    let store = server.store();
    let value = Bytes::from(vec![7; MAX_BYTES - 1024]);
    store.put("long", value.clone(), Expect::Any).await.unwrap();
    assert_eq!(store.get("long").await.unwrap().unwrap().value, value);
    store.transaction(puts(MAX_OPERATIONS - 1, Expect::Absent)).await.unwrap();
    let done = store.transaction(puts(MAX_OPERATIONS - 1, Expect::Any)).await.unwrap();
    assert!(done.found.iter().all(Option::is_some));
}

#[tokio::test]
async fn a_server_without_space_refuses_writes_until_it_has_space_again() {
    let server = EtcdProcess::with("http", &["--quota-backend-bytes", "8388608"]);
    let store = server.store();
    let value = Bytes::from(vec![1; 1 << 20]);
    let mut written = 0;
    let full = loop {
        match store.put("k", value.clone(), Expect::Any).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Quota { .. }) && written > 2, "{written} {full}");
    let entry = store.get("k").await.unwrap().unwrap();
    assert_eq!(entry.value, value);
    assert!(!store.status().await.unwrap().errors.is_empty());
    server.ctl(&["compact", &entry.version.to_string()]);
    server.ctl(&["defrag"]);
    server.ctl(&["alarm", "disarm"]);
    let again = store.put("k", "2".into(), Expect::Version(entry.version)).await;
    again.expect("there is space again, and the writes that were refused have changed nothing");
}
