//! Starting a program and connecting to it.

use crate::harness::{ask, python, spec, with_spawner, within};
use snowmelt_sandbox::Error;
use snowmelt_types::{End, SandboxId};

const ECHO: &str = "
import os, socket
listener = socket.socket(fileno=int(os.environ['SNOWMELT_CHANNEL_FD']))
while True:
    stream, _ = listener.accept()
    stream.sendall(stream.makefile('rb').read().upper())
    stream.close()
";

#[test]
fn answers_over_the_channel_immediately_after_the_start() {
    with_spawner(|rig| async move {
        let sandbox = rig.python(ECHO).await;
        for word in ["one", "two"] {
            assert_eq!(ask(&sandbox, word).unwrap(), word.to_uppercase());
        }
        assert!(sandbox.memory_peak().unwrap().bytes() > 100_000);
        sandbox.kill(End::Killed);
        assert_eq!(within(sandbox.wait()).await.end, End::Killed);
        assert!(ask(&sandbox, "three").is_err());
    });
}

#[test]
fn a_low_limit_of_open_files_does_not_affect_the_start_of_many_sandboxes() {
    with_spawner(|rig| async move {
        let mut living = Vec::new();
        for _ in 0..30 {
            let mut spec = python(ECHO);
            spec.limits.open_files = 64;
            living.push(rig.spawner.start(spec).await.unwrap());
        }
        assert_eq!(ask(living.last().unwrap(), "one").unwrap(), "ONE");
        let limits = "print(__import__('resource').getrlimit(7))";
        let mut spec = python(limits);
        spec.limits.open_files = 64;
        assert_eq!(rig.run(spec).await.0.trim(), "(64, 64)");
    });
}

#[test]
fn a_missing_program_is_reported_by_name() {
    with_spawner(|rig| async move {
        let error = rig.spawner.start(spec(&["/usr/bin/no-such-program"])).await.err().unwrap();
        let Error::Start { step, source, .. } = &error else { panic!("{error}") };
        assert!(step.contains("/usr/bin/no-such-program"), "{step}");
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn a_missing_bind_source_is_reported_by_name() {
    with_spawner(|rig| async move {
        let mut wrong = python("");
        wrong.root.binds.push(snowmelt_sandbox::Bind {
            source: "/no/such/folder".into(),
            target: "/code".into(),
        });
        let error = rig.spawner.start(wrong).await.err().unwrap().to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    });
}

#[test]
fn an_id_in_use_or_with_a_path_is_refused() {
    with_spawner(|rig| async move {
        let first = python("import time; time.sleep(60)");
        let _first = rig.spawner.start(first.clone()).await.unwrap();
        for id in [first.id, SandboxId::from("../up".to_owned())] {
            let mut second = python("");
            second.id = id;
            assert!(matches!(rig.spawner.start(second).await, Err(Error::Spec { .. })));
        }
    });
}

#[test]
fn dropping_the_handle_ends_the_program() {
    with_spawner(|rig| async move {
        let sandbox = rig.python("import time; time.sleep(600)").await;
        assert_eq!(rig.processes(), [sandbox.pid()]);
        drop(sandbox);
        crate::harness::until("its process is gone", || rig.processes().is_empty()).await;
    });
}

#[test]
fn many_start_concurrently() {
    with_spawner(|rig| async move {
        let starts = (0..40).map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.run(spec(&["/bin/echo", "here"])).await })
        });
        for start in starts.collect::<Vec<_>>() {
            let (text, outcome) = start.await.unwrap();
            assert_eq!((&*text, outcome.end), ("here\n", End::Exit { code: 0 }));
        }
    });
}

#[test]
fn a_burst_is_one_request_and_failures_are_independent() {
    with_spawner(|rig| async move {
        let mut specs: Vec<_> = (0..60).map(|_| spec(&["/bin/echo", "here"])).collect();
        specs[7].command = vec!["/no/such/program".to_owned()];
        specs[11].command.clear();
        let ids: Vec<_> = specs.iter().map(|spec| spec.id.clone()).collect();
        let started = within(rig.spawner.start_many(specs)).await;
        assert_eq!(started.len(), 60);
        for (index, (started, id)) in started.into_iter().zip(ids).enumerate() {
            match started {
                Ok(sandbox) => {
                    assert_eq!(sandbox.id(), &id);
                    assert_eq!(within(sandbox.wait()).await.end, End::Exit { code: 0 });
                }
                Err(error) => assert!([7, 11].contains(&index), "{index}: {error}"),
            }
        }
    });
}

/// The setting belongs to the memory of the spawner, which programs borrow until they execute.
#[test]
fn each_program_has_its_own_setting_of_huge_pages() {
    with_spawner(|rig| async move {
        for are_allowed in [true, false, false, true, true] {
            let mut spec = spec(&["/bin/grep", "THP_enabled", "/proc/self/status"]);
            spec.process.huge_pages = are_allowed;
            let expected = format!("THP_enabled:\t{}", u8::from(are_allowed));
            assert_eq!(rig.run(spec).await.0.trim(), expected);
        }
    });
}
