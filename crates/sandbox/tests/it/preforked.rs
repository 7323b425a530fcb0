//! Children that a zygote forks before anybody requests them.

use snowmelt_sandbox::Error;
use snowmelt_types::End;

use crate::harness::{Rig, ask, until, with_spawner, within};
use crate::zygote::{Code, child, zygote};

#[test]
fn a_preforked_child_serves_the_next_request_with_the_same_root_and_limits() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &["random"]).await;
        let first = child(&rig, &zygote, &code).await;
        let preforked = preforked_child(&rig, &[zygote.pid(), first.pid()]).await;
        let mut other = code.fork("handler:serve");
        other.limits.pids += 1;
        let other = within(rig.spawner.fork(&zygote, other)).await.unwrap();
        assert_ne!(other.pid(), preforked, "it has other limits");
        let mut like = code.fork("handler:serve");
        like.env.push(("GREETING".into(), "hello".into()));
        let id = like.id.clone();
        let like = within(rig.spawner.fork(&zygote, like)).await.unwrap();
        assert_eq!((like.pid(), like.id()), (preforked, &id));
        assert_eq!(ask(&like, "__import__('os').environ['GREETING']").unwrap(), "hello");
        let random = |child| ask(child, "sys.modules['random'].random()").unwrap();
        assert_ne!(random(&like), random(&first));
        like.kill(End::Killed);
        assert_eq!(within(like.wait()).await.end, End::Killed);
    });
}

#[test]
fn a_killed_preforked_child_does_not_affect_the_next_request() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let first = child(&rig, &zygote, &code).await;
        let preforked = preforked_child(&rig, &[zygote.pid(), first.pid()]).await;
        let process = rustix::process::Pid::from_raw(preforked).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        until("it is gone", || !rig.processes().contains(&preforked)).await;
        let next = child(&rig, &zygote, &code).await;
        assert_ne!(next.pid(), preforked);
        assert_eq!(ask(&next, "'alive'").unwrap(), "alive");
    });
}

#[test]
fn a_refused_request_leaves_the_preforked_child_to_the_next() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let first = child(&rig, &zygote, &code).await;
        let preforked = preforked_child(&rig, &[zygote.pid(), first.pid()]).await;
        let mut twin = code.fork("handler:serve");
        twin.id = first.id().clone();
        let refused = within(rig.spawner.fork(&zygote, twin)).await.err();
        assert!(matches!(refused, Some(Error::Spec { .. })), "{refused:?}");
        assert_eq!(child(&rig, &zygote, &code).await.pid(), preforked);
    });
}

/// Waits for the process that exists in addition to these, and is set up.
async fn preforked_child(rig: &Rig, others: &[i32]) -> i32 {
    let filters = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        count.map_or(0, |count| count.trim().parse::<u32>().unwrap())
    };
    // The last step of the set-up, after the spawner has found it.
    let is_set_up = |pid: &i32| filters(*pid) > filters(others[0]);
    let additional =
        || rig.processes().into_iter().find(|pid| !others.contains(pid)).filter(is_set_up);
    until("a child is preforked", || additional().is_some()).await;
    additional().unwrap()
}
