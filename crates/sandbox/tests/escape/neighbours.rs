//! Other sandboxes and the host's processes.

use std::io::Read;

use snowmelt_sandbox::{Sandbox, SandboxSpec};
use snowmelt_types::End;

use crate::harness::{Rig, python, within};
use crate::twin::{escapes_only_without, open_folder, printed, with_bind};

/// Starts a script and waits until it prints that it is ready.
async fn victim(rig: &Rig, script: &str) -> Sandbox {
    let mut spec = python(script);
    spec.env.push(("SECRET".into(), "of-the-neighbour".into()));
    victim_of(rig, spec).await
}

async fn victim_of(rig: &Rig, spec: SandboxSpec) -> Sandbox {
    let mut sandbox = rig.spawner.start(spec).await.unwrap();
    let mut log = std::fs::File::from(sandbox.take_log().unwrap());
    let ready = tokio::task::spawn_blocking(move || log.read_exact(&mut [0; 6]));
    within(ready).await.unwrap().unwrap();
    sandbox
}

const SLEEP: &str = "import time; print('ready', flush=True); time.sleep(600)";

#[test]
fn a_process_of_the_host_is_seen() {
    escapes_only_without(&["Processes"], |rig| async move {
        let script = "
import os
others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]
if others: print('ESCAPED: sees', len(others))
";
        printed(&rig, python(script)).await
    });
}

/// Its environment, memory and files, all through `/proc/<pid>`. The pid namespace hides it, its
/// user id and Landlock refuse the access.
#[test]
fn the_environment_of_a_neighbour_is_read() {
    escapes_only_without(&["Processes", "User", "Landlock"], |rig| async move {
        let neighbour = victim(&rig, SLEEP).await;
        let script = "
import glob
for path in glob.glob('/proc/[0-9]*/environ'):
    try:
        if b'of-the-' + b'neighbour' in open(path, 'rb').read(): print('ESCAPED:', path)
    except OSError: pass
";
        let saw = printed(&rig, python(script)).await;
        neighbour.kill(End::Killed);
        within(neighbour.wait()).await;
        saw
    });
}

#[test]
fn a_neighbour_is_killed() {
    escapes_only_without(&["Processes", "User", "Landlock"], |rig| async move {
        let neighbour = victim(&rig, &format!("{SLEEP} # {}", "kill-me")).await;
        let script = "
import glob, os, signal
for path in glob.glob('/proc/[0-9]*/cmdline'):
    try:
        pid = int(path.split('/')[2])
        mine = pid == os.getpid()
        if not mine and b'# kill' + b'-me' in open(path, 'rb').read(): os.kill(pid, signal.SIGTERM)
    except OSError: pass
";
        let saw = printed(&rig, python(script)).await;
        neighbour.kill(End::Killed);
        match within(neighbour.wait()).await.end {
            End::Signal { signal: 15 } => format!("ESCAPED: it was ended {saw}"),
            _ => saw,
        }
    });
}

/// An abstract socket, and through it a descriptor: sandboxes with the same code share one empty
/// network namespace, to which such sockets belong.
#[test]
fn a_neighbour_hands_over_its_files() {
    if snowmelt_kernel::landlock::version() < 6 {
        return eprintln!("skipped: Landlock here cannot scope abstract sockets");
    }
    escapes_only_without(&["Landlock"], |rig| async move {
        let neighbour = victim(
            &rig,
            "
import os, socket
open('/tmp/mine', 'w').write('of the neighbour')
listener = socket.socket(socket.AF_UNIX); listener.bind(chr(0) + 'meeting'); listener.listen()
print('ready', flush=True)
while True:
    stream, _ = listener.accept()
    socket.send_fds(stream, [b'x'], [os.open('/tmp', os.O_RDONLY)])
",
        )
        .await;
        let script = "
import os, socket
stream = socket.socket(socket.AF_UNIX)
try:
    stream.connect(chr(0) + 'meeting')
    _, (folder,), _, _ = socket.recv_fds(stream, 1, 1)
    print('ESCAPED: read', os.read(os.open('mine', os.O_RDONLY, dir_fd=folder), 99))
except OSError as error: print(error)
";
        let saw = printed(&rig, python(script)).await;
        neighbour.kill(End::Killed);
        within(neighbour.wait()).await;
        saw
    });
}

/// The names of a neighbour's sockets, in `/proc/net/unix`; and an abstract name in use by it
/// cannot be used by another. Programs with other code have other roots.
#[test]
fn the_names_of_a_neighbours_sockets_are_seen() {
    escapes_only_without(&["OwnNetwork"], |rig| async move {
        let mine = open_folder();
        let code = open_folder();
        let listen = "
import socket, time
listener = socket.socket(socket.AF_UNIX); listener.bind(chr(0) + 'of-the-neighbour'); listener.listen()
print('ready', flush=True); time.sleep(600)
";
        let neighbour = victim_of(&rig, with_bind(python(listen), code.path(), "/code")).await;
        let script = "
import socket
if 'of-the-neighbour' in open('/proc/net/unix').read(): print('ESCAPED: sees its name')
try: socket.socket(socket.AF_UNIX).bind(chr(0) + 'of-the-neighbour')
except OSError as error: print('ESCAPED: it is taken', error)
";
        let saw = printed(&rig, with_bind(python(script), mine.path(), "/code")).await;
        neighbour.kill(End::Killed);
        within(neighbour.wait()).await;
        saw
    });
}

/// System V memory is named in the IPC namespace, which all share because the filter refuses it.
#[test]
fn a_neighbours_shared_memory_is_found() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let make = "
import ctypes, time
ctypes.CDLL(None).shmget(0x5eed, 4096, 0o1666)
print('ready', flush=True); time.sleep(600)
";
        let neighbour = victim(&rig, make).await;
        let script = "
import ctypes
if ctypes.CDLL(None).shmget(0x5eed, 4096, 0) >= 0: print('ESCAPED: found')
";
        let saw = printed(&rig, python(script)).await;
        neighbour.kill(End::Killed);
        within(neighbour.wait()).await;
        saw
    });
}
