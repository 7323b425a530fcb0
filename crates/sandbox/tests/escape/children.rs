//! The set-up of a zygote's child, which is native code of its own
//! (`runtimes/native/snowmelt_zygote.c`): each of its steps is left out in turn, and an attack
//! succeeds that the step prevents. If several steps prevent an attack, each alone does.
//!
//! Only these: `scripts/escape children`.

use std::io::{BufRead, BufReader};
use std::path::Path;

use snowmelt_kernel::landlock;
use snowmelt_sandbox::{ForkSpec, Sandbox, Zygote};
use snowmelt_types::End;

use crate::harness::{Rig, python_root, read_all, within};
use crate::twin::{escapes_only_without, never_escapes_without, set_mode};
use crate::zygotes::{child, importing};

/// An attack by a child: the source of a module with a function `attack`, which prints `ESCAPED` if
/// it succeeds, and a change of the child's sandbox.
fn only_without(steps: &[&str], source: &'static str, change: fn(&mut ForkSpec)) {
    escapes_only_without(steps, |rig| async move {
        let saw = printed_by_child(&rig, source, change).await;
        assert!(saw.contains("tried"), "the attack did not run: {saw}");
        saw
    });
    for step in steps.iter().filter(|step| steps.len() > 1 && is_supported(step)) {
        let others: Vec<_> = steps.iter().copied().filter(|other| other != step).collect();
        never_escapes_without(&others, |rig| async move {
            printed_by_child(&rig, source, change).await
        });
    }
}

fn is_supported(step: &str) -> bool {
    step != "ChildLandlock" || landlock::version() >= 2
}

/// What the child prints, or why it was not made.
async fn printed_by_child(rig: &Rig, source: &str, change: fn(&mut ForkSpec)) -> String {
    let (spec, code) = importing(source);
    set_mode(code.path(), 0o777);
    let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
    let mut spec = child(&code);
    change(&mut spec);
    let mut child = match within(rig.spawner.fork(&zygote, spec)).await {
        Ok(child) => child,
        Err(error) => return format!("not made: {error}"),
    };
    let log = child.take_log().unwrap();
    let text = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
    within(child.wait()).await;
    text
}

#[test]
fn a_process_of_the_zygote_is_seen() {
    let source = "
import os
def attack(listener):
    others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]
    if others: print('ESCAPED: sees', others)
    print('tried')
";
    only_without(&["ChildProcesses"], source, |_| ());
}

#[test]
fn a_file_of_the_zygotes_root_is_seen() {
    let source = "
import os
def attack(listener):
    if os.path.exists('/code/package.py'): print('ESCAPED: sees it')
    print('tried')
";
    only_without(&["ChildRoot"], source, |spec| spec.root = python_root());
}

/// The spawner also refuses a child with another user.
#[test]
fn a_child_has_the_user_of_another() {
    escapes_only_without(&["ChildUser", "ChildIdentity"], |rig| async move { users(&rig).await });
    never_escapes_without(&["ChildUser"], |rig| async move { users(&rig).await });
}

/// Two children of a zygote print the id in the zygote's range that is their only one.
async fn users(rig: &Rig) -> String {
    let (spec, code) = importing(
        "
import time
def attack(listener):
    print(open('/proc/self/uid_map').read().split()[1], flush=True)
    time.sleep(600)
",
    );
    let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
    let first = waiting(rig, &zygote, &code).await;
    let second = waiting(rig, &zygote, &code).await;
    let mut ids = Vec::new();
    for (sandbox, id) in [first, second].into_iter().flatten() {
        sandbox.kill(End::Killed);
        within(sandbox.wait()).await;
        ids.push(id);
    }
    match &ids[..] {
        [one, other] if one == other => format!("ESCAPED: both are {one}"),
        _ => format!("{ids:?}"),
    }
}

/// A child that is still running, and the first line that it printed; none if it was not made.
async fn waiting(
    rig: &Rig,
    zygote: &Zygote,
    code: &tempfile::TempDir,
) -> Option<(Sandbox, String)> {
    let mut sandbox = within(rig.spawner.fork(zygote, child(code))).await.ok()?;
    let line = first_line(&mut sandbox).await;
    Some((sandbox, line))
}

async fn first_line(sandbox: &mut Sandbox) -> String {
    let log = std::fs::File::from(sandbox.take_log().unwrap());
    let read = move || {
        let mut line = String::new();
        BufReader::new(log).read_line(&mut line).map(|_| line)
    };
    within(tokio::task::spawn_blocking(read)).await.unwrap().unwrap().trim().to_owned()
}

#[test]
fn a_child_is_killed_no_sooner_than_its_zygote() {
    let source = "
def attack(listener):
    score = open('/proc/self/oom_score_adj').read().strip()
    if int(score) < 800: print('ESCAPED: has', score)
    print('tried')
";
    only_without(&["ChildOomScore"], source, |_| ());
}

/// The child lowers its score to that of its zygote; Landlock refuses the write as well.
#[test]
fn a_file_of_proc_is_written() {
    let source = "
def attack(listener):
    try:
        with open('/proc/self/oom_score_adj', 'w') as file: file.write('500')
        print('ESCAPED: wrote')
    except OSError as error: print(error)
    print('tried')
";
    only_without(&["ReadOnlyProc", "ChildLandlock"], source, |_| ());
}

#[test]
fn files_of_proc_about_the_machine_are_read() {
    let source = "
import os
def attack(listener):
    for name in ('cmdline', 'interrupts', 'sys/kernel/random/boot_id'):
        path = '/proc/' + name
        if os.path.exists(path) and open(path, 'rb').read(1): print('ESCAPED: read', name)
    print('tried')
";
    only_without(&["MaskedProc"], source, |_| ());
}

/// The names of its own control group and, by `..`, of those above.
#[test]
fn the_names_of_control_groups_are_seen() {
    let source = "
def attack(listener):
    for line in open('/proc/self/cgroup'):
        path = line.rstrip().split(':', 2)[2]
        if path != '/': print('ESCAPED: sees', path)
    print('tried')
";
    only_without(&["ChildControlGroupNamespace"], source, |_| ());
}

/// With control groups of version 2 the spawner moves the child, as a part of its check.
#[test]
fn a_child_has_the_limits_of_its_zygote() {
    let source = "
import os, time
def attack(listener):
    print('tried', flush=True)
    for count in range(40):
        if os.fork() == 0: time.sleep(600)
    print('ESCAPED: made', count)
";
    let few = |spec: &mut ForkSpec| spec.limits.pids = 16;
    escapes_only_without(&["ChildControlGroup", "ChildIdentity"], |rig| async move {
        printed_by_child(&rig, source, few).await
    });
    never_escapes_without(&["ChildControlGroup"], |rig| async move {
        printed_by_child(&rig, source, few).await
    });
}

#[test]
fn more_files_are_opened_than_the_limit() {
    let source = "
import os
def attack(listener):
    print('tried', flush=True)
    for number in range(200): os.dup(0)
    print('ESCAPED: opened', number)
";
    only_without(&["ChildOpenFiles"], source, |spec| spec.limits.open_files = 64);
}

#[test]
fn a_descriptor_of_the_zygote_is_left() {
    let source = "
import os
def is_open(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False
def attack(listener):
    left = [fd for fd in range(4, 256) if is_open(fd)]
    if left: print('ESCAPED: has', left)
    print('tried')
";
    only_without(&["ChildDescriptors"], source, |_| ());
}

const STATUS: &str = "
def attack(listener):
    for line in open('/proc/self/status'):
        name, _, value = line.partition(':')
        if name.startswith('Cap') and int(value, 16): print('ESCAPED:', line)
    print('tried')
";

#[test]
fn a_capability_is_left() {
    only_without(&["ChildCapabilities"], STATUS, |_| ());
}

/// It inherits `no_new_privs` from its zygote as well; and without it neither the filter nor
/// Landlock's rules can be installed.
#[test]
fn an_exec_can_give_privileges() {
    let source = "
def attack(listener):
    if 'NoNewPrivs:\\t0' in open('/proc/self/status').read(): print('ESCAPED: it can')
    print('tried')
";
    let steps = ["NoNewPrivileges", "ChildNoNewPrivileges", "ChildLandlock", "ChildSeccomp"];
    only_without(&steps, source, |_| ());
}

/// A folder of the host that every user may write, on a mount that is not read-only.
#[test]
fn a_file_appears_on_the_host() {
    if landlock::version() < 2 {
        return eprintln!("skipped: Landlock here has no rules for files");
    }
    let source = "
def attack(listener):
    try:
        open('/code/planted', 'w').close()
        print('ESCAPED: wrote')
    except OSError as error: print(error)
    print('tried')
";
    only_without(&["Inert", "ChildLandlock"], source, |_| ());
}

/// An abstract socket: the children of a zygote share its empty network namespace.
#[test]
fn a_sibling_is_reached() {
    if landlock::version() < 6 {
        return eprintln!("skipped: Landlock here cannot scope abstract sockets");
    }
    escapes_only_without(&["ChildLandlock"], |rig| async move {
        let (spec, code) = importing(SIBLINGS);
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let mut listening = child(&code);
        listening.entry = "package:listen".into();
        let mut sibling = within(rig.spawner.fork(&zygote, listening)).await.unwrap();
        assert_eq!(first_line(&mut sibling).await, "listening");
        let (attacker, saw) = waiting(&rig, &zygote, &code).await.unwrap();
        for sandbox in [attacker, sibling] {
            sandbox.kill(End::Killed);
            within(sandbox.wait()).await;
        }
        saw
    });
}

const SIBLINGS: &str = "
import socket, time
NAME = chr(0) + 'meeting'
def listen(_):
    listener = socket.socket(socket.AF_UNIX); listener.bind(NAME); listener.listen()
    print('listening', flush=True)
    time.sleep(600)
def attack(_):
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.connect(NAME)
        print('ESCAPED: connected', flush=True)
    except OSError as error: print(error, flush=True)
    time.sleep(600)
";

/// The calls that only zygotes may make, here a user namespace with every capability.
#[test]
fn a_user_namespace_is_made() {
    let source = "
import ctypes
def attack(listener):
    if ctypes.CDLL(None).unshare(0x10020000) == 0: print('ESCAPED: it has its own namespaces')
    print('tried')
";
    only_without(&["ChildSeccomp"], source, |_| ());
}

/// Every step that can be left out has an attack here.
#[test]
fn every_step_of_the_native_loop_has_an_attack() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let native = folder.join("../../runtimes/native/snowmelt_zygote.c");
    let native = std::fs::read_to_string(native).unwrap();
    let here = include_str!("children.rs");
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        let quoted = text.split('"').filter(|part| part.starts_with("Child"));
        quoted.filter(|part| part.chars().all(char::is_alphanumeric)).map(Into::into).collect()
    };
    let mut attacked = names(here);
    let steps = names(&native);
    // A check of the spawner, not a step of the child; and the prefix above.
    attacked.retain(|name| name != "ChildIdentity" && name != "Child");
    assert!(steps.len() > 10, "{steps:?}");
    assert_eq!(attacked, steps);
}
