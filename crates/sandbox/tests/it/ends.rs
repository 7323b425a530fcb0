//! The end reasons of a sandbox.

use std::time::Duration;

use crate::harness::{python, spec, with_spawner, within};
use snowmelt_types::{ByteSize, End};

#[test]
fn the_exit_code_is_reported() {
    with_spawner(|rig| async move {
        let (_, outcome) = rig.run(python("raise SystemExit(7)")).await;
        assert_eq!(outcome.end, End::Exit { code: 7 });
        assert!(outcome.wall > Duration::ZERO && outcome.cpu.unwrap() > Duration::ZERO);
    });
}

#[test]
fn a_crash_is_a_signal() {
    with_spawner(|rig| async move {
        let (_, outcome) = rig.run(python("import ctypes; ctypes.string_at(0)")).await;
        assert_eq!(outcome.end, End::Signal { signal: 11 });
    });
}

#[test]
fn the_first_kill_reason_is_reported_to_all_waiters() {
    with_spawner(|rig| async move {
        let sandbox = rig.python("import time; time.sleep(600)").await;
        sandbox.kill(End::Timeout { limit_ms: 5 });
        sandbox.kill(End::Killed);
        let (first, second) = tokio::join!(within(sandbox.wait()), within(sandbox.wait()));
        assert_eq!(first.end, End::Timeout { limit_ms: 5 });
        assert_eq!(first, second);
    });
}

#[test]
fn out_of_memory_is_reported_with_the_peak() {
    with_spawner(|rig| async move {
        let mut greedy = python("x = bytearray(300 << 20)");
        greedy.limits.memory = ByteSize::mib(64);
        let (text, outcome) = rig.run(greedy).await;
        let End::OutOfMemory { limit, peak } = outcome.end else { panic!("{outcome:?} {text}") };
        assert_eq!(limit, ByteSize::mib(64));
        assert!(peak > ByteSize::mib(50) && peak <= ByteSize::mib(65), "{peak}");
    });
}

#[test]
fn the_scratch_counts_as_memory() {
    with_spawner(|rig| async move {
        let mut greedy =
            python("open('/tmp/x', 'wb').write(bytes(1 << 20) * 40)\nimport time\ntime.sleep(60)");
        greedy.limits.memory = ByteSize::mib(64);
        greedy.limits.scratch = ByteSize::mib(512);
        greedy.command[3] = "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))".into();
        let (_, outcome) = rig.run(greedy).await;
        assert!(matches!(outcome.end, End::OutOfMemory { .. }), "{outcome:?}");
    });
}

#[test]
fn unlimited_forks_reach_the_pids_limit() {
    with_spawner(|rig| async move {
        let (text, outcome) = rig.run(python("import os\nwhile True: os.fork()")).await;
        assert_eq!(outcome.end, End::PidsLimit { limit: 32 }, "{text}");
    });
}

#[test]
fn a_full_scratch_is_an_error_only_inside() {
    with_spawner(|rig| async move {
        let script = "
import errno
try:
    f = open('/tmp/x', 'wb', buffering=0)
    while True: f.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
import os
made = 0
os.unlink('/tmp/x')
try:
    while True:
        open(f'/tmp/{made}', 'w').close(); made += 1
except OSError as error:
    print(errno.errorcode[error.errno])
";
        let mut small = python(script);
        small.limits.scratch = ByteSize::mib(8);
        let (text, outcome) = rig.run(small).await;
        assert_eq!(outcome.end, End::Exit { code: 0 });
        assert_eq!(text, "ENOSPC\nENOSPC\n");
    });
}

#[test]
fn background_processes_end_with_their_sandbox() {
    with_spawner(|rig| async move {
        let (text, outcome) = rig.run(spec(&["/bin/sh", "-c", "sleep 600 & echo left"])).await;
        assert_eq!((&*text, outcome.end), ("left\n", End::Exit { code: 0 }));
    });
}
