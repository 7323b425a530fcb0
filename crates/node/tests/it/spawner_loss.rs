//! The spawner dies: idle and prewarmed instances and zygotes are dropped, and made again.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use snowmelt_api::Start;
use snowmelt_node::InstanceLease;
use snowmelt_types::{Code, Report};

use crate::rig::{PLENTY, Rig, call, limits, load, until, with_node};

fn signal_spawner(rig: &Rig, signal: Signal) {
    for pid in rig.node.spawner().processes {
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    }
}

fn kill_spawner(rig: &Rig) {
    signal_spawner(rig, Signal::KILL);
}

async fn answers(mut lease: InstanceLease) {
    assert_eq!(call(&mut lease, json!("again")).await.unwrap(), "again");
    lease.give_back();
}

#[test]
fn functions_run_again_after_the_spawner_was_killed_again_and_again() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &["sqlite3"]).await;
        for replaced in 1..=3 {
            rig.node.warm(&unit).await;
            answers(rig.lease(&unit, &limits()).await).await;
            let idle = rig.lease(&unit, &limits()).await;
            assert_eq!(idle.start, Start::Idle);
            idle.give_back();
            kill_spawner(&rig);
            // At once: kept instances may not know yet that they are dead.
            loop {
                let mut lease = rig.lease(&unit, &limits()).await;
                match call(&mut lease, json!("again")).await {
                    Err(error) => assert_eq!(error.report().known_code(), Code::SPAWNER_LOST),
                    Ok(answer) if rig.node.spawner().replaced == replaced => {
                        assert_eq!(answer, "again");
                        break;
                    }
                    // One that had not been ended yet.
                    Ok(_) => {}
                }
            }
        }
    });
}

#[test]
fn a_call_under_way_is_told_that_the_spawner_died() {
    with_node(PLENTY, async |rig| {
        let text = "import time\ndef handler(event):\n    print('runs', flush=True)\n\
            \x20   time.sleep(600)\n";
        let unit = rig.unit(text, &[]).await;
        let mut lease = rig.lease(&unit, &limits()).await;
        let killed = async {
            // Enough time for the call to begin.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            kill_spawner(&rig);
        };
        let (answer, ()) = tokio::join!(call(&mut lease, json!(null)), killed);
        let report = answer.unwrap_err().report();
        assert_eq!(report.known_code(), Code::SPAWNER_LOST, "{report}");
        assert!(report.hint.is_some_and(|hint| hint.contains("again")));
    });
}

#[test]
fn prewarmed_instances_are_started_again() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        rig.node.prewarm(&unit, &limits(), &load(), 2);
        until("two are there", || rig.node.figures().prewarmed == 2).await;
        kill_spawner(&rig);
        until("the spawner is there again", || rig.node.spawner().replaced == 1).await;
        until("two are there again", || rig.node.figures().prewarmed == 2).await;
        let lease = rig.lease(&unit, &limits()).await;
        assert_eq!(lease.start, Start::Prewarmed);
        answers(lease).await;
    });
}
