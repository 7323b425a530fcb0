//! Aggregate functions of the user: partial states between stages, broken instances, refusals.
//!
//! Instances here are threads that speak the protocol. They add up integers as `sum` does, so each
//! answer is compared with that of the built-in function.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, LargeBinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_udf::{group_field, state_schema};
use snowmelt_wire::{
    AggregateCall, AggregateDone, AggregateStep, BatchDecoder, BatchEncoder, FailureKind, Frame,
    FrameStream, FunctionFailure, Kind, Signature, UdfKind, decode_schema,
};

use crate::runner::{InProcess, answer, failure, refusal, spec};
use crate::udfs::signature;

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// `total` adds up its argument, `product` the products of its arguments.
const FUNCTIONS: [(&str, usize); 6] = [
    ("total", 1),
    ("product", 2),
    ("FoldedTotal", 1),
    ("raises_in_update", 1),
    ("disconnects_in_merge", 1),
    ("finishes_too_many", 1),
];

pub fn signatures() -> impl Iterator<Item = Signature> {
    let of_integers = FUNCTIONS.iter().map(|(name, arguments)| {
        signature(name, &vec![DataType::Int64; *arguments], &DataType::Int64)
    });
    // Never called: its query ends before.
    let of_doubles = signature("total_of_doubles", &[DataType::Float64], &DataType::Int64);
    let all = of_integers.chain([of_doubles]);
    all.map(|signature| Signature { kind: UdfKind::Aggregate, ..signature })
}

pub fn is_one(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, _)| *known == name) || name == "total_of_doubles"
}

/// Serves a connection in a thread.
pub fn serve(name: &str, socket: UnixStream, counts: Counts) {
    let name = name.to_owned();
    std::thread::spawn(move || {
        let accumulators = BTreeMap::new();
        let mut instance =
            Instance { name, stream: FrameStream::new(socket), counts, accumulators };
        // An error here means that the query has ended and closed the connection.
        _ = instance.answer_all();
    });
}

struct Instance {
    name: String,
    stream: FrameStream,
    counts: Counts,
    // The sum of each group; `None` before its first row.
    accumulators: BTreeMap<u64, Vec<Option<i64>>>,
}

impl Instance {
    fn answer_all(&mut self) -> snowmelt_wire::Result<()> {
        let schema = self.stream.receive()?.expect(Kind::Schema, "rows")?;
        let last = decode_schema(&schema.payload)?.fields().last().cloned().unwrap();
        assert_eq!(last.data_type(), group_field().data_type());
        self.stream.receive()?.expect(Kind::Schema, "result")?;
        let mut rows = BatchDecoder::default();
        let mut states = BatchDecoder::default();
        rows.push(&schema)?;
        states.push(&BatchEncoder::default().schema(&state_schema())?)?;
        loop {
            let frame = self.stream.receive()?.expect(Kind::Aggregate, "call")?;
            let call: AggregateCall = frame.parse()?;
            call.forget.iter().for_each(|gone| _ = self.accumulators.remove(gone));
            let groups = self.accumulators.entry(call.accumulator).or_default();
            groups.resize(call.groups as usize, None);
            match call.step {
                AggregateStep::Update => {
                    let batch = rows.push(&self.stream.receive()?)?.remove(0);
                    self.update(call.accumulator, &batch)?;
                }
                AggregateStep::Merge if self.name == "disconnects_in_merge" => return Ok(()),
                AggregateStep::Merge => {
                    let batch = states.push(&self.stream.receive()?)?.remove(0);
                    self.merge(call.accumulator, &batch)?;
                }
                AggregateStep::State | AggregateStep::Finish => self.take(&call)?,
            }
        }
    }

    fn update(&mut self, accumulator: u64, batch: &RecordBatch) -> snowmelt_wire::Result<()> {
        let rows = batch.num_rows() as u64;
        *self.counts.lock().unwrap().entry(self.name.clone()).or_default() += rows;
        if self.name == "raises_in_update" {
            return self.stream.send(&Frame::json(Kind::Failure, &raised())?);
        }
        let (group, columns) = batch.columns().split_last().unwrap();
        let group = group.as_primitive::<UInt64Type>();
        let states = self.accumulators.get_mut(&accumulator).unwrap();
        for (row, group) in group.values().iter().enumerate() {
            if columns.iter().any(|column| column.is_null(row)) {
                continue;
            }
            let factors =
                columns.iter().map(|column| column.as_primitive::<Int64Type>().value(row));
            *states[*group as usize].get_or_insert(0) += factors.product::<i64>();
        }
        self.done()
    }

    fn merge(&mut self, accumulator: u64, batch: &RecordBatch) -> snowmelt_wire::Result<()> {
        let others = batch.column(0).as_binary::<i64>();
        let group = batch.column(1).as_primitive::<UInt64Type>();
        let states = self.accumulators.get_mut(&accumulator).unwrap();
        for (other, group) in others.iter().zip(group.values()) {
            if let Some(other) = other {
                let sum = i64::from_le_bytes(other.try_into().unwrap());
                *states[*group as usize].get_or_insert(0) += sum;
            }
        }
        self.done()
    }

    fn done(&mut self) -> snowmelt_wire::Result<()> {
        let groups = self.accumulators.values().map(Vec::len).sum::<usize>() as u64;
        self.stream.send(&Frame::json(Kind::Aggregate, &AggregateDone { bytes: groups * 100 })?)
    }

    /// At most 1000 groups with each answer.
    fn take(&mut self, call: &AggregateCall) -> snowmelt_wire::Result<()> {
        let states = self.accumulators.get_mut(&call.accumulator).unwrap();
        let first: Vec<Option<i64>> = states.drain(..call.take.min(1000) as usize).collect();
        let column: ArrayRef = match call.step {
            AggregateStep::State => Arc::new(LargeBinaryArray::from_iter(
                first.iter().map(|sum| sum.map(|sum| sum.to_le_bytes().to_vec())),
            )),
            _ if self.name == "finishes_too_many" => {
                Arc::new(Int64Array::from(vec![1; first.len() + 1]))
            }
            _ => Arc::new(Int64Array::from(first)),
        };
        let answer = RecordBatch::try_from_iter_with_nullable([("return", column, true)])?;
        let mut encoder = BatchEncoder::default();
        self.stream.send(&encoder.schema(&answer.schema())?)?;
        self.stream.send(&encoder.batch(&answer)?)
    }
}

fn raised() -> FunctionFailure {
    FunctionFailure {
        kind: FailureKind::Raised,
        function: "raises_in_update".to_owned(),
        exception: "ValueError: no".to_owned(),
        location: None,
        traceback: vec!["raise ValueError('no')".to_owned()],
        row: None,
        input: None,
        failed: 1,
        calls: 1,
        limit: None,
        peak: None,
        hint: None,
    }
}

async fn rows(sql: &str, workers: u32) -> BTreeSet<String> {
    let (batches, _) = answer(&spec(sql, workers), Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    // Without the heading, which names the functions.
    let text = pretty_format_batches(&batches).unwrap().to_string();
    text.lines().skip(3).map(|line| line.replace(' ', "")).collect()
}

/// Queries in which F is `total` or `sum`.
const QUERIES: [&str; 10] = [
    "select F(n) x from odd",
    "select F(n) x from odd where n < 0",
    "select word, F(n) x from odd group by word",
    "select id % 5000 k, F(n) x from odd group by 1",
    "select id, F(n) x from odd group by id",
    "select word, F(n) filter (where id > 5000) x from odd group by word",
    "select word, F(id) filter (where n > 5000) x from odd group by word",
    "select word, F(n) x, F(id) y, count(*) c, avg(id) a, max(n) m from odd group by word",
    "select l_orderkey k, F(l_partkey) x from lineitem group by 1 having F(l_partkey) > 1000",
    "select word, F(double_it(n)) x from odd group by word",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_states_give_what_a_built_in_aggregate_gives() {
    for query in QUERIES {
        let expected = rows(&query.replace("F(", "sum("), 1).await;
        for workers in [1, 3, 16] {
            let found = rows(&query.replace("F(", "total("), workers).await;
            assert_eq!(found, expected, "{query} with {workers} workers");
        }
    }
}

/// Then the partial aggregation passes rows on as states of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_groups_of_their_own_are_states() {
    let query = "select count(*), sum(x), max(k) from (
                   select k, F(v) x from (
                     select a.id * 100 + b.id k, a.n v from odd a, odd b where b.id < 60) group by k)";
    let expected = rows(&query.replace("F(", "sum("), 1).await;
    assert_eq!(rows(&query.replace("F(", "total("), 3).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_arguments_and_other_cases_of_names_work() {
    for workers in [1, 3] {
        let expected = rows("select word, sum(n * id) x from odd group by 1", 1).await;
        assert_eq!(
            rows("select word, product(n, id) x from odd group by 1", workers).await,
            expected
        );
        let expected = rows("select sum(n) x from odd", 1).await;
        assert_eq!(rows("select FOLDEDTOTAL(n) x from odd", workers).await, expected);
        assert_eq!(
            rows("select total(small) x from odd", workers).await,
            rows("select sum(small) x from odd", 1).await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_aggregated_in_workers_and_only_states_are_exchanged() {
    let query = spec("select word, total(n) x from odd group by word", 3);
    let runner = Arc::new(InProcess::default());
    answer(&query, Arc::clone(&runner)).await.unwrap();
    assert_eq!(runner.udf_rows.lock().unwrap()["total"], 10_000);
    let planned = snowmelt_query::plan(&query).await.unwrap();
    let plan = planned.worker_plan();
    assert!(plan.contains("mode=Partial") && plan.contains("total(odd.n)"), "{plan}");
    assert_eq!(planned.udfs().unwrap(), ["total"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_instances_fail_the_query() {
    for (call, code, text) in [
        ("raises_in_update(n)", "SM-0201", "ValueError: no"),
        ("disconnects_in_merge(n)", "SM-0210", "disconnects_in_merge"),
        ("finishes_too_many(n)", "SM-0203", "finishes_too_many"),
    ] {
        for groups in ["", "group by word"] {
            let query = spec(&format!("select {call} from odd {groups}"), 3);
            let report = failure(&query, InProcess::default()).await;
            assert!(report.contains(code) && report.contains(text), "{call}: {report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_cannot_have_is_refused() {
    for (sql, text) in [
        ("select total(distinct n) from odd", "`total` cannot be called with DISTINCT"),
        ("select total(n order by id) from odd", "`total` cannot be called with ORDER BY"),
        ("select total(n) over (partition by word) from odd", "`total` cannot be called with OVER"),
    ] {
        let report = refusal(&spec(sql, 2)).await;
        assert!(report.contains("SM-0107") && report.contains(text), "{report}");
        assert!(report.contains("\n   |         ^"), "{report}");
    }
    let correlated =
        "select id from odd a where n > (select total(n) from odd b where a.id = b.id)";
    let report = refusal(&spec(correlated, 2)).await;
    assert!(report.contains("cannot be used in a correlated subquery"), "{report}");
    let report = refusal(&spec("select total(s) from odd", 2)).await;
    assert!(report.contains("SM-0103"), "{report}");
    assert!(report.contains("`total` takes (BIGINT), but the query gives (VARCHAR"), "{report}");
    let report = refusal(&spec("select product(n) from odd", 2)).await;
    assert!(report.contains("`product` takes 2 arguments (BIGINT, BIGINT)"), "{report}");
}
