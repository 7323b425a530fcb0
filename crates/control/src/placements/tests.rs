//! Calls that wait for hosts, and hosts that cannot be reached.

use futures::FutureExt;
use snowmelt_api::{HostFacts, HostJoin};
use snowmelt_node::agent::Agent;
use snowmelt_rpc::Token;

use super::*;
use crate::rig::{IdlePlatform, idle_platform};

const MIB: u64 = 1 << 20;
const SETTINGS: Settings =
    Settings { instances_per_host: 20, reclaim_after: Duration::from_secs(900), is_elastic: false };

/// Placements of control, which takes no functions, and of a host with this memory for them.
async fn placements(memory: u64) -> (Placements, Hosts, IdlePlatform) {
    let idle = idle_platform().await;
    let node = idle.platform.node.clone();
    let agent = Agent::new(node.clone(), Some(ByteSize(0)));
    let token = Some(Token::new("sixteen-characters").unwrap());
    let hosts = Hosts::new(name("control"), agent, token, None).unwrap();
    let placements = Placements::new(node, hosts.clone(), Trees::default(), SETTINGS);
    join(&hosts, "far", memory);
    placements.take_reports();
    (placements, hosts, idle)
}

fn name(name: &str) -> HostName {
    name.to_owned().try_into().unwrap()
}

fn join(hosts: &Hosts, host: &str, functions: u64) {
    let version = snowmelt_rpc::version().to_owned();
    let facts = HostFacts {
        version,
        cores: 8,
        memory: functions,
        ranks: 0,
        tasks: 0,
        functions,
        expelled: Vec::new(),
    };
    // Nobody listens there.
    let address = Some("127.0.0.1:1".parse().unwrap());
    hosts.join(HostJoin { name: name(host), address, facts }).unwrap();
}

fn call(memory: u64) -> Arc<Call> {
    Arc::new(Call {
        tenant: "t".parse().unwrap(),
        function: Digest::of("f"),
        image: None,
        memory,
        cpu_millis: 1000,
        concurrency: 1,
        idle: Duration::ZERO,
        only: None,
    })
}

async fn place(placements: &Placements, memory: u64) -> Result<Placed, ErrorReport> {
    let function = "f".parse().unwrap();
    let whose = Whose { function: &function, limit: Duration::from_secs(1) };
    placements.place(&call(memory), whose).await
}

#[tokio::test]
async fn a_call_waits_until_another_one_is_over() {
    let (placements, _, _idle) = placements(100 * MIB).await;
    let first = place(&placements, 60 * MIB).await.unwrap();
    assert_eq!(first.host.name, name("far"));
    let mut second = Box::pin(place(&placements, 60 * MIB));
    assert!((&mut second).now_or_never().is_none());
    let third = Box::pin(place(&placements, 60 * MIB));
    drop(first);
    let second = second.await.unwrap();
    assert!(third.now_or_never().is_none(), "it has not asked before the second");
    assert_eq!(placements.lock().scheduler.waiting(), 0, "nobody waits for it any more");
    assert_eq!(placements.list()[1].calls, 1);
    drop(second);
    assert_eq!(placements.list()[1].calls, 0);
    assert!(placements.lock().waiting.is_empty());
}

#[tokio::test]
async fn a_host_that_joins_takes_a_call_that_the_others_refuse() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    let placed = place(&placements, 60 * MIB).await.unwrap();
    let function = "f".parse().unwrap();
    let whose = Whose { function: &function, limit: Duration::from_secs(1) };
    let call = call(60 * MIB);
    let mut again = Box::pin(placed.refused(&call, whose));
    assert!((&mut again).now_or_never().is_none());
    join(&hosts, "new", 100 * MIB);
    placements.take_reports();
    // Either has room now: the one that refused has reported again.
    let placed = again.await.unwrap();
    assert!([name("far"), name("new")].contains(&placed.host.name));
    assert_eq!(placements.list().iter().map(|host| host.calls).sum::<u32>(), 1);
}

#[tokio::test]
async fn a_call_that_no_host_can_ever_take_fails_at_once() {
    let (placements, _, _idle) = placements(100 * MIB).await;
    placements.hosts_have_joined_again();
    let refused = place(&placements, 101 * MIB).await.unwrap_err();
    assert_eq!(refused.known_code(), Code::NO_ROOM);
    assert!(refused.message.contains("101 MiB"), "{refused}");
}

#[tokio::test]
async fn a_call_finds_a_host_that_has_just_joined() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    placements.hosts_have_joined_again();
    join(&hosts, "large", 200 * MIB);
    let placed = place(&placements, 150 * MIB).await.unwrap();
    assert_eq!(placed.host.name, name("large"));
}

#[tokio::test]
async fn a_call_after_a_restart_waits_for_hosts_that_join_again() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    let mut waits = Box::pin(place(&placements, 150 * MIB));
    assert!((&mut waits).now_or_never().is_none());
    join(&hosts, "large", 200 * MIB);
    placements.take_reports();
    assert_eq!(waits.await.unwrap().host.name, name("large"));

    let mut waits = Box::pin(place(&placements, 300 * MIB));
    assert!((&mut waits).now_or_never().is_none());
    placements.hosts_have_joined_again();
    let refused = waits.await.unwrap_err();
    assert!(refused.message.contains("300 MiB"), "{refused}");
}

impl Placements {
    fn hosts_have_joined_again(&self) {
        self.lock().joined_again = Duration::ZERO;
        self.take_reports();
    }
}
