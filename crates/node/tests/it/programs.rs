//! Runtimes that cannot fork: executed ahead, paused, and resumed for a call.

use std::path::{Path, PathBuf};

use serde_json::json;
use snowmelt_node::{Error, Program, Start, Unit};
use snowmelt_sandbox::{Base, Bind, Root};
use snowmelt_types::Tenant;
use snowmelt_wire::Code;

use crate::rig::{PLENTY, Rig, call, limits, load, until, with_node};

const SERVE: &str = "/opt/snowmelt/serve.mjs";

/// Node where the base of every sandbox has it; none is no failure.
fn node() -> Option<PathBuf> {
    let found = Path::new("/usr/bin/node");
    if !found.is_file() {
        eprintln!("skipped: there is no {}", found.display());
        return None;
    }
    Some(found.to_owned())
}

fn unit(rig: &Rig, node: &Path, text: &str) -> Unit {
    let serve = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtimes/node/serve.mjs");
    let serve = Bind { source: serve.canonicalize().unwrap(), target: SERVE.into() };
    let program = Program {
        root: Root { base: Base::Host, binds: vec![serve] },
        command: vec![node.display().to_string(), SERVE.to_owned()],
        environment: Vec::new(),
    };
    let code = Code::Source { file: "handler.mjs".into(), text: text.into() };
    rig.node.prepare_program(&Tenant::default(), &code, program).unwrap()
}

#[test]
fn a_handler_in_javascript_is_executed_kept_and_taken_again() {
    let Some(node) = node() else { return };
    with_node(PLENTY, async |rig| {
        let text = "let calls = 0;\nexport function handler(event) {\n\
            if (event === 'raise') throw new TypeError('no');\nreturn { event, calls: ++calls };\n}";
        let unit = unit(&rig, &node, text);
        let mut first = rig.lease(&unit, &limits()).await;
        assert_eq!(first.start, Start::Program);
        let said = call(&mut first, json!({"n": [1, 2]})).await.unwrap();
        assert_eq!(said, json!({"event": {"n": [1, 2]}, "calls": 1}));
        first.give_back();
        let mut again = rig.lease(&unit, &limits()).await;
        assert_eq!(again.start, Start::Idle);
        let raised = call(&mut again, json!("raise")).await.unwrap_err();
        let Error::Function(failure) = raised else { panic!("{raised}") };
        assert_eq!(failure.exception, "TypeError: no");
        assert_eq!(call(&mut again, json!("x")).await.unwrap()["calls"], 2);
    });
}

#[test]
fn a_program_is_started_ahead_and_waits_paused() {
    let Some(node) = node() else { return };
    with_node(PLENTY, async |rig| {
        let unit = unit(&rig, &node, "export const handler = (event) => event + 1;");
        let limits = limits();
        rig.node.park(&unit, &limits, &load(), 1);
        until("one is parked", || rig.node.figures().parked == 1).await;
        let mut lease = rig.lease(&unit, &limits).await;
        assert_eq!(lease.start, Start::Parked);
        assert_eq!(call(&mut lease, json!(41)).await.unwrap(), 42);
        until("another is parked", || rig.node.figures().parked == 1).await;
    });
}
