//! Tests of one leader among several processes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;

use super::server::{Cuttable, EtcdProcess};
use crate::etcd::{Etcd, EtcdSettings, Lead};
use crate::{Error, Expect, Store, Transaction};

async fn lead(store: &Etcd, says: &'static str) -> Lead {
    store.try_lead("control", &Bytes::from(says)).await.unwrap().unwrap()
}

/// Leads as soon as no other process does.
async fn follow(store: &Etcd, says: &'static str) -> Lead {
    loop {
        match store.try_lead("control", &Bytes::from(says)).await.unwrap() {
            Ok(lead) => return lead,
            Err(_) => store.await_no_leader("control").await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_follows_when_it_resigns() {
    let server = EtcdProcess::start();
    let store = server.store();
    let first = lead(&store, "one").await;
    let other = store.try_lead("control", &Bytes::from("two")).await.unwrap().unwrap_err();
    assert_eq!((&other.says[..], other.term), (&b"one"[..], first.term()));
    let following = server.store();
    let next = tokio::spawn(async move { follow(&following, "two").await });
    first.store().put("k", "1".into(), Expect::Absent).await.unwrap();
    let mine = first.term();
    let ended = first.store();
    first.resign().await.unwrap();
    let next = next.await.unwrap();
    assert!(next.term() > mine);
    let late = ended.put("k", "2".into(), Expect::Any).await.unwrap_err();
    assert!(matches!(late, Error::Deposed), "{late}");
}

/// Checks the case that a lock does not cover: a leader whose lease has ended without its knowledge.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_cut_off_is_replaced_in_time_and_changes_nothing_later() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let first = lead(&line.store(), "one").await;
    let fenced = first.store();
    let version = fenced.put("k", "1".into(), Expect::Absent).await.unwrap();
    let watch = first.watch();
    watch.sure().await.unwrap();
    line.cut();
    let cut = Instant::now();
    let second = follow(&server.store(), "two").await;
    assert!(!watch.is_sure(), "two processes are never sure at the same time");
    let replaced = cut.elapsed();
    assert!(second.term() > first.term());
    line.open();
    let write = Transaction::new().put("k", "late", Expect::Version(version));
    let late = fenced.transaction(write).await.unwrap_err();
    assert!(matches!(late, Error::Deposed), "{late}");
    let check = Transaction::new().check("k", Expect::Version(version));
    let late = fenced.transaction(check).await.unwrap_err();
    assert!(matches!(late, Error::Deposed), "{late}");
    let known = tokio::time::timeout(Duration::from_secs(20), first.lost()).await;
    known.expect("etcd says that the lease has ended");
    let late = watch.sure().await.unwrap_err();
    assert!(matches!(late, Error::Deposed), "{late}");
    second.watch().sure().await.unwrap();
    assert_eq!(second.store().get("k").await.unwrap().unwrap().value, "1");
    second.store().put("k", "2".into(), Expect::Version(version)).await.unwrap();
    println!("replaced after {replaced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_keeps_its_lead_over_a_restart_of_etcd() {
    let mut server = EtcdProcess::start();
    let store = server.store();
    let leads = lead(&store, "one").await;
    server.kill();
    server.start_again();
    leads.store().put("k", "1".into(), Expect::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let kept = leads.store().put("k", "2".into(), Expect::Any).await;
    let after = store.try_lead("control", &Bytes::from("two")).await.unwrap();
    // A slow restart may take longer than the lease: then another process leads, and this one knows.
    match kept {
        Ok(_) => assert_eq!(after.unwrap_err().term, leads.term()),
        Err(error) => assert!(matches!(error, Error::Deposed), "{error}"),
    }
    server.signal(Signal::TERM);
}

/// Checks that a server which takes connections and says nothing does not end the lead.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_leads_on_while_the_first_server_hangs() {
    let server = EtcdProcess::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("{},{}", silent.local_addr().unwrap(), server.address());
    let settings = EtcdSettings::parse(&format!("etcd://{servers}/test")).unwrap();
    let leads = lead(&Etcd::new(settings).unwrap(), "one").await;
    let ended = tokio::time::timeout(Duration::from_secs(5), leads.lost()).await;
    assert!(ended.is_err(), "the lease of two seconds is kept");
    leads.watch().sure().await.unwrap();
    let watch = leads.watch();
    leads.resign().await.unwrap();
    assert!(!watch.is_sure(), "who resigns is not sure any more");
}

/// Checks that an etcd which is away for longer than a lease makes no process sure or unsure for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_waits_for_etcd_before_it_is_sure_again() {
    let server = EtcdProcess::start();
    let line = Cuttable::to(server.address()).await;
    let leads = lead(&line.store(), "one").await;
    let watch = leads.watch();
    assert!(watch.is_sure());
    line.cut();
    while watch.is_sure() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.sure().await }
    });
    line.open();
    // Nobody else wants to lead: the lease may be there still, or has ended.
    match waiting.await.unwrap() {
        Ok(()) => assert!(watch.is_sure()),
        Err(error) => assert!(matches!(error, Error::Deposed), "{error}"),
    }
}
