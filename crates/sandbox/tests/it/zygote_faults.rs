//! Zygotes and children that fail, use too much, or break the protocol.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_sandbox::{Error, Zygote};
use snowmelt_types::{ByteSize, End};

use crate::harness::{Rig, ask, is_root, runtime, until, with_spawner, within};
use crate::zygote::{Code, child, zygote};

#[test]
fn a_child_out_of_memory_does_not_affect_the_zygote_and_its_siblings() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let sibling = child(&rig, &zygote, &code).await;
        let mut small = code.fork("handler:serve");
        small.limits.memory = ByteSize::mib(32);
        let greedy = rig.spawner.fork(&zygote, small).await.unwrap();
        assert_eq!(ask(&greedy, "len(bytearray(200 << 20))").unwrap_or_default(), "");
        let outcome = within(greedy.wait()).await;
        assert!(matches!(outcome.end, End::OutOfMemory { .. }), "{outcome:?}");
        assert_eq!(ask(&sibling, "1 + 1").unwrap(), "2");
        assert_eq!(ask(&child(&rig, &zygote, &code).await, "2 + 2").unwrap(), "4");
    });
}

#[test]
fn a_child_that_keeps_forking_reaches_its_own_limit() {
    with_spawner(|rig| async move {
        let bomb = "import os\ndef serve(listener):\n    while True: os.fork()\n";
        let code = Code::new(&[("bomb.py", bomb)]);
        let zygote = zygote(&rig, &code, &[]).await;
        let child = rig.spawner.fork(&zygote, code.fork("bomb:serve")).await.unwrap();
        assert_eq!(within(child.wait()).await.end, End::PidsLimit { limit: 16 });
    });
}

#[test]
fn a_zygote_that_ends_during_its_imports_is_reported_as_lost() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("deadly.py", "import os\nos._exit(3)")]);
        let error = within(rig.spawner.start_zygote(code.zygote(&["deadly"]))).await.err();
        assert!(matches!(error, Some(Error::ZygoteLost { .. })), "{error:?}");
    });
}

#[test]
fn a_zygote_with_endless_imports_ends_when_the_caller_stops_waiting() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("endless.py", "import time\nwhile True: time.sleep(1)")]);
        let spec = code.zygote(&["endless"]);
        let waited = Duration::from_millis(300);
        assert!(tokio::time::timeout(waited, rig.spawner.start_zygote(spec)).await.is_err());
        until("the zygote is gone", || rig.processes().is_empty()).await;
    });
}

#[test]
fn a_zygote_that_breaks_the_protocol_is_killed() {
    with_spawner(|rig| async move {
        let liar = "import os\nos.write(3, b'{\"exited\": {\"token\": 1}}')\n";
        let code = Code::new(&[("liar.py", liar)]);
        let error = within(rig.spawner.start_zygote(code.zygote(&["liar"]))).await.err();
        assert!(matches!(error, Some(Error::ZygoteLost { .. })), "{error:?}");
        let sandbox = rig.python("print('the spawner continues')").await;
        assert_eq!(within(sandbox.wait()).await.end, End::Exit { code: 0 });
    });
}

/// A zygote with its own implementation of the protocol: it forks on order, and its child runs
/// `{SETUP}` before it reports its process, and `{AFTER}` once it may continue.
const IMPOSTOR: &str = "
import json, os, socket, struct, time
control = socket.socket(fileno=3)
control.send(json.dumps({'ready': {'failed': [], 'threads': 0}}).encode())
while True:
    order, fds, _, _ = socket.recv_fds(control, 4096, 8)
    if not order:
        os._exit(0)
    kind, number, count, root, fresh, _, token = struct.unpack('=6IQ', order)
    if os.fork() == 0:
        sync = socket.socket(fileno=fds[0])
        setup, fds, _, _ = socket.recv_fds(sync, 200000, 8)
        channel, log, *entries = fds
        {SETUP}
        sync.send(b'here')
        sync.recv(8)
        {AFTER}
        sync.recv(200000)
        sync.close()
        time.sleep(600)
    [os.close(fd) for fd in fds]
";

const ENTER: &str = "[os.write(entry, b'0') for entry in entries]";
const TAKE_ID: &str = "os.setresgid(number, number, number); os.setresuid(number, number, number)";

async fn impostor(rig: &Rig, setup: &str, after: &str) -> (Code, Zygote) {
    let text = IMPOSTOR.replace("{SETUP}", setup).replace("{AFTER}", after);
    let code = Code::new(&[("impostor.py", &text)]);
    let zygote = zygote(rig, &code, &["impostor"]).await;
    (code, zygote)
}

#[test]
fn a_zygote_whose_child_evades_its_limits_or_its_user_is_killed() {
    with_spawner(|rig| async move {
        // The impostor itself is not killed.
        let (code, zygote) = impostor(&rig, &format!("{ENTER}; {TAKE_ID}"), "pass").await;
        drop(within(rig.spawner.fork(&zygote, code.fork("handler:serve"))).await.unwrap());
        let mut evasions = vec![ENTER];
        if rig.groups().len() > 1 {
            // Version 1 of control groups, where a child enters its group itself.
            evasions.push(TAKE_ID);
        }
        for evasion in evasions {
            let (code, zygote) = impostor(&rig, evasion, "pass").await;
            let fork = within(rig.spawner.fork(&zygote, code.fork("handler:serve"))).await;
            assert!(matches!(fork.err(), Some(Error::Start { .. })), "{evasion}");
            within(zygote.wait()).await;
        }
    });
}

#[test]
fn a_zygote_whose_child_never_finishes_its_set_up_is_killed() {
    with_spawner(|rig| async move {
        let complete = format!("{ENTER}; {TAKE_ID}");
        for (setup, after) in [("time.sleep(600)", "pass"), (&complete, "time.sleep(600)")] {
            let (code, zygote) = impostor(&rig, setup, after).await;
            let fork = within(rig.spawner.fork(&zygote, code.fork("handler:serve"))).await;
            assert!(matches!(fork.err(), Some(Error::ZygoteLost { .. })), "{setup} {after}");
            within(zygote.wait()).await;
        }
    });
}

/// A zygote has 32 places for children in flight. A child that fails after the spawner has found
/// its process, as one that is killed in its set-up, gives its place back.
#[test]
fn children_that_fail_once_they_are_known_leave_room_for_others() {
    with_spawner(|rig| async move {
        // The first children can be found, but "go" cannot be sent to them.
        let deaf = format!("{ENTER}; {TAKE_ID}; number > 32 or sync.shutdown(socket.SHUT_RD)");
        let (code, zygote) = impostor(&rig, &deaf, "pass").await;
        let specs = (0..33).map(|_| code.fork("handler:serve")).collect();
        let mut forks = within(rig.spawner.fork_many(&zygote, specs)).await;
        drop(forks.pop().unwrap().unwrap());
        for fork in forks {
            let error = fork.err();
            assert!(
                matches!(&error, Some(Error::Start { step, .. }) if step == "release the child"),
                "{error:?}"
            );
        }
    });
}

/// The server would count the lane as busy for ever, and start another one for its next programs.
#[test]
fn a_fork_that_is_cancelled_in_the_queue_is_answered() {
    if !is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    runtime().block_on(async {
        let rig = Arc::new(Rig::with_lanes(2));
        let (code, zygote) = impostor(&rig, "time.sleep(600)", "pass").await;
        let zygote = Arc::new(zygote);
        let specs = (0..32).map(|_| code.fork("handler:serve")).collect();
        let in_flight = tokio::spawn({
            let rig = rig.clone();
            let zygote = zygote.clone();
            async move { rig.spawner.fork_many(&zygote, specs).await }
        });
        until("all places are taken", || rig.processes().len() > 32).await;
        let queued = rig.spawner.fork(&zygote, code.fork("handler:serve"));
        assert!(tokio::time::timeout(Duration::from_millis(100), queued).await.is_err());
        in_flight.abort();
        assert!(in_flight.await.unwrap_err().is_cancelled());
        drop(zygote);
        until("the zygote is gone", || rig.processes().is_empty()).await;
        // Each finds the lane idle, so there is nothing for another lane to do.
        for _ in 0..12 {
            rig.printed("print('alone')").await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(rig.spawner.health().processes.len(), 1);
        within(rig.spawner.shutdown()).await.unwrap();
        rig.assert_nothing_left();
    });
}
