//! Many calls: on one instance, and many instances in one request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use snowmelt_api::Start;
use snowmelt_node::{Error, InstanceLimits};
use snowmelt_types::{Code, End, Report};

use crate::rig::{PLENTY, call, call_within, limits, with_node};

/// `wait` waits for `go`, which comes over another call of the same process.
const TOGETHER: &str = "import os, threading\ngone = threading.Event()\n\
    def handler(event):\n\
    \x20   if event == 'wait': gone.wait()\n\
    \x20   if event == 'go': gone.set()\n\
    \x20   if event == 'hang': threading.Event().wait()\n\
    \x20   if event == 'raise': raise ValueError('no')\n\
    \x20   if event == 'exit': os._exit(3)\n\
    \x20   return os.getpid()\n";

fn shared(each: u32) -> Arc<InstanceLimits> {
    Arc::new(InstanceLimits { concurrency: each, ..(*limits()).clone() })
}

#[test]
fn an_instance_takes_as_many_calls_as_its_function_says() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit(TOGETHER, &[]).await;
        let leases = rig.node.lease_instances(&unit, &shared(2), 3).await;
        let mut leases: Vec<_> = leases.into_iter().map(Result::unwrap).collect();
        let cold = leases.iter().filter(|lease| lease.cold).count();
        assert_eq!(cold, 2, "three calls need two instances");
        let shared_slot = leases.iter().position(|lease| lease.start == Start::Shared).unwrap();
        let mut go = leases.remove(shared_slot);
        let mut wait = leases.remove(0);
        let (waited, gone) =
            tokio::join!(call(&mut wait, json!("wait")), call(&mut go, json!("go")));
        // One of the two other instances is the one that `go` reached.
        assert!(waited.is_ok() && gone.is_ok());
    });
}

#[test]
fn a_call_that_fails_or_hangs_harms_no_other() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit(TOGETHER, &[]).await;
        let limits = shared(4);
        let mut wait = rig.lease(&unit, &limits).await;
        let mut hang = rig.lease(&unit, &limits).await;
        let mut raise = rig.lease(&unit, &limits).await;
        let mut go = rig.lease(&unit, &limits).await;
        assert_eq!([&hang, &raise, &go].map(|lease| lease.start), [Start::Shared; 3]);
        let waiting = tokio::spawn(async move {
            let answer = call(&mut wait, json!("wait")).await;
            wait.give_back();
            answer
        });
        let raised = call(&mut raise, json!("raise")).await.unwrap_err();
        assert!(matches!(raised, Error::Function(_)), "{raised}");
        raise.give_back();
        let limit = Duration::from_millis(200);
        let hung = call_within(&mut hang, json!("hang"), limit).await.unwrap_err();
        assert_eq!(hung.report().known_code(), Code::FUNCTION_TIMEOUT);
        drop(hang);
        // No new call comes to an instance in which something hangs.
        let fresh = rig.lease(&unit, &limits).await;
        assert!(fresh.cold);
        call(&mut go, json!("go")).await.unwrap();
        go.give_back();
        waiting.await.unwrap().unwrap();
        drop(fresh);
        assert_eq!(rig.node.usage().instances, [0, 0], "it was not kept");
    });
}

#[test]
fn all_calls_of_a_process_that_ends_get_the_reason() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit(TOGETHER, &[]).await;
        let limits = shared(2);
        let mut wait = rig.lease(&unit, &limits).await;
        let mut exit = rig.lease(&unit, &limits).await;
        let (waited, ended) =
            tokio::join!(call(&mut wait, json!("wait")), call(&mut exit, json!("exit")));
        for error in [waited.unwrap_err(), ended.unwrap_err()] {
            let Error::Ended { outcome, .. } = error else { panic!("{error}") };
            assert_eq!(outcome.end, End::Exit { code: 3 });
        }
    });
}

#[test]
fn a_burst_gives_each_call_an_instance_of_its_own() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit(TOGETHER, &[]).await;
        let leases = rig.node.lease_instances(&unit, &limits(), 40).await;
        let calls = leases.into_iter().map(|lease| async {
            let mut lease = lease.unwrap();
            assert!(lease.cold);
            call(&mut lease, json!(null)).await.unwrap();
            lease.give_back();
        });
        futures::future::join_all(calls).await;
        assert_eq!(rig.node.usage().instances, [0, 40]);
        let again = rig.node.lease_instances(&unit, &limits(), 50).await;
        let idle = again.iter().flatten().filter(|lease| lease.start == Start::Idle).count();
        assert_eq!((again.len(), idle), (50, 40));
    });
}
