//! UDFs over real connections, with instances written in Rust here, which use the protocol of
//! `snowmelt_wire`, or violate it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_wire::{
    BatchDecoder, BatchEncoder, FailureKind, Frame, FrameStream, FunctionFailure, Kind, OnError,
    Signature, UdfKind, decode_schema, schema_to_text,
};

use tokio_util::task::AbortOnDropHandle;

use crate::runner::{InProcess, RecordingReporter, answer, failure, refusal, run, spec};
use crate::{aggregates, table_functions};

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// Name, argument types, result type.
const FUNCTIONS: &[(&str, &[DataType], DataType)] = &[
    ("double_it", &[DataType::Int64], DataType::Int64),
    ("add_up", &[DataType::Int64, DataType::Int64], DataType::Int64),
    ("shout", &[DataType::Utf8], DataType::Utf8),
    ("one", &[], DataType::Int64),
    ("fails_at_88", &[DataType::Int64], DataType::Int64),
    ("too_short", &[DataType::Int64], DataType::Int64),
    ("wrong_type", &[DataType::Int64], DataType::Int64),
    ("disconnects", &[DataType::Int64], DataType::Int64),
    ("sleeps", &[DataType::Int64], DataType::Int64),
    ("sleeps_briefly", &[DataType::Int64], DataType::Int64),
    ("sends_garbage", &[DataType::Int64], DataType::Int64),
    ("runs_action", &[DataType::Int64], DataType::Int64),
    ("waits_for_rows", &[DataType::Int64], DataType::Int64),
    ("ticks", &[DataType::Int64], DataType::Int64),
    ("pure_double", &[DataType::Int64], DataType::Int64),
    ("meets_other", &[DataType::Int64], DataType::Int64),
    ("meets_one", &[DataType::Int64], DataType::Int64),
    ("same_double", &[DataType::Float64], DataType::Float64),
    ("same_real", &[DataType::Float32], DataType::Float32),
];

/// The functions that are declared deterministic.
const DETERMINISTIC: &[&str] = &["pure_double"];

/// The next value of `ticks`.
static TICK: AtomicU64 = AtomicU64::new(0);

/// The rows for which `meets_one` and `meets_other` were called so far.
static MET: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The rows that the scans of the query with `waits_for_rows` have given so far.
static ROWS_READ: AtomicU64 = AtomicU64::new(0);

/// An action that `runs_action` runs once, at its first batch, in the middle of the query.
pub static ACTION: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

pub fn signatures() -> Vec<Signature> {
    let scalar = FUNCTIONS.iter().map(|(name, takes, gives)| signature(name, takes, gives));
    scalar.chain(aggregates::signatures()).chain(table_functions::signatures()).collect()
}

pub fn signature(name: &str, takes: &[DataType], gives: &DataType) -> Signature {
    let mut fields: Vec<Field> = takes
        .iter()
        .enumerate()
        // Declared as not nullable: nulls must still reach the instance.
        .map(|(index, kind)| Field::new(format!("a{index}"), kind.clone(), false))
        .collect();
    fields.push(Field::new("return", gives.clone(), true));
    Signature {
        name: name.to_owned(),
        kind: UdfKind::Scalar,
        batch: "arrow".to_owned(),
        schema: schema_to_text(&Schema::new(fields)).unwrap(),
        on_error: OnError::Raise,
        deterministic: DETERMINISTIC.contains(&name),
        packages: Vec::new(),
        memory: None,
        timeout: None,
    }
}

/// A connection to a new instance.
pub fn instance(name: &str, counts: Counts) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    if aggregates::is_one(name) {
        aggregates::serve(name, far, counts);
        return near;
    }
    let name = name.to_owned();
    std::thread::spawn(move || {
        // An error here means that the query has ended and closed the connection.
        _ = serve(&name, FrameStream::new(far), &counts);
    });
    near
}

fn serve(name: &str, mut stream: FrameStream, counts: &Counts) -> snowmelt_wire::Result<()> {
    let mut decoder = BatchDecoder::default();
    // Like pyarrow, and unlike Rust's Arrow: nulls are accepted whatever the schema declares.
    let declared = decode_schema(&stream.receive()?.expect(Kind::Schema, "arguments")?.payload)?;
    let fields = declared.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let arguments = Schema::new(fields.collect::<Vec<Field>>());
    decoder.push(&BatchEncoder::default().schema(&arguments)?)?;
    stream.receive()?.expect(Kind::Schema, "result")?;
    let mut encoder = None;
    loop {
        let batch = decoder.push(&stream.receive()?.expect(Kind::Batch, "batch")?)?.remove(0);
        *counts.lock().unwrap().entry(name.to_owned()).or_default() += batch.num_rows() as u64;
        let column = match behave(name, &batch) {
            Behaviour::Answer(column) => column,
            Behaviour::Fail(failure) => {
                stream.send(&Frame::json(Kind::Failure, &failure)?)?;
                continue;
            }
            Behaviour::SendGarbage => {
                stream.send(&Frame::new(Kind::Schema, b"no arrow here".to_vec()))?;
                continue;
            }
            Behaviour::Disconnect => return Ok(()),
            // Until the other side closes the connection.
            Behaviour::Sleep => return stream.receive().map(|_| ()),
        };
        let answer = RecordBatch::try_from_iter_with_nullable([("return", column, true)])?;
        if encoder.is_none() {
            let encoder = encoder.insert(BatchEncoder::default());
            stream.send(&encoder.schema(&answer.schema())?)?;
        }
        if let Some(encoder) = &mut encoder {
            stream.send(&encoder.batch(&answer)?)?;
        }
    }
}

enum Behaviour {
    Answer(ArrayRef),
    Fail(Box<FunctionFailure>),
    SendGarbage,
    Disconnect,
    Sleep,
}

fn behave(name: &str, batch: &RecordBatch) -> Behaviour {
    if let Some(lists) = table_functions::result(name, batch) {
        return Behaviour::Answer(lists);
    }
    let numbers = || batch.column(0).as_primitive::<Int64Type>();
    let doubled =
        |array: &Int64Array| Int64Array::from_iter(array.iter().map(|n| n.map(|n| n * 2)));
    Behaviour::Answer(match name {
        "double_it" | "pure_double" => Arc::new(doubled(numbers())),
        "ticks" => {
            let first = TICK.fetch_add(batch.num_rows() as u64, Ordering::SeqCst) as i64;
            Arc::new(Int64Array::from_iter_values(first..first + batch.num_rows() as i64))
        }
        "runs_action" => {
            if let Some(action) = ACTION.lock().unwrap().take() {
                action();
            }
            Arc::new(doubled(numbers()))
        }
        "waits_for_rows" => {
            let read_more = || ROWS_READ.load(Ordering::SeqCst) > batch.num_rows() as u64;
            if !within_a_minute(read_more) {
                return Behaviour::Disconnect;
            }
            Arc::new(doubled(numbers()))
        }
        "meets_one" | "meets_other" => {
            let [own, other] = if name == "meets_one" { [0, 1] } else { [1, 0] };
            let rows = batch.num_rows() as u64;
            let mine = MET[own].fetch_add(rows, Ordering::SeqCst) + rows;
            // Without an answer, before the other one is called.
            if !within_a_minute(|| MET[other].load(Ordering::SeqCst) >= mine) {
                return Behaviour::Disconnect;
            }
            Arc::new(doubled(numbers()))
        }
        "add_up" => {
            let others = batch.column(1).as_primitive::<Int64Type>();
            let sums = numbers().iter().zip(others).map(|(a, b)| Some(a? + b?));
            Arc::new(Int64Array::from_iter(sums))
        }
        "shout" => {
            let words = batch.column(0).as_string::<i32>();
            let loud =
                words.iter().map(|word| word.map(|word| format!("{}!", word.to_uppercase())));
            Arc::new(StringArray::from_iter(loud))
        }
        "same_double" | "same_real" => Arc::clone(batch.column(0)),
        "one" => Arc::new(Int64Array::from(vec![1; batch.num_rows()])),
        "fails_at_88" => match numbers().iter().position(|n| n == Some(88)) {
            Some(row) => return Behaviour::Fail(Box::new(raised(row, batch.num_rows()))),
            None => Arc::new(doubled(numbers())),
        },
        "too_short" => Arc::new(doubled(numbers()).slice(0, batch.num_rows() - 1)),
        "wrong_type" => Arc::new(StringArray::from(vec!["x"; batch.num_rows()])),
        "sends_garbage" => return Behaviour::SendGarbage,
        "disconnects" => return Behaviour::Disconnect,
        _ => return Behaviour::Sleep,
    })
}

fn within_a_minute(condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    condition()
}

fn raised(row: usize, calls: usize) -> FunctionFailure {
    FunctionFailure {
        kind: FailureKind::Raised,
        function: "fails_at_88".to_owned(),
        exception: "ValueError: eighty-eight".to_owned(),
        location: None,
        traceback: vec!["raise ValueError('eighty-eight')".to_owned()],
        row: Some(row as u64),
        input: Some("a0 = 88".to_owned()),
        failed: 1,
        calls: calls as u64,
        limit: None,
        peak: None,
        hint: None,
    }
}

/// The rows as text, and the rows that each function was called for.
pub async fn text(sql: &str, workers: u32) -> (String, BTreeMap<String, u64>) {
    let runner = Arc::new(InProcess::default());
    let (batches, _) = answer(&spec(sql, workers), Arc::clone(&runner))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = runner.udf_rows.lock().unwrap().clone();
    (pretty_format_batches(&batches).unwrap().to_string(), rows)
}

pub async fn first_cell(sql: &str) -> String {
    let (text, _) = text(sql, 3).await;
    let line = text.lines().nth(3).unwrap();
    line.trim_matches(['|', ' ']).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_call_udfs_below_the_cut() {
    let plain = first_cell("select sum(n * 2) from odd").await;
    let (text, rows) = text("select sum(double_it(n)) from odd", 3).await;
    assert!(text.contains(&plain), "{text}");
    assert_eq!(rows["double_it"], 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reads_while_a_udf_computes() {
    let query = spec("select sum(waits_for_rows(l_orderkey)) from lineitem", 1);
    let planned = snowmelt_query::plan(&query).await.unwrap();
    let reporter = Arc::new(RecordingReporter::default());
    let read = Arc::clone(&reporter);
    let observer = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            ROWS_READ.store(read.last.lock().unwrap().rows, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }));
    let mut answer = run(planned, &query, Arc::default(), reporter).await.unwrap();
    let batches = answer.collect().await.unwrap();
    drop(observer);
    let plain = first_cell("select sum(l_orderkey * 2) from lineitem").await;
    assert!(pretty_format_batches(&batches).unwrap().to_string().contains(&plain));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_calls_udfs_above_the_cut() {
    let plain = first_cell("select sum(n) * 2 from odd").await;
    let (text, rows) = text("select double_it(sum(n)) from odd", 3).await;
    assert!(text.contains(&plain), "{text}");
    assert_eq!(rows["double_it"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udfs_work_in_group_by_where_and_order_by() {
    let (text, _) = text(
        "select shout(word) w, count(*) c from odd where double_it(id) < 200
         group by 1 having max(double_it(id)) > 100 order by shout(word) desc",
        2,
    )
    .await;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[3].contains("C!") && lines[5].contains("A!"), "{text}");
    assert!(lines[3].contains("33") && lines[5].contains("34"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constants_nulls_and_no_arguments_work() {
    assert_eq!(first_cell("select shout('hi')").await, "HI!");
    assert_eq!(first_cell("select add_up(40, 2)").await, "42");
    assert_eq!(first_cell("select double_it(null) is null").await, "true");
    assert_eq!(first_cell("select sum(one()) from odd").await, "10000");
    let nulls = first_cell("select count(*) from odd where n is null").await;
    assert_eq!(first_cell("select count(*) from odd where double_it(n) is null").await, nulls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_widened_and_never_narrowed() {
    let sum = first_cell("select sum(small) * 2 from odd").await;
    assert_eq!(first_cell("select sum(double_it(small)) from odd").await, sum);
    let report = refusal(&spec("select shout(id) from odd", 2)).await;
    assert!(report.contains("SM-0103"), "{report}");
    assert!(report.contains("`shout` takes (VARCHAR), but the query gives (BIGINT)"), "{report}");
    assert!(report.contains("select shout(id) from odd\n   |         ^"), "{report}");
    let report = refusal(&spec("select add_up(n) from odd", 2)).await;
    assert!(report.contains("`add_up` takes 2 arguments (BIGINT, BIGINT)"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_passed_to_a_udf_twice() {
    let (_, rows) = text("select double_it(n), double_it(n) + 1 from odd", 2).await;
    assert_eq!(rows["double_it"], 10_000);
    let (_, rows) =
        text("select a, a + 1 from (select double_it(n) a from odd) where a > 50", 2).await;
    assert_eq!(rows["double_it"], 10_000);
    let (_, rows) =
        text("select double_it(n), count(*) from odd group by 1 having double_it(n) > 3", 2).await;
    assert!(rows["double_it"] <= 20_000, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_udf_is_called_during_planning() {
    let planned = snowmelt_query::plan(&spec("select double_it(21), n from odd", 2)).await.unwrap();
    assert!(planned.worker_plan().contains("double_it(21)"), "{}", planned.worker_plan());
    assert_eq!(planned.udfs().unwrap(), ["double_it"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_row_is_named() {
    let report =
        failure(&spec("select sum(fails_at_88(id)) from odd", 1), InProcess::default()).await;
    assert!(report.starts_with("error[SM-0201]: `fails_at_88` failed in 1 of"), "{report}");
    assert!(report.contains("|  raise ValueError('eighty-eight')"), "{report}");
    assert!(report.contains("input: a0 = 88 (partition 0, row 88 of its batch)"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_instance_fails_the_query_instead_of_giving_nulls() {
    for (name, code) in [
        ("too_short", "SM-0203"),
        ("wrong_type", "SM-0202"),
        ("disconnects", "SM-0210"),
        ("sends_garbage", "SM-0507"),
    ] {
        let query = spec(&format!("select count({name}(n)) from odd"), 2);
        let report = failure(&query, InProcess::default()).await;
        assert!(report.contains(code) && report.contains(name), "{report}");
        let query = spec(&format!("select {name}(count(*)) from odd"), 2);
        let report = failure(&query, InProcess::default()).await;
        assert!(report.contains(code) && report.contains(name), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_instance_times_out() {
    let report = failure(&spec("select sleeps_briefly(n) from odd", 1), InProcess::default()).await;
    assert!(report.contains("SM-0212") && report.contains("within 200ms"), "{report}");
}
