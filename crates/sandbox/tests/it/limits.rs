//! Limits of sandboxes, and which processes are killed first.

use std::fs;

use snowmelt_sandbox::{ForkSpec, Limits, Network, SyscallPolicy, ZygoteSpec};
use snowmelt_types::SandboxId;

use crate::harness::{Rig, interpreter, python, python_root, with_spawner, within};

fn score(pid: impl std::fmt::Display) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    text.trim().parse().unwrap()
}

fn parent_of(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned()
}

fn zygote() -> ZygoteSpec {
    ZygoteSpec {
        id: SandboxId::new(),
        root: python_root(),
        python: interpreter().0.clone().into(),
        python_path: Vec::new(),
        imports: Vec::new(),
        env: Vec::new(),
        limits: Limits::default(),
    }
}

fn child() -> ForkSpec {
    ForkSpec {
        network: None,
        id: SandboxId::new(),
        root: python_root(),
        sys_path: Vec::new(),
        env: Vec::new(),
        limits: Limits::default(),
        // Waits for a connection that never arrives.
        entry: "socket:socket.accept".into(),
    }
}

#[test]
fn functions_are_killed_before_zygotes_and_zygotes_before_the_spawner() {
    with_spawner(|rig| async move {
        let program = rig.python("import time; time.sleep(600)").await;
        let mut spec = python("import time; time.sleep(600)");
        (spec.policy, spec.network) = (SyscallPolicy::Worker, Network::None);
        let worker = rig.spawner.start(spec).await.unwrap();
        let zygote = within(rig.spawner.start_zygote(zygote())).await.unwrap();
        let child = within(rig.spawner.fork(&zygote, child())).await.unwrap();
        let functions = [score(program.pid()), score(child.pid())];
        assert_eq!(functions[0], functions[1]);
        assert_eq!(score(worker.pid()), score(zygote.pid()));
        assert!(functions[0] > score(zygote.pid()));
        let spawner = score(parent_of(program.pid()));
        assert!(score(zygote.pid()) > spawner);
        assert_eq!(spawner, score("self"), "as the server was started");
    });
}

#[test]
fn no_sandbox_lowers_its_own_oom_score() {
    with_spawner(|rig| async move {
        let script = "
try: open('/proc/self/oom_score_adj', 'w').write('0')
except OSError: pass
print(open('/proc/self/oom_score_adj').read())
";
        assert_eq!(rig.printed(script).await, "800");
        if !may_set_resources() {
            return eprintln!("skipped: the kernel remembers no score of root without rights");
        }
        // A zygote may write there, but the kernel refuses a score below the first one.
        let folder = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).unwrap();
        fs::write(folder.path().join("lower.py"), script.replace("print", "pass #")).unwrap();
        let mut spec = zygote();
        let source = folder.path().into();
        let target = "/code".into();
        spec.root.binds.push(snowmelt_sandbox::Bind { source, target });
        (spec.python_path, spec.imports) = (vec!["/code".into()], vec!["lower".into()]);
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        assert_eq!(zygote.failed_imports(), &[] as &[String]);
        assert_eq!(score(zygote.pid()), 500);
    });
}

/// Whether root has `CAP_SYS_RESOURCE` here.
fn may_set_resources() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() >> 24 & 1 == 1
}

/// The value in this file of the control group above all of a rig's sandboxes.
fn above(rig: &Rig, name: &str) -> Option<u64> {
    let files = rig.groups().into_iter().map(|group| group.join(name));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).next()
}

#[test]
fn all_sandboxes_together_are_limited() {
    with_spawner(|rig| async move {
        let memory = above(&rig, "memory.max").or_else(|| above(&rig, "memory.limit_in_bytes"));
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let total: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(memory.unwrap() < total << 10, "{memory:?} of {total} kB");
        assert!(above(&rig, "pids.max").is_some());
    });
}

/// ZeroMQ sets the scheduling policy that every thread has already; no other one is allowed.
#[test]
fn a_thread_may_set_the_default_scheduling_policy() {
    with_spawner(|rig| async move {
        let script = "
import os
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
for policy in (os.SCHED_FIFO, os.SCHED_RR, os.SCHED_BATCH):
    try: os.sched_setscheduler(0, policy, os.sched_param(0)); print('has', policy)
    except PermissionError: pass
print('ordinary')
";
        assert_eq!(rig.printed(script).await, "ordinary");
    });
}
