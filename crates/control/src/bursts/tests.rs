//! Bursts over hosts that do what each test needs.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use serde_json::value::RawValue;
use snowmelt_api::{FunctionSpec, InvocationState};
use snowmelt_tasks::agent::api::{FunctionCode, JobPart, PartCalls};
use snowmelt_types::{Code, ErrorReport, JobId, Tenant};

use super::RankRange;
use super::calls::{Gathering, Patience, RankResults};
use super::parts::OpenParts;
use crate::cluster::hosts::SILENT;
use crate::cluster::hosts::fake::{FakeHost, end, silence};

fn function() -> FunctionSpec {
    let code = serde_json::json!({ "kind": "source", "file": "f.py", "text": "" });
    let spec = serde_json::json!({ "name": "f", "code": code, "handler": "handler" });
    serde_json::from_value(spec).unwrap()
}

fn calls(part: &RankRange) -> PartCalls {
    let event = || RawValue::from_string("null".to_owned()).unwrap();
    let events = (0..part.count).map(|_| event()).collect();
    PartCalls { events, timeout_ms: 1000, lease_ms: 1000 }
}

fn order(part: &RankRange, job: &JobId) -> JobPart {
    let spec = function();
    JobPart {
        secrets: Default::default(),
        job: job.clone(),
        function: FunctionCode {
            tenant: Tenant::default(),
            code: spec.code,
            program: None,
            packed: None,
            handler: spec.handler,
            mode: snowmelt_wire::Mode::Function,
            packages: Vec::new(),
            imports: Vec::new(),
            files: Default::default(),
            secrets: Default::default(),
            batches: None,
            limits: snowmelt_node::InstanceLimits::from(&spec.options),
        },
        place: None,
        files: Vec::new(),
        size: 2,
        first: part.first,
        count: part.count,
        network: None,
        hosts: Vec::new(),
        start_within_ms: 1000,
    }
}

/// A part of one rank on each host.
fn parts<const N: usize>(hosts: [FakeHost; N]) -> ([std::sync::Arc<FakeHost>; N], Vec<RankRange>) {
    let mut parts = Vec::new();
    let mut first = 0;
    let fakes = hosts.map(|host| {
        let (fake, host) = host.named(&format!("host-{first}"));
        parts.push(RankRange { host, first, count: 1 });
        first += 1;
        fake
    });
    (fakes, parts)
}

async fn start(parts: &[RankRange]) -> Result<(), ErrorReport> {
    let job = JobId::new();
    let orders = parts.iter().map(|part| order(part, &job)).collect();
    let opened = OpenParts { job: &job, parts };
    let started = opened.start(orders, Duration::from_secs(1)).await.map(drop);
    if started.is_err() {
        opened.close().await;
    }
    started
}

/// Does not wait long for hosts that do not answer.
const IMPATIENT: Patience =
    Patience { unreachable: Duration::from_millis(600), next_end: Duration::from_millis(20) };

async fn run(parts: &[RankRange], has_network: bool) -> Result<RankResults, ErrorReport> {
    let calls = Some(parts.iter().map(calls).collect());
    run_from(parts, calls, has_network).await
}

async fn run_from(
    parts: &[RankRange],
    calls: Option<Vec<PartCalls>>,
    has_network: bool,
) -> Result<RankResults, ErrorReport> {
    let job = JobId::new();
    let function = function();
    let ended = AtomicU32::new(0);
    let gathering = Gathering {
        job: &job,
        parts,
        function: &function,
        calls,
        has_network,
        ended: &ended,
        patience: IMPATIENT,
    };
    gathering.gather().await
}

fn failing(rank: u32) -> FakeHost {
    let error = Some(ErrorReport::new(Code::FUNCTION_RAISED, "ValueError"));
    FakeHost {
        ends: vec![snowmelt_tasks::agent::api::RankEnd { error, ..end(rank) }],
        ..FakeHost::default()
    }
}

#[tokio::test]
async fn answers_are_in_the_order_of_their_ranks() {
    let ends = |rank| FakeHost { ends: vec![end(rank)], ..FakeHost::default() };
    let (_fakes, parts) = parts([ends(0), ends(1), ends(2)]);
    let ended = run(&parts, false).await.unwrap();
    assert_eq!(ended.invocations.len(), 3);
    assert!(ended.invocations.iter().all(|call| call.state == InvocationState::Succeeded));
}

#[tokio::test]
async fn a_host_that_cannot_open_its_part_is_named_and_all_parts_are_closed() {
    let why = ErrorReport::new(Code::SANDBOX_START, "no memory");
    let refusing = FakeHost { open_fails: Some(why), ..FakeHost::default() };
    let (fakes, parts) = parts([FakeHost::default(), refusing]);
    let error = start(&parts).await.unwrap_err();
    assert_eq!(error.code, Code::SANDBOX_START.code);
    assert_eq!(error.message, "host-1: no memory");
    for fake in fakes {
        assert_eq!(fake.asked().last(), Some(&"close"));
        assert!(!fake.asked().contains(&"call"));
    }
}

#[tokio::test]
async fn a_host_that_is_not_ready_in_time_is_named_and_nothing_is_called() {
    let late = FakeHost { never_ready: true, ..FakeHost::default() };
    let (fakes, parts) = parts([FakeHost::default(), late]);
    let error = start(&parts).await.unwrap_err();
    assert_eq!(error.code, Code::BURST_START.code);
    assert!(error.message.contains("host-1 (rank 1) was not ready within 1s"), "{error}");
    assert!(fakes.iter().all(|fake| fake.asked() == ["open", "ready", "close"]));
}

#[tokio::test]
async fn a_host_that_is_lost_before_the_calls_is_named() {
    let gone = FakeHost { never_ready: true, silent: true, ..FakeHost::default() };
    let (_fakes, parts) = parts([FakeHost::default(), gone]);
    silence(&parts[1].host, SILENT);
    let error = start(&parts).await.unwrap_err();
    assert_eq!(error.code, Code::BURST_START.code);
    assert!(error.message.contains("host-1 (rank 1) was lost"), "{error}");
}

/// The burst of a network, in which the ranks may wait for each other, fails with one of its hosts.
/// Of another one the ranks of the other hosts have their results.
async fn loses_the_second(host: impl Fn() -> FakeHost) {
    let ended = || FakeHost { ends: vec![end(0)], ..FakeHost::default() };
    let (_fakes, both) = parts([ended(), host()]);
    let error = run(&both, true).await.err().unwrap();
    assert_eq!(error.code, Code::HOST_LOST.code);
    assert!(error.message.contains("host-1 (rank 1) was lost"), "{error}");
    let (_fakes, both) = parts([ended(), host()]);
    let [first, second] = &run(&both, false).await.unwrap().invocations[..] else { panic!() };
    assert_eq!((first.state, first.error.clone()), (InvocationState::Succeeded, None));
    let error = second.error.clone().unwrap();
    assert_eq!(error.code, Code::HOST_LOST.code);
    assert_eq!(error.message, "host-1 (rank 1) was lost");
}

#[tokio::test]
async fn a_host_that_finishes_without_all_ends_is_lost() {
    loses_the_second(FakeHost::default).await;
}

#[tokio::test]
async fn a_host_that_falls_silent_during_its_calls_is_lost() {
    let gone = || FakeHost { runs_on: Some(1), silent: true, ..FakeHost::default() };
    loses_the_second(gone).await;
}

#[tokio::test]
async fn what_had_ended_on_a_host_that_is_lost_has_its_result() {
    let (fake, host) = FakeHost { ends: vec![end(0)], ..FakeHost::default() }.named("host-0");
    let part = RankRange { host, first: 0, count: 2 };
    let ended = run(&[part], false).await.unwrap().invocations;
    let failed: Vec<_> = ended.iter().map(|call| call.error.is_some()).collect();
    assert_eq!(failed, [false, true]);
    drop(fake);
}

#[tokio::test]
async fn a_host_that_can_be_reached_again_goes_on() {
    let host = FakeHost { unreachable: 2.into(), ends: vec![end(0)], ..FakeHost::default() };
    // Its network is released after its only end.
    let (fakes, parts) = parts([host]);
    let ended = run(&parts, true).await.unwrap();
    assert_eq!(ended.invocations.len(), 1);
    assert_eq!(fakes[0].asked(), ["call", "end", "close"]);
}

#[tokio::test]
async fn a_host_that_was_started_again_has_lost_its_part() {
    let restarted = FakeHost { forgot: true, ..FakeHost::default() };
    let (_fakes, parts) =
        parts([FakeHost { ends: vec![end(0)], ..FakeHost::default() }, restarted]);
    let begun = std::time::Instant::now();
    let ended = run(&parts, false).await.unwrap();
    assert_eq!(ended.invocations[1].error.clone().unwrap().code, Code::HOST_LOST.code);
    assert!(begun.elapsed() < IMPATIENT.unreachable, "nothing is waited for");
}

#[tokio::test]
async fn a_control_that_was_restarted_calls_nothing_again() {
    let ends = |rank| FakeHost { ends: vec![end(rank)], ..FakeHost::default() };
    let (fakes, parts) = parts([ends(0), ends(1)]);
    let ended = run_from(&parts, None, false).await.unwrap();
    assert_eq!(ended.invocations.len(), 2);
    assert!(fakes.iter().all(|fake| fake.asked() == ["close"]));
}

#[tokio::test]
async fn a_failed_rank_ends_the_others_of_its_network_after_a_grace_time() {
    let waiting = FakeHost { runs_on: Some(1), ..FakeHost::default() };
    let (fakes, parts) = parts([failing(0), waiting]);
    let begun = std::time::Instant::now();
    let ended = run(&parts, true).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "the others have time to end themselves");
    let codes: Vec<_> = ended.invocations.iter().map(|c| c.error.clone().unwrap().code).collect();
    assert_eq!(codes, [Code::FUNCTION_RAISED.code, Code::RANK_ENDED.code]);
    assert!(fakes[1].asked().contains(&"end"));
}

#[tokio::test]
async fn a_failed_rank_without_a_network_ends_no_others() {
    let (fakes, parts) =
        parts([failing(0), FakeHost { ends: vec![end(1)], ..FakeHost::default() }]);
    let ended = run(&parts, false).await.unwrap();
    let failed: Vec<_> = ended.invocations.iter().map(|call| call.error.is_some()).collect();
    assert_eq!(failed, [true, false]);
    assert!(fakes.iter().all(|fake| !fake.asked().contains(&"end")));
}
