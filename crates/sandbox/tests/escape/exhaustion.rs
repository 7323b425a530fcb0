//! Using up what others need (CVE-2022-31030, CVE-2022-23471, CVE-2023-25153).

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use snowmelt_sandbox::SandboxSpec;
use snowmelt_types::{ByteSize, End};

use crate::harness::{python, within};
use crate::twin::{held, printed, shown};

fn limited(script: &str) -> SandboxSpec {
    let mut spec = python(script);
    spec.limits.memory = ByteSize::mib(64);
    spec.limits.scratch = ByteSize::mib(1);
    (spec.limits.pids, spec.limits.open_files) = (16, 64);
    spec
}

#[test]
fn processes_without_end() {
    shown(&["ControlGroup"], |rig| async move {
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
fn memory_without_end() {
    shown(&["ControlGroup"], |rig| async move {
        let script = "print('ESCAPED: has', len(b'x' * (128 << 20)))";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn a_scratch_without_end() {
    shown(&["ScratchSize"], |rig| async move {
        let script = "
with open('/tmp/x', 'wb') as file:
    for _ in range(8): file.write(bytes(1 << 20)); file.flush()
print('ESCAPED: wrote 8 MiB')
";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn files_without_end() {
    shown(&["ScratchSize"], |rig| async move {
        let script = "
for number in range(2000): open(f'/tmp/{number}', 'w').close()
print('ESCAPED: made', number)
";
        printed(&rig, limited(script)).await
    });
}

#[test]
fn descriptors_without_end() {
    shown(&["OpenFiles"], |rig| async move {
        let script = "
import os
for number in range(200): os.dup(0)
print('ESCAPED: opened', number)
";
        printed(&rig, limited(script)).await
    });
}

/// What nobody reads fills a pipe and nothing else: the writer waits.
#[test]
fn a_log_without_end() {
    held(|rig| async move {
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

/// A program that never accepts a connection does not hold up whoever connects to it. It cannot
/// fill the queue by itself: the socket's name is for root to use.
#[test]
fn connections_that_are_never_accepted() {
    held(|rig| async move {
        let script = "
import socket, time
try: socket.socket(socket.AF_UNIX).connect('/tmp/channel.sock'); print('ESCAPED', flush=True)
except PermissionError: print('refused', flush=True)
time.sleep(600)
";
        let mut sandbox = rig.python(script).await;
        let mut log = std::fs::File::from(sandbox.take_log().unwrap());
        let read = move || {
            let mut said = [0; 7];
            log.read_exact(&mut said).map(|()| String::from_utf8_lossy(&said).into_owned())
        };
        let said = within(tokio::task::spawn_blocking(read)).await.unwrap().unwrap();
        let sandbox = Arc::new(sandbox);
        let caller = sandbox.clone();
        // In a thread of its own: a wait in vain would end with the sandbox alone.
        let connect = move || (0..5000).find_map(|_| caller.connect().err());
        let refused = within(tokio::task::spawn_blocking(connect)).await.unwrap();
        sandbox.kill(End::Killed);
        within(sandbox.wait()).await;
        match refused {
            Some(error) if error.kind() == ErrorKind::WouldBlock => said,
            other => format!("ESCAPED: {other:?}"),
        }
    });
}
