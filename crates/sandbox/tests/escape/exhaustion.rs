//! Exhausting resources that others need (CVE-2022-31030, CVE-2022-23471, CVE-2023-25153).

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use snowmelt_sandbox::{Network, SandboxSpec, SyscallPolicy};
use snowmelt_types::{ByteSize, End};

use crate::harness::{python, within};
use crate::twin::{escapes_only_without, never_escapes, printed};

fn limited(script: &str) -> SandboxSpec {
    let mut spec = python(script);
    spec.limits.memory = ByteSize::mib(64);
    spec.limits.scratch = ByteSize::mib(1);
    (spec.limits.pids, spec.limits.open_files) = (16, 64);
    spec
}

#[test]
fn unlimited_processes() {
    escapes_only_without(&["ControlGroup"], |rig| async move {
        let script = "
import os, time
for count in range(40):
    if os.fork() == 0: time.sleep(600)
print('ESCAPED: made', count)
";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn unlimited_memory() {
    escapes_only_without(&["ControlGroup"], |rig| async move {
        let script = "print('ESCAPED: has', len(b'x' * (128 << 20)))";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn an_unlimited_scratch() {
    escapes_only_without(&["ScratchSize"], |rig| async move {
        let script = "
with open('/tmp/x', 'wb') as file:
    for _ in range(8): file.write(bytes(1 << 20)); file.flush()
print('ESCAPED: wrote 8 MiB')
";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn unlimited_files() {
    escapes_only_without(&["ScratchSize"], |rig| async move {
        let script = "
for number in range(2000): open(f'/tmp/{number}', 'w').close()
print('ESCAPED: made', number)
";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn unlimited_descriptors() {
    escapes_only_without(&["OpenFiles"], |rig| async move {
        let script = "
import os
for number in range(200): os.dup(0)
print('ESCAPED: opened', number)
";
        printed(&rig, limited(script)).await
    });
}

/// Unused timers: the kernel counts them per user, together with pending signals.
#[test]
fn unlimited_signals_and_timers() {
    escapes_only_without(&["PendingSignals"], |rig| async move {
        let script = "
import ctypes
libc = ctypes.CDLL(None)
create = getattr(libc, 'timer_create', None) or ctypes.CDLL('librt.so.1').timer_create
count, timer = 0, ctypes.c_void_p()
while count < 6000 and create(1, None, ctypes.byref(timer)) == 0: count += 1
print('ESCAPED: made' if count == 6000 else 'made', count)
";
        printed(&rig, limited(script)).await
    });
}

/// Every user of the host has 128 inotify instances in total; and their events show what others do
/// with shared files.
#[test]
fn shared_files_are_watched() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let script = "
import ctypes
libc = ctypes.CDLL(None)
watcher = libc.inotify_init1(0)
if watcher >= 0 and libc.inotify_add_watch(watcher, b'/usr/bin', 0x20) >= 0: print('ESCAPED: watches')
";
        printed(&rig, limited(script)).await
    });
}

/// Huge pages that the host reserves for its own programs count in no control group. The attack has
/// succeeded if the call reaches the kernel: the kernel's own result depends on its reserve.
#[test]
fn huge_pages_of_the_host_are_requested() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let script = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
HUGETLB = 0x40000
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
# A file outside a directory of huge pages: the kernel refuses that with another error.
libc.mmap(None, 4096, 1, HUGETLB | 2, os.open('/dev/null', os.O_RDONLY), 0)
if ctypes.get_errno() == 22: print('ESCAPED: requested by mmap')
try: os.memfd_create('x', 4); print('ESCAPED: requested by memfd_create')
except OSError as error: print(error)
";
        printed(&rig, limited(script)).await
    });
}

/// Buffers of TCP connections, which version 1 of the control groups counts separately.
#[test]
fn unlimited_connection_buffers() {
    escapes_only_without(&["ControlGroup"], |rig| async move {
        let script = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
ends, written = [], 0
for _ in range(25):
    out = socket.create_connection(listener.getsockname())
    come, _ = listener.accept()
    ends += [out, come]
    for one in (out, come):
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        try:
            while True: written += one.send(bytes(1 << 16))
        except BlockingIOError: pass
print('ESCAPED: wrote' if written > 80 << 20 else 'wrote', written)
";
        let mut spec = limited(script);
        // The platform's own worker has a network without a job.
        (spec.network, spec.policy) = (Network::Host, SyscallPolicy::Worker);
        printed(&rig, spec).await
    });
}

/// Unread output only fills a pipe: the writer blocks.
#[test]
fn an_unlimited_log() {
    never_escapes(|rig| async move {
        let script = "
import fcntl, os
try: fcntl.fcntl(1, 1031, 1 << 30)
except OSError: pass
os.set_blocking(1, False)
written = 0
try:
    while written < 64 << 20: written += os.write(1, bytes(1 << 16))
except BlockingIOError: pass
os._exit(0 if written <= 4 << 20 else 1)
";
        let sandbox = rig.python(script).await;
        let end = within(sandbox.wait()).await.end;
        match end {
            End::Exit { code: 0 } => String::new(),
            other => format!("ESCAPED: {other:?}"),
        }
    });
}

/// A program that never accepts a connection does not block the caller that connects to it. It
/// cannot fill the queue itself: only root may use the socket's name.
#[test]
fn connections_that_are_never_accepted() {
    never_escapes(|rig| async move {
        let script = "
import socket, time
try: socket.socket(socket.AF_UNIX).connect('/tmp/channel.sock'); print('ESCAPED', flush=True)
except PermissionError: print('refused', flush=True)
time.sleep(600)
";
        let mut sandbox = rig.python(script).await;
        let mut log = std::fs::File::from(sandbox.take_log().unwrap());
        let read = move || {
            let mut printed = [0; 7];
            log.read_exact(&mut printed).map(|()| String::from_utf8_lossy(&printed).into_owned())
        };
        let printed = within(tokio::task::spawn_blocking(read)).await.unwrap().unwrap();
        let sandbox = Arc::new(sandbox);
        let caller = sandbox.clone();
        // In a thread of its own: a blocked wait would end only with the sandbox.
        let connect = move || (0..5000).find_map(|_| caller.connect().err());
        let refused = within(tokio::task::spawn_blocking(connect)).await.unwrap();
        sandbox.kill(End::Killed);
        within(sandbox.wait()).await;
        match refused {
            Some(error) if error.kind() == ErrorKind::WouldBlock => printed,
            other => format!("ESCAPED: {other:?}"),
        }
    });
}
