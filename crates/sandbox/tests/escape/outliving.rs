//! Outliving the platform: a program clears its parent-death signal, and then server and spawner
//! are killed together, so that neither can clean up.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snowmelt_sandbox::sweep;
use snowmelt_types::SandboxId;

use crate::harness::{interpreter, is_root, spawner_program};
use crate::twin::{product, weakened};

/// The methods to clear it: the signal belongs to one thread, so a program that another thread
/// executes has none; and a program may clear it explicitly.
const EXECUTED_BY_A_THREAD: &str = "
import os, sys, threading
sleep = 'import time; time.sleep(600) #MARK'
threading.Thread(target=lambda: os.execv(sys.executable, [sys.executable, '-c', sleep])).start()
threading.Event().wait()
";
const ASKED_FOR: &str = "
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
sleep = 'import time; time.sleep(600) #MARK'
os.execv(sys.executable, [sys.executable, '-c', sleep])
";

#[test]
fn a_program_that_another_thread_executed_outlives_the_platform() {
    tried_twice(EXECUTED_BY_A_THREAD);
}

#[test]
fn a_program_that_clears_its_parent_death_signal_outlives_the_platform() {
    tried_twice(ASKED_FOR);
}

fn tried_twice(script: &str) {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    assert!(!outlives(product(), script), "it outlived the product");
    assert!(outlives(weakened(&["Init"]), script), "it was ended even without a pid namespace");
}

fn outlives(spawner: Vec<OsString>, script: &str) -> bool {
    let base = tempfile::tempdir().unwrap();
    let mark = SandboxId::new().to_string();
    let mut server = serve(&spawner, base.path(), &script.replace("MARK", &mark));
    // Found by its arguments after its exec.
    let attacker = wait_for(|| marked(&mark));
    let spawner = parent_of(attacker);
    let others = children_of(spawner);
    // While stopped, it cannot clean up when its server dies.
    signal(spawner, Signal::STOP);
    server.kill().unwrap();
    server.wait().unwrap();
    signal(spawner, Signal::KILL);
    // Processes that still have a parent-death signal die, whether the attacker does or not.
    wait_for(|| others.iter().all(|pid| *pid == attacker || !lives(*pid)).then_some(()));
    let started = Instant::now();
    while lives(attacker) && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let outlived = lives(attacker);
    // A control group is busy until the kernel has ended what was in it.
    wait_for(|| sweep(base.path()).ok().filter(|swept| !swept.is_empty()));
    wait_for(|| (!lives(attacker)).then_some(()));
    outlived
}

fn serve(spawner: &[OsString], base: &std::path::Path, script: &str) -> Child {
    let command: Vec<_> = spawner.iter().map(|part| part.to_str().unwrap()).collect();
    let (python, prefix) = interpreter();
    let mut server = Command::new(spawner_program().with_file_name("holder"))
        .args([&command.join(" "), base.join("run").to_str().unwrap()])
        .arg(format!("snowmelt/test-{}", SandboxId::new()))
        .args([OsStr::new(python), prefix.as_os_str(), OsStr::new(script)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "holding\n");
    server
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The process of the attacker after its exec.
fn marked(mark: &str) -> Option<i32> {
    let wanted = format!("-c\0import time; time.sleep(600) #{mark}\0");
    let is_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(wanted.as_bytes())
    };
    pids().find(is_it)
}

fn status(pid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

fn parent_of(pid: i32) -> i32 {
    status(pid, "PPid:").unwrap().parse().unwrap()
}

fn children_of(parent: i32) -> Vec<i32> {
    pids().filter(|pid| status(*pid, "PPid:").is_some_and(|of| of == parent.to_string())).collect()
}

fn lives(pid: i32) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
