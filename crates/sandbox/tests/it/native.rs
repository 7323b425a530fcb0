//! Zygotes not written in Python: the example of `runtimes/native`.

use std::path::Path;
use std::process::Command;

use crate::harness::{Rig, ask, with_spawner, within};
use crate::zygote::Code;
use snowmelt_sandbox::{Bind, ForkSpec, Limits, NativeZygoteSpec, Root, Zygote, ZygoteSpec};
use snowmelt_types::{End, SandboxId};

/// Compiles the example into a folder that is mounted at `/code`.
fn compiled() -> Code {
    let code = Code::new(&[]);
    let sources = Path::new("../../runtimes/native");
    let files = ["example.c", "snowmelt_zygote.c"].map(|name| sources.join(name));
    let output = code.folder().join("primes");
    let done = Command::new("cc").args(["-O2", "-o"]).arg(output).args(files).status();
    assert!(done.unwrap().success());
    code
}

fn root(code: &Code) -> Root {
    let bind = Bind { source: code.folder().into(), target: "/code".into() };
    Root { binds: vec![bind], ..Root::default() }
}

fn fork(code: &Code, greeting: &str) -> ForkSpec {
    ForkSpec {
        network: None,
        id: SandboxId::new(),
        root: root(code),
        sys_path: Vec::new(),
        env: vec![("GREETING".into(), greeting.into())],
        limits: Limits { pids: 4, ..Limits::default() },
        entry: String::new(),
    }
}

async fn zygote(rig: &Rig, code: &Code) -> Zygote {
    let spec = NativeZygoteSpec {
        id: SandboxId::new(),
        root: root(code),
        command: vec!["/code/primes".into()],
        env: Vec::new(),
        limits: Limits::default(),
    };
    within(rig.spawner.start_native_zygote(spec)).await.unwrap()
}

#[test]
fn a_native_zygote_forks_handlers_and_zygotes_below_it() {
    with_spawner(|rig| async move {
        let code = compiled();
        let top = zygote(&rig, &code).await;
        let more = ZygoteSpec { root: root(&code), ..code.zygote(&[]) };
        let below = within(rig.spawner.grow(&top, more)).await.unwrap();
        for (zygote, greeting) in [(&top, "one"), (&below, "two"), (&top, "three")] {
            let child = within(rig.spawner.fork(zygote, fork(&code, greeting))).await.unwrap();
            assert_eq!(ask(&child, "4").unwrap(), format!("11 {greeting}"));
            assert_eq!(ask(&child, "100000").unwrap(), format!("1299721 {greeting}"));
            child.kill(End::Killed);
            assert_eq!(within(child.wait()).await.end, End::Killed);
        }
    });
}

/// Such a zygote imports nothing: its report may arrive before its socket pair is seen closed.
#[test]
fn an_immediate_ready_report_of_a_zygote_is_received() {
    with_spawner(|rig| async move {
        let code = compiled();
        let top = zygote(&rig, &code).await;
        for _ in 0..100 {
            let below = ZygoteSpec { root: root(&code), ..code.zygote(&[]) };
            drop(within(rig.spawner.grow(&top, below)).await.unwrap());
        }
    });
}
