//! Calls that wait for hosts, and hosts that cannot be reached.

use futures::FutureExt;
use snowmelt_api::{HostJoin, HostState};
use snowmelt_rpc::Token;
use snowmelt_schedule::{GangDemand, GangRoom, TaskDemand};
use snowmelt_tasks::agent::Agent;
use snowmelt_tasks::peers::{TaskPlace, TaskWish};
use snowmelt_types::ByteSize;

use super::*;
use crate::cluster::pool::{HostPool, HostProgram};
use crate::platform::rig::{IdlePlatform, idle_platform};

const MIB: u64 = 1 << 20;
const SETTINGS: PlacementSettings = PlacementSettings {
    instances_per_host: 20,
    reclaim_after: Duration::from_secs(900),
    burst_wait: Duration::from_secs(300),
    is_elastic: false,
};

/// Placements of control, which takes no functions, and of a host with this memory for them.
async fn placements(memory: u64) -> (Placements, Hosts, IdlePlatform) {
    placements_with(memory, SETTINGS).await
}

async fn placements_with(
    memory: u64,
    settings: PlacementSettings,
) -> (Placements, Hosts, IdlePlatform) {
    let idle = idle_platform().await;
    let node = idle.platform.node.clone();
    let agent = Agent::new(node.clone(), Some(ByteSize(0)));
    let token = Some(Token::new("sixteen-characters").unwrap().into());
    let hosts = Hosts::new(name("control"), agent, token, None).unwrap();
    let placements = Placements::new(node, hosts.clone(), Trees::default(), settings);
    join(&hosts, "far", memory);
    placements.take_reports();
    (placements, hosts, idle)
}

fn name(name: &str) -> HostName {
    name.to_owned().try_into().unwrap()
}

fn join(hosts: &Hosts, host: &str, functions: u64) {
    let version = snowmelt_rpc::version().to_owned();
    let protocol = snowmelt_rpc::protocol();
    let facts = HostFacts {
        version,
        protocol,
        cores: 8,
        memory: functions,
        functions,
        sandboxes: functions,
        overcommit: 1,
        ..HostFacts::default()
    };
    // Nobody listens there.
    let address = Some("127.0.0.1:1".parse().unwrap());
    hosts.join(HostJoin { name: name(host), address, facts }).unwrap();
}

fn call(memory: u64) -> Arc<CallDemand> {
    Arc::new(CallDemand {
        tenant: "t".parse().unwrap(),
        function: Digest::of("f"),
        image: None,
        memory,
        cpu_millis: 1000,
        concurrency: 1,
        idle: Duration::ZERO,
        only: None,
        near_first: false,
    })
}

async fn place(placements: &Placements, memory: u64) -> Result<CallPlacement, ErrorReport> {
    let whose = Whose { function: "f", limit: Duration::from_secs(1) };
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
    let whose = Whose { function: "f", limit: Duration::from_secs(1) };
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
    assert!(refused.message.ends_with("of them has is 100 MiB"), "{refused}");
}

#[tokio::test]
async fn a_call_without_room_is_told_what_is_free() {
    let (placements, _, _idle) = placements(100 * MIB).await;
    let _placed = place(&placements, 60 * MIB).await.unwrap();
    let whose = Whose { function: "f", limit: Duration::from_secs(1) };
    let refused = placements.no_room(&call(50 * MIB), whose);
    assert_eq!(refused.known_code(), Code::NO_ROOM);
    assert!(refused.message.contains("an instance of `f` (50 MiB) within 30s"), "{refused}");
    assert!(refused.message.ends_with("far has the most free memory, 40 MiB"), "{refused}");
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

fn gang(ranks: u32, memory: u64) -> Arc<GangDemand> {
    Arc::new(GangDemand {
        tenant: "t".parse().unwrap(),
        image: None,
        ranks,
        memory,
        cpu_millis: 1000,
        most_hosts: None,
        only: None,
    })
}

#[tokio::test]
async fn a_burst_waits_until_another_one_is_over_and_leaves_the_queue_when_it_is_dropped() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    let large = gang(2, 50 * MIB);
    let small = gang(1, 30 * MIB);
    let (first, on) = placements.place_gang(&large, |_| {}).await.unwrap();
    assert_eq!((&on[0].0.name, on[0].1, on.len()), (&name("far"), 2, 1));
    assert!(placements.has_ranks(&name("far")));
    // What the host has reserved by now is counted once.
    let mut facts = hosts.all()[1].facts();
    (facts.memory, facts.reserved, facts.functions) = (0, 100 * MIB, 0);
    let address = Some("127.0.0.1:1".parse().unwrap());
    hosts.join(HostJoin { name: name("far"), address, facts }).unwrap();
    let told = std::sync::Mutex::new(None);
    let mut second = Box::pin(placements.place_gang(&large, |room| {
        told.lock().unwrap().replace(room);
    }));
    let mut third = Box::pin(placements.place_gang(&small, |_| {}));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    let until_told = async {
        while told.lock().unwrap().is_none() {
            assert!((&mut second).now_or_never().is_none());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until_told.await;
    let room = GangRoom { hosts: 2, free: 0, most: 100 * MIB };
    assert_eq!(*told.lock().unwrap(), Some(room));
    drop(second);
    assert_eq!(placements.lock().scheduler.waiting(), 1);
    assert_eq!(placements.lock().waiting.len(), 1);
    drop(first);
    let (third, _) = third.await.unwrap();
    assert!(placements.lock().waiting.is_empty());
    drop(third);
    assert!(!placements.has_ranks(&name("far")));
}

#[tokio::test]
async fn a_burst_waits_for_calls_for_as_long_as_the_setting_says_or_not_at_all() {
    let settings = PlacementSettings { burst_wait: Duration::ZERO, ..SETTINGS };
    let (placements, _, _idle) = placements_with(100 * MIB, settings).await;
    placements.hosts_have_joined_again();
    let call = place(&placements, 60 * MIB).await.unwrap();
    let refused = placements.place_gang(&gang(1, 50 * MIB), |_| {}).await.unwrap_err();
    assert_eq!((refused.waited, refused.room.free), (Some(Duration::ZERO), 40 * MIB));
    let refused = placements.place_gang(&gang(3, 50 * MIB), |_| {}).await.unwrap_err();
    assert_eq!((refused.waited, refused.room.most), (None, 100 * MIB));
    drop(call);
    placements.place_gang(&gang(1, 50 * MIB), |_| {}).await.unwrap();
}

fn task(memory: u64) -> TaskDemand {
    TaskDemand { tenant: "t".parse().unwrap(), memory, cpu_millis: 1000, only: None }
}

fn wish(behind: u32) -> TaskWish {
    TaskWish { hosts: vec![name("far")], behind, waited: Duration::ZERO }
}

/// The host reports what it has left, with this memory of tasks.
fn report(hosts: &Hosts, tasks: u64) {
    let facts = hosts.all()[1].facts();
    let functions = facts.functions + facts.of_tasks - tasks;
    let facts = HostFacts { functions, of_tasks: tasks, ..facts };
    let address = Some("127.0.0.1:1".parse().unwrap());
    hosts.join(HostJoin { name: name("far"), address, facts }).unwrap();
}

#[tokio::test]
async fn a_task_of_a_query_is_counted_once_and_waits_behind_a_call() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    let mut first = placements.task(task(60 * MIB)).unwrap();
    assert!(first.take(&name("far")));
    assert_eq!(placements.list()[1].state, HostState::Active);
    // What it has reserved by now is counted once.
    report(&hosts, 60 * MIB);
    placements.take_reports();
    let call = place(&placements, 40 * MIB).await.unwrap();
    drop(call);
    let mut call = Box::pin(place(&placements, 41 * MIB));
    assert!((&mut call).now_or_never().is_none());

    let mut second = placements.task(task(60 * MIB)).unwrap();
    assert!(!second.take(&name("far")));
    assert_eq!(second.wait(wish(0)), None);
    assert!(second.placed().now_or_never().is_none());
    drop(first);
    report(&hosts, 0);
    let call = call.await.unwrap();
    assert!(second.placed().now_or_never().is_none(), "the call has asked before");
    drop(call);
    second.placed().await;
    assert_eq!(second.wait(wish(0)), Some(name("far")));
    // It has no room after all: until it reports again it is not asked.
    second.refused();
    assert_eq!(second.wait(wish(0)), None);
    placements.take_reports();
    second.placed().await;
    drop(second);
    assert!(!placements.has_tasks(&name("far")));
    assert!(placements.lock().waiting.is_empty());
    assert_eq!(placements.lock().scheduler.waiting(), 0);
}

#[tokio::test]
async fn tasks_that_start_together_have_all_their_hosts_or_none() {
    let (placements, _, _idle) = placements(100 * MIB).await;
    let on = |memory, host| (task(memory), name(host));
    let refused = placements.tasks(vec![on(60 * MIB, "far"), on(60 * MIB, "far")]);
    assert_eq!(refused.unwrap_err(), name("far"));
    assert!(!placements.has_tasks(&name("far")));
    let placed = placements.tasks(vec![on(50 * MIB, "far"), on(50 * MIB, "far")]).unwrap();
    assert_eq!(placed.len(), 2);
    // A query may have outputs on a host where nothing of it runs.
    let used = placements.uses(task(0), &name("far"));
    drop(placed);
    assert!(placements.has_tasks(&name("far")));
    drop(used);
    assert!(!placements.has_tasks(&name("far")));
}

#[tokio::test]
async fn tasks_that_wait_need_hosts() {
    let (placements, hosts, _idle) = placements(100 * MIB).await;
    // Control's own host has the memory of this machine.
    hosts.set_drained(&name("control"), true);
    placements.take_reports();
    let mut first = placements.task(task(100 * MIB)).unwrap();
    assert!(first.take(&name("far")));
    let mut second = placements.task(task(50 * MIB)).unwrap();
    assert_eq!(second.wait(wish(3)), None);
    while placements.lacking() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // One as large as that holds them all.
    assert_eq!(placements.lacking(), 1);
    let program = HostProgram { path: "/no/such/program".into(), least: 1, most: 2 };
    let after = Duration::from_secs(900);
    let pool = HostPool::of(Some(&program), after, hosts, placements.clone());
    assert_eq!(pool.status().lacking, 1);
    second.leave();
    assert_eq!((placements.lacking(), pool.status().lacking), (0, 0));
}

impl Placements {
    /// Who waits for a host.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().scheduler.waiting()
    }

    /// Calls and leases of a function on all hosts, and its idle instances on others than this one.
    pub(crate) fn known(&self, call: &CallDemand) -> (u32, u32) {
        let calls = self.lock().scheduler.running(&call.function).map(|(_, calls)| calls).sum();
        (calls, self.idle_elsewhere(call))
    }

    fn hosts_have_joined_again(&self) {
        self.lock().joined_again = Duration::ZERO;
        self.take_reports();
    }
}
