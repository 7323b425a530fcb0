//! One attack against two spawners.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use snowmelt_sandbox::{Bind, SandboxSpec};
use snowmelt_types::SandboxId;

use crate::harness::{Rig, SharedRig, is_root, runtime, spawner_program};

/// The output of a successful attack.
pub const ESCAPED: &str = "ESCAPED";

/// Runs the attack against the product's spawner, where it must fail, and against one without
/// `defences`, where it must succeed. The attack returns the attacker's output.
pub fn escapes_only_without<F: Future<Output = String>>(
    defences: &[&str],
    attack: impl Fn(SharedRig) -> F,
) {
    escapes_only_without_behind(&[], defences, attack);
}

/// The same with a command in front of the spawner's, which prepares inherited state.
pub fn escapes_only_without_behind<F: Future<Output = String>>(
    front: &[&str],
    defences: &[&str],
    attack: impl Fn(SharedRig) -> F,
) {
    let Some(saw) = attempt(front, product(), &attack) else { return };
    assert!(!saw.contains(ESCAPED), "it escaped from the product: {saw}");
    let saw = attempt(front, weakened(defences), &attack).unwrap_or_default();
    assert!(saw.contains(ESCAPED), "it failed even without {defences:?}: {saw}");
}

/// For an attack whose defence cannot be disabled, because it is part of the design: checks only
/// that it fails.
pub fn never_escapes<F: Future<Output = String>>(attack: impl Fn(SharedRig) -> F) {
    if let Some(saw) = attempt(&[], product(), &attack) {
        assert!(!saw.contains(ESCAPED), "it escaped from the product: {saw}");
    }
}

fn attempt<F: Future<Output = String>>(
    front: &[&str],
    spawner: Vec<OsString>,
    attack: &impl Fn(SharedRig) -> F,
) -> Option<String> {
    if !is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return None;
    }
    let command = front.iter().map(OsString::from).chain(spawner).collect();
    Some(runtime().block_on(async {
        let rig = Arc::new(Rig::with(command));
        let saw = attack(rig.clone()).await;
        rig.spawner.shutdown().await.unwrap();
        rig.assert_nothing_left();
        saw
    }))
}

pub fn product() -> Vec<OsString> {
    match std::env::var("SNOWMELT_SPAWNER") {
        Ok(command) => command.split_whitespace().map(OsString::from).collect(),
        Err(_) => vec![spawner_program().into()],
    }
}

pub fn weakened(defences: &[&str]) -> Vec<OsString> {
    let named = format!("SNOWMELT_WEAKEN={}", defences.join(","));
    vec!["/usr/bin/env".into(), named.into(), spawner_program().into()]
}

/// Runs a program to its end; returns its output and its end.
pub async fn printed(rig: &Rig, spec: SandboxSpec) -> String {
    let (text, outcome) = rig.run(spec).await;
    format!("{text}\n({:?})", outcome.end)
}

/// A world-readable folder of the host, to be mounted in sandboxes.
pub fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    folder
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Mounts a folder in the sandbox.
pub fn with_bind(mut spec: SandboxSpec, source: &Path, target: &str) -> SandboxSpec {
    spec.id = SandboxId::new();
    spec.root.binds.push(Bind { source: source.into(), target: target.into() });
    spec
}

/// Checks that an attack fails even without these defences, because of another one.
pub fn never_escapes_without<F: Future<Output = String>>(
    defences: &[&str],
    attack: impl Fn(SharedRig) -> F,
) {
    if let Some(saw) = attempt(&[], weakened(defences), &attack) {
        assert!(!saw.contains(ESCAPED), "it escaped without {defences:?}: {saw}");
    }
}

/// The spawner's process: the only child of this one that has the run directory as its lock.
pub fn spawner_of(rig: &Rig) -> u32 {
    let lock = |pid: u32| {
        let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        folder.flatten().find(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == rig.run_dir))
    };
    let ours = std::process::id();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != ours).find(|pid| lock(*pid).is_some()).unwrap()
}
