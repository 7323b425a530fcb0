//! Lanes: several processes that make sandboxes, each of which can die independently.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use snowmelt_sandbox::{Error, Sandbox, SandboxSpec, Spawner};
use snowmelt_types::End;

use crate::harness::{Rig, SharedRig, is_root, runtime, spec, until, within};
use crate::zygote::Code;

/// Enough starts to make every lane.
const MANY: usize = 24;

/// Runs a test with a spawner of four lanes.
fn with_lanes<F: Future<Output = ()>>(test: impl FnOnce(SharedRig) -> F) {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let rig = std::sync::Arc::new(Rig::with_lanes(4));
        test(rig.clone()).await;
        within(rig.spawner.shutdown()).await.unwrap();
        rig.assert_nothing_left();
    });
}

fn status(pid: i32, line: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let found = status.lines().find_map(|text| text.strip_prefix(line))?;
    Some(found.trim().to_owned())
}

/// The lane that made it.
fn lane_of(sandbox: &Sandbox) -> i32 {
    status(sandbox.pid(), "PPid:").unwrap().parse().unwrap()
}

fn lives(pid: i32) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with('Z'))
}

fn kill(lane: i32) {
    kill_process(Pid::from_raw(lane).unwrap(), Signal::KILL).unwrap();
}

async fn sleepers(spawner: &Spawner, count: usize) -> Vec<Sandbox> {
    let specs = (0..count).map(|_| spec(&["/bin/sleep", "600"])).collect();
    let started = within(spawner.start_many(specs)).await;
    started.into_iter().map(|started| started.unwrap()).collect()
}

#[test]
fn many_starts_are_divided_among_lanes_without_shared_user_ids() {
    with_lanes(|rig| async move {
        let first = sleepers(&rig.spawner, 1).await;
        let many = sleepers(&rig.spawner, MANY).await;
        let all: Vec<_> = first.iter().chain(&many).collect();
        let lanes: BTreeSet<_> = all.iter().map(|sandbox| lane_of(sandbox)).collect();
        assert_eq!(lanes.len(), 4, "{lanes:?}");
        let server = std::process::id().to_string();
        assert!(lanes.iter().all(|lane| status(*lane, "PPid:").unwrap() == server));
        let users: BTreeSet<_> = all.iter().map(|s| status(s.pid(), "Uid:").unwrap()).collect();
        assert_eq!(users.len(), all.len(), "{users:?}");
        let processes: BTreeSet<_> = rig.processes().into_iter().collect();
        assert_eq!(processes, all.iter().map(|sandbox| sandbox.pid()).collect());
    });
}

#[test]
fn queued_starts_create_lanes_and_sequential_starts_do_not() {
    with_lanes(|rig| async move {
        let mut few = Vec::new();
        for _ in 0..20 {
            few.extend(sleepers(&rig.spawner, 1).await);
        }
        let lanes: BTreeSet<_> = few.iter().map(lane_of).collect();
        assert_eq!(lanes.len(), 1, "{lanes:?}");
        let mut lanes = 1;
        while lanes < 4 {
            let starts = (0..20).map(|_| {
                let spawner = rig.spawner.clone();
                tokio::spawn(async move { spawner.start(spec(&["/bin/sleep", "600"])).await })
            });
            for start in starts.collect::<Vec<_>>() {
                few.push(within(start).await.unwrap().unwrap());
            }
            lanes = few.iter().map(lane_of).collect::<BTreeSet<_>>().len();
            few.truncate(20);
        }
    });
}

#[test]
fn a_killed_lane_ends_only_its_own_sandboxes_and_leaves_nothing() {
    for which in [0, 3] {
        with_lanes(|rig| async move {
            let many = sleepers(&rig.spawner, MANY).await;
            let mut lanes: Vec<_> = many.iter().map(lane_of).collect();
            lanes.sort_unstable();
            lanes.dedup();
            let victim = lanes[which];
            let (lost, kept): (Vec<_>, Vec<_>) =
                many.into_iter().partition(|sandbox| lane_of(sandbox) == victim);
            assert!(!lost.is_empty() && !kept.is_empty());
            kill(victim);
            for sandbox in &lost {
                assert_eq!(within(sandbox.wait()).await.end, End::SpawnerLost);
            }
            let kept_pids: BTreeSet<_> = kept.iter().map(Sandbox::pid).collect();
            until("the lane's sandboxes are gone", || {
                rig.processes().into_iter().collect::<BTreeSet<_>>() == kept_pids
            })
            .await;
            assert!(kept_pids.iter().all(|pid| lives(*pid)));
            // A new lane takes its number, and shares no user id with the others.
            until("the lane is reaped", || status(victim, "State:").is_none()).await;
            let more = sleepers(&rig.spawner, MANY).await;
            let again: BTreeSet<_> = more.iter().map(lane_of).collect();
            assert!(!again.contains(&victim));
            let users: BTreeSet<_> =
                kept.iter().chain(&more).map(|s| status(s.pid(), "Uid:").unwrap()).collect();
            assert_eq!(users.len(), kept.len() + MANY);
        });
    }
}

#[test]
fn an_id_in_use_in_one_lane_is_refused_by_all() {
    with_lanes(|rig| async move {
        let many = sleepers(&rig.spawner, MANY).await;
        for sandbox in &many {
            let again = SandboxSpec { id: sandbox.id().clone(), ..spec(&["/bin/true"]) };
            let error = within(rig.spawner.start(again)).await.err();
            assert!(matches!(error, Some(Error::Spec { .. })), "{error:?}");
        }
    });
}

#[test]
fn another_spawner_is_started_when_every_lane_is_killed() {
    with_lanes(|rig| async move {
        let many = sleepers(&rig.spawner, MANY).await;
        let lanes: BTreeSet<_> = many.iter().map(lane_of).collect();
        lanes.iter().copied().for_each(kill);
        // Requested immediately: they wait for the new spawner.
        let more = sleepers(&rig.spawner, MANY).await;
        for sandbox in &many {
            assert_eq!(within(sandbox.wait()).await.end, End::SpawnerLost);
        }
        let again: BTreeSet<_> = more.iter().map(lane_of).collect();
        assert!(again.is_disjoint(&lanes), "{again:?} {lanes:?}");
        let living: BTreeSet<_> = more.iter().map(Sandbox::pid).collect();
        until("the sandboxes of the dead lanes are gone", || {
            rig.processes().into_iter().collect::<BTreeSet<_>>() == living
        })
        .await;
        assert_eq!(rig.spawner.health().replaced, 1);
    });
}

#[test]
fn no_start_fails_when_the_spawner_dies_during_many_starts() {
    with_lanes(|rig| async move {
        let first = sleepers(&rig.spawner, 1).await;
        let starts = (0..40).map(|_| {
            let spawner = rig.spawner.clone();
            tokio::spawn(async move { spawner.start(spec(&["/bin/sleep", "600"])).await })
        });
        let starts: Vec<_> = starts.collect();
        kill(lane_of(&first[0]));
        for start in starts {
            within(start).await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_zygote_without_a_free_slot_in_one_lane_is_made_by_another() {
    with_lanes(|rig| async move {
        let code = Code::new(&[]);
        let mut zygotes = Vec::new();
        // One more than a lane can have, with as few lanes as that takes.
        let most = rig.spawner.zygote_slots() / 4;
        for _ in 0..=most {
            zygotes.push(zygote(&rig, &code).await);
        }
        let of = |zygote: &snowmelt_sandbox::Zygote| status(zygote.pid(), "PPid:").unwrap();
        assert_eq!(zygotes.iter().map(of).collect::<BTreeSet<_>>().len(), 2);
    });
}

#[test]
fn a_zygote_and_its_children_belong_to_one_lane() {
    with_lanes(|rig| async move {
        drop(sleepers(&rig.spawner, MANY).await);
        let code = Code::new(&[]);
        let child = || code.fork("handler:serve");
        let zygotes = [zygote(&rig, &code).await, zygote(&rig, &code).await];
        let lanes = zygotes.each_ref().map(|zygote| status(zygote.pid(), "PPid:").unwrap());
        assert_ne!(lanes[0], lanes[1]);
        for zygote in &zygotes {
            let children = within(rig.spawner.fork_many(zygote, vec![child(), child()])).await;
            assert!(children.iter().all(Result::is_ok), "{children:?}");
            let children: Vec<_> = children.into_iter().map(|child| child.unwrap()).collect();
            for child in &children {
                let parent = status(child.pid(), "PPid:");
                assert_eq!(parent, Some(zygote.pid().to_string()), "{child:?}");
            }
            assert!(lives(zygote.pid()));
        }
        kill(lanes[0].parse().unwrap());
        assert_eq!(within(zygotes[0].wait()).await.end, End::SpawnerLost);
        let error = within(rig.spawner.fork(&zygotes[0], child())).await.err();
        assert!(matches!(error, Some(Error::SpawnerLost)), "{error:?}");
        within(rig.spawner.fork(&zygotes[1], child())).await.unwrap();
    });
}

async fn zygote(rig: &Rig, code: &Code) -> snowmelt_sandbox::Zygote {
    within(rig.spawner.start_zygote(code.zygote(&[]))).await.unwrap()
}
