//! Tests of the records, over a file where that makes a difference and otherwise over memory.

use snowmelt_api::{CallMode, FunctionOptions, InvocationState, Runtime};
use snowmelt_store::memory::Memory;
use snowmelt_types::{InvocationId, Tenant};
use snowmelt_wire::SourceCode;

use super::*;

mod prunings;

fn tenant() -> Tenant {
    "acme".parse().unwrap()
}

fn id(name: &str) -> FunctionId {
    FunctionId { tenant: tenant(), name: name.parse().unwrap() }
}

fn record(name: &str) -> FunctionRecord {
    let code = SourceCode::Source { file: "f.py".into(), text: "def handler(e): return e".into() };
    FunctionRecord {
        tenant: tenant(),
        spec: FunctionSpec {
            name: name.parse().unwrap(),
            code,
            handler: "handler".into(),
            runtime: Runtime::Python,
            command: vec![],
            root: None,
            image: None,
            packed: None,
            mode: CallMode::Event,
            packages: vec![],
            files: Default::default(),
            secrets: Default::default(),
            options: FunctionOptions::default(),
            tenant: None,
            expected: 1,
            ephemeral: false,
        },
        deployed_ms: 1,
        files: None,
        packed: None,
    }
}

pub(crate) fn call(function: &str, answer: &str) -> InvocationRecord {
    let json = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    InvocationRecord {
        invocation: Invocation {
            id: InvocationId::new(),
            function: function.parse().unwrap(),
            state: InvocationState::Running,
            result: Some(json(answer).into()),
            error: None,
            warnings: Vec::new(),
            printed: String::new(),
            accepted_ms: 0,
            wall_us: None,
            cold: false,
            cold_because: None,
            host: None,
        },
        event: json("{\"n\": 1.50}"),
    }
}

fn ended(mut record: InvocationRecord) -> InvocationRecord {
    record.invocation.state = InvocationState::Succeeded;
    record
}

async fn in_memory() -> Records {
    Records::over(Arc::new(Memory::new(Clock::real()))).await.unwrap()
}

#[tokio::test]
async fn functions_survive_closing_and_are_replaced_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let records = Records::open(path.clone(), false).await.unwrap();
    assert!(records.functions(&tenant()).await.unwrap().is_empty());
    assert!(!path.exists(), "a read does not create the file");
    records.put_function(&record("a")).await.unwrap();
    records.put_function(&FunctionRecord { deployed_ms: 2, ..record("a") }).await.unwrap();
    let again = Records::open(path, true).await.unwrap();
    assert_eq!(again.functions(&tenant()).await.unwrap().len(), 1);
    let name = id("a");
    assert_eq!(again.function(&name).await.unwrap().unwrap().deployed_ms, 2);
    assert!(again.remove_function(&name).await.unwrap());
    assert!(!again.remove_function(&name).await.unwrap());
}

#[tokio::test]
async fn functions_are_listed_by_name_however_many_there_are() {
    let records = in_memory().await;
    let names: Vec<String> = (0..3 * PAGE).map(|number| format!("f{number:04}")).collect();
    for name in names.iter().rev() {
        records.put_function(&record(name)).await.unwrap();
    }
    let listed = records.functions(&tenant()).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|record| record.spec.name.as_str()).collect();
    assert_eq!(listed, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_embedded_runs_wait_for_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let runs = ["a", "b", "c", "d"].map(|name| {
        let path = path.clone();
        tokio::spawn(async move {
            let records = Records::open(path, false).await.unwrap();
            records.put_function(&record(name)).await.unwrap();
        })
    });
    for run in runs {
        run.await.unwrap();
    }
    let records = Records::open(path, false).await.unwrap();
    assert_eq!(records.functions(&tenant()).await.unwrap().len(), 4);
}

#[tokio::test]
async fn calls_that_wait_are_found_again_and_ended_ones_are_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let records = Records::open(path.clone(), true).await.unwrap();
    let first = call("a", "null");
    let second = call("a", "null");
    records.accept(&tenant(), &first).await.unwrap();
    records.accept(&tenant(), &second).await.unwrap();
    records.end(&tenant(), &ended(first.clone()), u64::MAX).await.unwrap();
    drop(records);
    let again = Records::open(path, true).await.unwrap();
    assert_eq!(again.waiting().await, [(second.invocation.id, id("a"))]);
    let read = again.invocation(&tenant(), &first.invocation.id).await.unwrap().unwrap();
    assert_eq!(read.invocation.state, InvocationState::Succeeded);
    assert_eq!(read.event.get(), "{\"n\": 1.50}", "as it was written");
}

#[tokio::test]
async fn answers_that_are_too_old_are_gone() {
    let records = in_memory().await;
    let old = call("a", "1");
    let new = call("a", "2");
    for (record, until_ms) in [(&old, 1), (&new, u64::MAX)] {
        records.accept(&tenant(), record).await.unwrap();
        records.end(&tenant(), &ended(record.clone()), until_ms).await.unwrap();
    }
    assert!(records.invocation(&tenant(), &old.invocation.id).await.unwrap().is_none());
    assert!(records.invocation(&tenant(), &new.invocation.id).await.unwrap().is_some());
    assert_eq!(records.calls.lock().await.waiting(), []);
}

/// A call in the store that the index lacks would never be removed.
#[tokio::test]
async fn a_dropped_caller_leaves_index_and_store_equal() {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::open(folder.path().join("state.redb"), true).await.unwrap();
    for _ in 0..20 {
        let call = call("a", "1");
        let tenant = tenant();
        let accepting = records.accept(&tenant, &call);
        let _ = futures::poll!(std::pin::pin!(accepting));
    }
    // Of the same index, so after all of them.
    records.accept(&tenant(), &call("a", "1")).await.unwrap();
    let stored = calls::load(&*records.store).await.unwrap();
    assert_eq!(stored.waiting(), records.waiting().await);
    assert_eq!(stored.waiting().len(), 21);
}

/// Checks that the cost of a write does not depend on what others have stored. Before there was an
/// index, each write read every record.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_accepted_at_the_same_time_wait_for_few_transactions() {
    const CALLS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let records = Records::open(folder.path().join("state.redb"), true).await.unwrap();
    let calls: Vec<_> = (0..CALLS).map(|_| call("f", "1")).collect();
    let before = records.file().unwrap().revision().await.unwrap().0;
    let tenant = tenant();
    let accepted = calls.iter().map(|call| records.accept(&tenant, call));
    futures::future::try_join_all(accepted).await.unwrap();
    let transactions = records.file().unwrap().revision().await.unwrap().0 - before;
    assert!(transactions < CALLS as u64 / 4, "{transactions}");
    assert_eq!(records.waiting().await.len(), CALLS);
    let calls: Vec<_> = calls.into_iter().map(ended).collect();
    let ends = calls.iter().map(|call| records.end(&tenant, call, u64::MAX));
    futures::future::try_join_all(ends).await.unwrap();
    assert_eq!(records.waiting().await, []);
    let index = records.calls.lock().await;
    assert_eq!(calls::load(&*records.store).await.unwrap(), *index);
    assert_eq!(index.ended(None, true).len(), CALLS);
}

#[tokio::test]
async fn a_write_reads_no_other_record() {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::open(folder.path().join("state.redb"), true).await.unwrap();
    let long = format!("\"{}\"", "x".repeat(8 << 20));
    for _ in 0..12 {
        let record = call("a", &long);
        records.accept(&tenant(), &record).await.unwrap();
        records.end(&tenant(), &ended(record), u64::MAX).await.unwrap();
    }
    let before = read_bytes();
    for _ in 0..10 {
        let record = call("b", "1");
        records.accept(&tenant(), &record).await.unwrap();
        records.end(&tenant(), &ended(record), u64::MAX).await.unwrap();
    }
    let read = read_bytes() - before;
    assert!(read < 96 << 20, "20 short writes read {read} bytes");
}

/// Returns the bytes that this process has read by system calls.
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_file_is_for_its_owner_only() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    drop(Records::open(path.clone(), true).await.unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let _records = Records::open(path.clone(), true).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

/// `state.redb` of an earlier version.
struct Before {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Before {
    fn new(rows: &[(&'static str, String, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let database = redb::Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        for (table, key, value) in rows {
            let table = redb::TableDefinition::<&str, &[u8]>::new(table);
            write.open_table(table).unwrap().insert(&**key, &**value).unwrap();
        }
        write.commit().unwrap();
        Self { path, _folder: folder }
    }
}

fn row(table: &'static str, key: &str, value: &impl Serialize) -> (&'static str, String, Vec<u8>) {
    (table, key.to_owned(), serde_json::to_vec(value).unwrap())
}

/// The record of a function in that version.
fn older(name: &str, tenant: &str) -> serde_json::Value {
    let spec = FunctionSpec { tenant: Some(tenant.parse().unwrap()), ..record(name).spec };
    serde_json::json!({"spec": spec, "deployed_ms": 7})
}

#[tokio::test]
async fn a_file_of_an_older_version_is_converted_and_nothing_is_lost() {
    let waits = call("a", "null");
    let over = ended(call("a", "1"));
    let bytes = |record| serde_json::to_vec(record).unwrap().len();
    let entry = |record, until_ms: Option<u64>| serde_json::json!({"function": "a", "bytes": bytes(record), "until_ms": until_ms});
    let waits_id = waits.invocation.id.clone();
    let over_id = over.invocation.id.clone();
    let before = Before::new(&[
        row("functions", "a", &older("a", "acme")),
        row("functions", "b", &older("b", "acme")),
        row("functions", "c", &older("c", "default")),
        row("invocations", waits_id.as_str(), &waits),
        row("invocations", over_id.as_str(), &over),
        row("invocation-entries", waits_id.as_str(), &entry(&waits, None)),
        row("invocation-entries", over_id.as_str(), &entry(&over, Some(u64::MAX))),
    ]);
    for hold in [false, true, true] {
        let records = Records::open(before.path.clone(), hold).await.unwrap();
        assert_eq!(records.functions(&tenant()).await.unwrap().len(), 2);
        assert_eq!(records.all_functions().await.unwrap().len(), 3);
        let theirs = FunctionId { tenant: Tenant::default(), ..id("c") };
        assert_eq!(records.function(&theirs).await.unwrap().unwrap().deployed_ms, 7);
        let read = records.invocation(&tenant(), &over_id).await.unwrap().unwrap();
        assert_eq!((read.event.get(), read.invocation.result.is_some()), ("{\"n\": 1.50}", true));
        if hold {
            assert_eq!(records.waiting().await, [(waits_id.clone(), id("a"))]);
            let index = calls::load(&*records.store).await.unwrap();
            let kept = index.entry(&over_id).unwrap();
            assert_eq!((kept.bytes, kept.until_ms), (bytes(&over) as u64, Some(u64::MAX)));
        }
    }
}

/// The first versions wrote records only. The function of these calls was removed.
#[tokio::test]
async fn calls_without_index_entries_are_run_and_kept() {
    let waits = call("a", "null");
    let over = ended(call("a", "1"));
    let rows = [&waits, &over].map(|one| row("invocations", one.invocation.id.as_str(), one));
    let before = Before::new(&rows);
    let records = Records::open(before.path.clone(), true).await.unwrap();
    let theirs = FunctionId { tenant: Tenant::default(), ..id("a") };
    assert_eq!(records.waiting().await, [(waits.invocation.id, theirs.clone())]);
    let kept = records.invocation(&theirs.tenant, &over.invocation.id).await.unwrap();
    assert!(kept.is_some());
    let index = calls::load(&*records.store).await.unwrap();
    assert!(index.entry(&over.invocation.id).unwrap().until_ms > Some(crate::now_ms()));
}

#[tokio::test]
async fn two_tenants_have_functions_and_calls_of_the_same_name() {
    let records = in_memory().await;
    let other: Tenant = "acme-2".parse().unwrap();
    let theirs = FunctionRecord { tenant: other.clone(), deployed_ms: 2, ..record("f") };
    records.put_function(&record("f")).await.unwrap();
    records.put_function(&theirs).await.unwrap();
    let found = |records: Vec<FunctionRecord>| -> Vec<u64> {
        records.iter().map(|record| record.deployed_ms).collect()
    };
    assert_eq!(found(records.functions(&tenant()).await.unwrap()), [1]);
    assert_eq!(found(records.functions(&other).await.unwrap()), [2]);
    let call = call("f", "1");
    records.accept(&other, &call).await.unwrap();
    assert!(records.invocation(&tenant(), &call.invocation.id).await.unwrap().is_none());
    assert!(records.invocation(&other, &call.invocation.id).await.unwrap().is_some());
    assert!(records.remove_function(&id("f")).await.unwrap());
    assert_eq!(found(records.functions(&other).await.unwrap()), [2]);
}
