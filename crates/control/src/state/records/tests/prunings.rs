//! Tests of the removal of versions and results: which are removed, and which stay.

use snowmelt_api::UdfSource;
use snowmelt_wire::Signature;

use super::*;

fn udf(name: &str) -> (Signature, UdfSource) {
    let code = SourceCode::Source { file: "f.py".into(), text: String::new() };
    let signature = serde_json::from_value(serde_json::json!({
        "name": name, "batch": "scalar", "schema": "",
    }));
    let source = UdfSource {
        code,
        packages: vec![],
        signatures: None,
        image: None,
        files: Default::default(),
        secrets: Default::default(),
    };
    (signature.unwrap(), source)
}

async fn register(records: &Records, name: &str, times: usize, now_ms: u64) -> Vec<u32> {
    for _ in 0..times {
        records.put_udfs(&tenant(), &[udf(name)], Existing::Replaced, now_ms).await.unwrap();
    }
    let all = records.udfs(&tenant()).await.unwrap();
    all.iter().filter(|one| one.signature.name == name).map(|one| one.version).collect()
}

/// An engine stays with the version that it found.
#[tokio::test]
async fn versions_that_engines_use_stay_when_newer_ones_exist() {
    let records = in_memory().await;
    const DAY: u64 = 24 * 3600 * 1000;
    let now = 100 * DAY;
    register(&records, "score", 3, now).await;
    let leased = records.lease_udf(&tenant(), "Score", 1);
    let kept = register(&records, "score", 20, now).await;
    assert_eq!(kept[..2], [1, 8], "what is leased stays, the others go: {kept:?}");
    records.note_use(&leased, now).await.unwrap();
    drop(leased);
    let kept = register(&records, "score", 1, now + DAY).await;
    assert_eq!(kept[..2], [1, 9], "it was leased lately: {kept:?}");
    let superseded = records.superseded(None, now + DAY).await.unwrap();
    assert_eq!(superseded.len(), kept.len() - 2, "neither the last one nor one in use");
    assert_eq!(records.superseded(Some(&"other".parse().unwrap()), now).await.unwrap(), []);
    records.remove_superseded(&superseded).await.unwrap();
    assert_eq!(register(&records, "score", 0, now).await, [1, 24]);
    let later = records.superseded(Some(&tenant()), now + 8 * DAY).await.unwrap();
    assert_eq!(later.len(), 1, "an engine that has not used it for a week");
    // However many engines pin one: the record of each has the code.
    let all: Vec<_> = (24..200).map(|at| records.lease_udf(&tenant(), "score", at)).collect();
    assert_eq!(register(&records, "score", 100, now).await.len(), 64);
    drop(all);
}

#[tokio::test]
async fn results_are_pruned_for_their_tenant_and_calls_that_run_never() {
    let records = in_memory().await;
    let other: Tenant = "other".parse().unwrap();
    let (expired, kept, theirs, running) =
        (call("f", "1"), call("f", "2"), call("f", "3"), call("f", "4"));
    records.end(&tenant(), &kept, u64::MAX).await.unwrap();
    records.end(&other, &theirs, u64::MAX).await.unwrap();
    records.accept(&tenant(), &running).await.unwrap();
    records.end(&tenant(), &expired, 1).await.unwrap();
    let of = tenant();
    assert_eq!(records.prune_calls(Some(&of), false, true).await.unwrap().0, 1);
    assert_eq!(records.prune_calls(Some(&of), true, true).await.unwrap().0, 2);
    let (removed, bytes) = records.prune_calls(Some(&of), true, false).await.unwrap();
    assert_eq!((removed, bytes > 0), (2, true));
    let found = async |tenant: &Tenant, call: &InvocationRecord| {
        records.invocation(tenant, &call.invocation.id).await.unwrap().is_some()
    };
    assert!(!found(&of, &kept).await && !found(&of, &expired).await);
    assert!(found(&of, &running).await && found(&other, &theirs).await);
    assert_eq!(records.prune_calls(None, true, false).await.unwrap().0, 1);
    assert!(found(&of, &running).await);
}
