//! Tests of the store on real servers of etcd.

mod faults;
mod leaders;
mod limits;
mod login;
mod server;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;

use crate::conformance::{Rig, conformance_tests};
use crate::{Error, Expect, Page, Store};
use server::EtcdProcess;

/// The most that the suite need wait for a lease that is not kept alive: it also waits until the key
/// is deleted, and this wait is less than the time to live of its leases.
const PART: Duration = Duration::from_secs(4);

struct InEtcd {
    server: EtcdProcess,
}

impl InEtcd {
    fn new() -> Self {
        Self { server: EtcdProcess::start() }
    }
}

#[async_trait]
impl Rig for InEtcd {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.server.store())
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time.min(PART)).await;
    }
}

conformance_tests!(InEtcd::new());

#[tokio::test]
async fn platforms_of_different_prefixes_share_no_key() {
    let server = EtcdProcess::start();
    let one = server.store();
    let mut settings = server.settings();
    settings.prefix = "test0".to_owned();
    let other = crate::etcd::Etcd::new(settings).unwrap();
    one.put("k", "1".into(), Expect::Absent).await.unwrap();
    assert!(other.get("k").await.unwrap().is_none());
    other.put("k", "2".into(), Expect::Absent).await.unwrap();
    for store in [&one, &other] {
        assert_eq!(store.list("", Page::default()).await.unwrap().entries.len(), 1);
    }
    assert_eq!(one.get("k").await.unwrap().unwrap().value, "1");
}

#[tokio::test]
async fn a_long_list_is_one_snapshot() {
    let server = EtcdProcess::start();
    let store = server.store();
    // Together they are longer than the longest message.
    let value = bytes::Bytes::from(vec![7; 1 << 20]);
    for number in 0..150 {
        store.put(&format!("long/{number:03}"), value.clone(), Expect::Absent).await.unwrap();
    }
    let listed = store.list("long/", Page::default()).await.unwrap();
    assert_eq!((listed.entries.len(), listed.more), (150, false));
    assert!(listed.entries.iter().all(|entry| entry.value == value));
    let page = store.list("long/", Page::after("long/009", 100)).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (100, true));
    assert_eq!(page.entries[99].key, "long/109");
}

#[tokio::test]
async fn a_server_says_its_version_and_state() {
    let server = EtcdProcess::start();
    let status = server.store().status().await.unwrap();
    assert!(status.version.starts_with("3."), "{status:?}");
    assert!(status.bytes > 0 && status.errors.is_empty(), "{status:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_answer_is_reported_in_time() {
    let server = EtcdProcess::start();
    let mut settings = server.settings();
    settings.timeout = Duration::from_secs(1);
    let store = crate::etcd::Etcd::new(settings).unwrap();
    let patient = server.store();
    patient.put("k", "".into(), Expect::Any).await.unwrap();
    server.signal(Signal::STOP);
    let read = store.get("k").await.unwrap_err();
    assert!(matches!(read, Error::Unreachable { .. }), "{read}");
    let written = store.put("k", "2".into(), Expect::Any).await.unwrap_err();
    assert!(matches!(written, Error::Unknown { .. } | Error::Unreachable { .. }), "{written}");
    server.signal(Signal::CONT);
    patient.put("k", "3".into(), Expect::Any).await.unwrap();
    assert!(patient.get("k").await.unwrap().is_some());
    drop(server);
    let gone = store.get("k").await.unwrap_err();
    assert!(matches!(gone, Error::Unreachable { .. }), "{gone}");
    assert!(gone.to_string().contains("127.0.0.1"), "{gone}");
}
