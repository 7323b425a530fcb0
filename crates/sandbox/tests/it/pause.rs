//! Paused and resumed sandboxes.

use crate::harness::{ask, python, until, with_spawner, within};
use snowmelt_types::End;

const COUNTER: &str = "
import socket, threading
count = 0
def tick():
    global count
    while True: count += 1
threading.Thread(target=tick, daemon=True).start()
listener = socket.socket(fileno=3)
while True:
    stream, _ = listener.accept()
    stream.makefile('rb').read()
    stream.sendall(str(count).encode())
    stream.close()
";

/// CPU time of a process so far, in ticks.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_paused_sandbox_uses_no_cpu_and_resumes_where_it_stopped() {
    with_spawner(|rig| async move {
        let sandbox = rig.python(COUNTER).await;
        let before: u64 = ask(&sandbox, "").unwrap().parse().unwrap();
        sandbox.pause().unwrap();
        let mut last = None;
        // It stops at its next return from the kernel, a tick later at most.
        until("it is stopped", || last.replace(ticks(sandbox.pid())) == Some(ticks(sandbox.pid())))
            .await;
        let stopped = ticks(sandbox.pid());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert_eq!(ticks(sandbox.pid()), stopped);
        assert!(sandbox.memory().unwrap().bytes() > 0);
        sandbox.resume().unwrap();
        let after: u64 = ask(&sandbox, "").unwrap().parse().unwrap();
        assert!(after >= before);
    });
}

#[test]
fn data_sent_to_a_paused_sandbox_is_buffered() {
    with_spawner(|rig| async move {
        let sandbox = std::sync::Arc::new(rig.python(COUNTER).await);
        ask(&sandbox, "").unwrap();
        sandbox.pause().unwrap();
        let target = sandbox.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&target, ""));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(!answer.is_finished());
        sandbox.resume().unwrap();
        assert!(within(answer).await.unwrap().unwrap().parse::<u64>().is_ok());
    });
}

#[test]
fn a_paused_sandbox_can_be_killed_and_its_group_is_reused() {
    with_spawner(|rig| async move {
        for _ in 0..3 {
            let sandbox = rig.python(COUNTER).await;
            sandbox.pause().unwrap();
            sandbox.kill(End::Killed);
            assert_eq!(within(sandbox.wait()).await.end, End::Killed);
            assert_eq!(rig.printed("print('running')").await, "running");
        }
        // One is paused while the spawner ends.
        let paused = rig.spawner.start(python(COUNTER)).await.unwrap();
        paused.pause().unwrap();
        std::mem::forget(paused);
    });
}
