//! Runtimes that cannot fork: executed in advance, paused, and resumed for a call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use snowmelt_api::Start;
use snowmelt_node::{Error, InstanceLimits, Language, ProgramRequest, Unit};
use snowmelt_types::{Code, Report, Tenant};
use snowmelt_wire::{CodeFile, Load, SourceCode};

use crate::rig::{PLENTY, Rig, call_loaded, limits, load, until, with_node};

/// Node where the base of every sandbox has it; its absence is not a failure.
fn has_node() -> bool {
    let there = Path::new("/usr/bin/node").is_file();
    if !there {
        eprintln!("skipped: there is no /usr/bin/node (package nodejs)");
    }
    there
}

async fn unit(rig: &Rig, text: &str, limits: &Arc<InstanceLimits>) -> Unit {
    let file = CodeFile::new(text.as_bytes(), false);
    let code = SourceCode::Files { files: BTreeMap::from([("handler.mjs".to_owned(), file)]) };
    let stored = rig.node.preparation().store(&code).unwrap();
    let request = ProgramRequest {
        language: Language::Node,
        command: Vec::new(),
        root: None,
        image: None,
        handler: "handler".to_owned(),
    };
    rig.node
        .preparation()
        .prepare_program(&Tenant::default(), &stored, &request, limits, None)
        .await
        .unwrap()
}

fn load_of(unit: &Unit) -> Load {
    Load { code: unit.code(), ..load() }
}

#[test]
fn a_handler_in_javascript_is_executed_kept_and_taken_again() {
    if !has_node() {
        return;
    }
    with_node(PLENTY, async |rig| {
        let text = "let calls = 0;\nexport function handler(event) {\n\
            if (event === 'raise') throw new TypeError('no');\nreturn { event, calls: ++calls };\n}";
        let limits = limits();
        let unit = unit(&rig, text, &limits).await;
        let load = load_of(&unit);
        let mut first = rig.lease(&unit, &limits).await;
        assert_eq!(first.start, Start::Program);
        let said = call_loaded(&load, &mut first, json!({"n": [1, 2]})).await.unwrap();
        assert_eq!(said, json!({"event": {"n": [1, 2]}, "calls": 1}));
        first.give_back();
        let mut again = rig.lease(&unit, &limits).await;
        assert_eq!(again.start, Start::Idle);
        let raised = call_loaded(&load, &mut again, json!("raise")).await.unwrap_err();
        let Error::Function(failure) = raised else { panic!("{raised}") };
        assert_eq!(failure.exception, "TypeError: no");
        let location = failure.location.unwrap();
        assert_eq!((location.file.as_str(), location.line), ("handler.mjs", 3));
        assert_eq!(call_loaded(&load, &mut again, json!("x")).await.unwrap()["calls"], 2);
    });
}

#[test]
fn a_program_is_started_ahead_and_waits_paused() {
    if !has_node() {
        return;
    }
    with_node(PLENTY, async |rig| {
        let limits = limits();
        let unit = unit(&rig, "export const handler = (event) => event + 1;", &limits).await;
        let load = load_of(&unit);
        rig.node.prewarm(&unit, &limits, &load, 1);
        until("one is prewarmed", || rig.node.figures().prewarmed == 1).await;
        let mut lease = rig.lease(&unit, &limits).await;
        assert_eq!(lease.start, Start::Prewarmed);
        assert_eq!(call_loaded(&load, &mut lease, json!(41)).await.unwrap(), 42);
        until("another is prewarmed", || rig.node.figures().prewarmed == 1).await;
    });
}

/// A server of another protocol runs, and never says that it is ready.
#[test]
fn a_program_that_says_nothing_is_told_what_it_has_to_speak() {
    with_node(PLENTY, async |rig| {
        let limits = limits();
        let code = SourceCode::Files { files: BTreeMap::new() };
        let request = ProgramRequest {
            language: Language::Command,
            command: vec!["/bin/sleep".to_owned(), "1000".to_owned()],
            root: None,
            image: None,
            handler: "web".to_owned(),
        };
        let stored = rig.node.preparation().store(&code).unwrap();
        let tenant = Tenant::default();
        let prepared =
            rig.node.preparation().prepare_program(&tenant, &stored, &request, &limits, None);
        let unit = prepared.await.unwrap();
        let load = Load { function: "web".to_owned(), ..load_of(&unit) };
        let lease = rig.lease(&unit, &limits).await;
        let silent = lease.open(&load, Duration::from_millis(100)).await.unwrap_err();
        let report = silent.report();
        assert_eq!(report.code, Code::FUNCTION_TIMEOUT.code);
        assert!(report.message.contains("`web` said nothing on its channel"), "{report}");
        let hint = report.hint.unwrap();
        assert!(hint.contains("SNOWMELT_CHANNEL_FD") && hint.contains("--timeout"), "{hint}");
    });
}
