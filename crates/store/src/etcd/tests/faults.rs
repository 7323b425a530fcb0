//! Tests of lost answers, lost connections, servers that are killed, and compaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;

use super::server::{Cuttable, EtcdProcess};
use crate::etcd::{Etcd, EtcdSettings};
use crate::{Error, Expect, KeyChange, Page, Revision, Since, Store, Transaction};

/// Loses the answer to the next transaction, and then the connection.
async fn lose_the_answer(line: &Cuttable) {
    line.deafen();
    tokio::time::sleep(Duration::from_millis(400)).await;
    line.interrupt().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_done_once_and_reported_as_done() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let store = line.store();
    let before = store.put("any", "0".into(), Expect::Any).await.unwrap();
    let write = Transaction::new()
        .put("absent", "1", Expect::Absent)
        .put("any", "1", Expect::Any)
        .check("other", Expect::Absent);
    let losing = lose_the_answer(&line);
    let (done, ()) = tokio::join!(store.transaction(write), losing);
    let done = done.unwrap();
    assert_eq!(done.found, [None, Some(before), None]);
    for key in ["absent", "any"] {
        assert_eq!(store.get(key).await.unwrap().unwrap().version, done.version(), "{key}");
    }
    assert_eq!(done.revision, Revision(before.0 + 1), "it was done once");
    // The slot is used again.
    store.put("any", "2".into(), Expect::Version(done.version())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_whose_answer_is_lost_is_reported_as_conflict() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let store = line.store();
    let version = store.put("k", "0".into(), Expect::Any).await.unwrap();
    let losing = lose_the_answer(&line);
    let (refused, ()) = tokio::join!(store.put("k", "1".into(), Expect::Absent), losing);
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, Error::Conflict { found: Some(found), .. } if found == version),
        "{refused}"
    );
}

/// Checks a server that is killed under writes: what was acknowledged is there, each once.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_or_doubled_when_the_server_is_killed() {
    const WRITERS: usize = 4;
    let mut server = EtcdProcess::start();
    let ends = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicUsize::new(0));
    let writers = (0..WRITERS).map(|writer| {
        let store = server.store();
        let ends = Arc::clone(&ends);
        let written = Arc::clone(&written);
        tokio::spawn(async move {
            let mut acknowledged = HashMap::new();
            for number in 0.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("w{writer}/{number}");
                // A write that was done twice would be refused the second time.
                let version = store.put(&key, key.clone().into(), Expect::Absent).await.unwrap();
                acknowledged.insert(key, version);
                written.fetch_add(1, Ordering::Relaxed);
            }
            acknowledged
        })
    });
    let writers: Vec<_> = writers.collect();
    let some_more = async || {
        let enough = written.load(Ordering::Relaxed) + 20;
        while written.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for _ in 0..2 {
        some_more().await;
        server.kill();
        server.start_again();
    }
    some_more().await;
    ends.store(true, Ordering::Relaxed);
    let mut acknowledged = HashMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let listed = server.store().list("w", Page::default()).await.unwrap();
    assert_eq!(listed.entries.len(), acknowledged.len());
    for entry in listed.entries {
        assert_eq!(acknowledged.get(&entry.key), Some(&entry.version), "{}", entry.key);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_lost_connections_without_a_lost_or_doubled_event() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let watching = line.store();
    let store = server.store();
    let mut watch = watching.watch("", Since::Now).await.unwrap();
    for round in 0..5 {
        let both = Transaction::new().put(format!("{round}/a"), "", Expect::Absent).put(
            format!("{round}/b"),
            "",
            Expect::Absent,
        );
        store.transaction(both).await.unwrap();
        line.cut();
        store.put(&format!("{round}/c"), "".into(), Expect::Absent).await.unwrap();
        line.interrupt().await;
    }
    let mut keys = Vec::new();
    for _ in 0..15 {
        let event = watch.next().await.unwrap().unwrap();
        assert_eq!(event.change, KeyChange::Put("".into()));
        keys.push(event.key);
    }
    let expected = (0..5).flat_map(|round| ["a", "b", "c"].map(|key| format!("{round}/{key}")));
    keys.sort();
    assert_eq!(keys, expected.collect::<Vec<_>>());
    store.put("last", "".into(), Expect::Absent).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().key, "last");
    drop(watching);
    assert!(watch.next().await.is_none(), "it ends with its store");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_revisions_that_were_compacted_ends_with_an_error() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let watching = line.store();
    let store = server.store();
    let first = store.put("k", "1".into(), Expect::Any).await.unwrap();
    let mut watch = watching.watch("k", Since::Revision(Revision(first.0))).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().revision, Revision(first.0));
    line.cut();
    // The connection of the watch is gone before the changes that it misses.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let missed = store.put("k", "2".into(), Expect::Any).await.unwrap();
    let last = store.put("k", "3".into(), Expect::Any).await.unwrap();
    server.ctl(&["compact", &last.to_string()]);
    line.open();
    let over = watch.next().await.unwrap().unwrap_err();
    assert!(
        matches!(over, Error::Compacted { asked, oldest }
            if asked == Revision(missed.0) && oldest == Revision(last.0)),
        "{over}"
    );
    assert!(watch.next().await.is_none());
    let listed = store.list("k", Page::default()).await.unwrap();
    let mut again = store.watch("k", Since::Revision(listed.revision.next())).await.unwrap();
    store.put("k", "4".into(), Expect::Any).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap().change, KeyChange::Put("4".into()));
}

/// Checks that a watch does not wait for revisions that an older backup no longer has.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_a_server_with_an_older_backup_ends_with_an_error() {
    let newer = EtcdProcess::start();
    for number in 0..5 {
        newer.store().put("k", format!("{number}").into(), Expect::Any).await.unwrap();
    }
    let older = EtcdProcess::start();
    let line = Cuttable::to(newer.address()).await;
    let mut settings = newer.settings();
    settings.servers = vec![
        crate::etcd::EtcdServer { host: "127.0.0.1".to_owned(), port: line.port },
        crate::etcd::EtcdServer { host: "127.0.0.1".to_owned(), port: older.address().port() },
    ];
    let store = crate::etcd::Etcd::new(settings).unwrap();
    let mut watch = store.watch("k", Since::Now).await.unwrap();
    line.cut();
    let over = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(over, Error::Compacted { .. }), "{over}");
}

/// Checks that writes which wait for a server that says nothing do not wait one after the other.
#[tokio::test]
async fn writes_that_wait_for_a_silent_server_end_together() {
    let silent = tokio::net::TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = silent.listen(1).unwrap();
    let address = silent.local_addr().unwrap();
    let timeout = Duration::from_secs(1);
    let settings = EtcdSettings::parse(&format!("etcd://{address}/test")).unwrap();
    let write_all = || async {
        let store = Etcd::new(EtcdSettings { timeout, ..settings.clone() }).unwrap();
        let writes = (0..30).map(|_| store.put("k", "1".into(), Expect::Absent));
        for done in futures::future::join_all(writes).await {
            let error = done.unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        }
    };
    // One after the other they would take thirty seconds and more.
    let most = Duration::from_secs(15);
    let connected = tokio::time::timeout(most, write_all()).await;
    connected.expect("the server takes connections and says nothing");
    let mut filling = Vec::new();
    while let Ok(Ok(filled)) =
        tokio::time::timeout(timeout, tokio::net::TcpStream::connect(address)).await
    {
        filling.push(filled);
    }
    let refused = tokio::time::timeout(most, write_all()).await;
    refused.expect("the server takes no connections");
}
