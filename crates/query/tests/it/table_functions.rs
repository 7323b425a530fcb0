//! Table functions of the user: calls in FROM, compared with what `unnest` of plain SQL gives.
//!
//! The instance here answers at most 700 rows of a batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int64Builder, ListBuilder, RecordBatch, StringBuilder, StructBuilder,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_wire::{Signature, UdfKind};

use crate::runner::{InProcess, answer, refusal, spec};
use crate::udfs::signature;

/// Gives the numbers below the remainder of its argument by 4, and their texts.
const NAME: &str = "count_up";

const MAX_ROWS: usize = 700;

fn columns() -> Fields {
    let fields = [("i", DataType::Int64), ("t", DataType::Utf8)];
    fields.map(|(name, kind)| Field::new(name, kind, true)).into_iter().collect()
}

pub fn signatures() -> impl Iterator<Item = Signature> {
    let row = Field::new("item", DataType::Struct(columns()), true);
    let rows = DataType::List(Arc::new(row));
    let made = signature(NAME, &[DataType::Int64], &rows);
    [Signature { kind: UdfKind::Table, batch: "scalar".to_owned(), ..made }].into_iter()
}

/// The answer of an instance to a batch; `None` for other functions.
pub fn result(name: &str, batch: &RecordBatch) -> Option<ArrayRef> {
    if name != NAME {
        return None;
    }
    let mut lists = ListBuilder::new(StructBuilder::from_fields(columns(), 0));
    for number in batch.column(0).as_primitive::<Int64Type>().iter().take(MAX_ROWS) {
        let rows = lists.values();
        for i in 0..number.map_or(0, |number| number % 4) {
            rows.field_builder::<Int64Builder>(0).unwrap().append_value(i);
            rows.field_builder::<StringBuilder>(1).unwrap().append_value(format!("t{i}"));
            rows.append(true);
        }
        lists.append(number.is_some());
    }
    Some(Arc::new(lists.finish()))
}

async fn text(sql: &str, workers: u32) -> (String, BTreeMap<String, u64>) {
    let runner = Arc::new(InProcess::default());
    let (batches, _) = answer(&spec(sql, workers), Arc::clone(&runner))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let called = runner.udf_rows.lock().unwrap().clone();
    let shown = pretty_format_batches(&batches).unwrap().to_string();
    (shown, called)
}

async fn check(ours: &str, plain: &str) {
    let (expected, _) = text(plain, 1).await;
    for workers in [1, 3] {
        assert_eq!(text(ours, workers).await.0, expected, "{ours}");
    }
}

/// The rows of `odd` with those of `count_up(n)`, in plain SQL.
const PLAIN: &str = "(select id, n, unnest(range(0, n % 4)) i from odd where n % 4 > 0)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_rows_give_the_rows_of_unnest() {
    let joined = [
        "odd o, count_up(o.n) c",
        "odd o, count_up(n) as c",
        "odd o cross join lateral count_up(o.n) c",
        "odd o join lateral count_up(o.n) c on true",
        "odd o join count_up(o.n) as c(i, text) on 1 = 1",
        "odd o, table(Count_Up(o.n)) c",
        "odd o, lateral (select w.i from count_up(o.n) as w) c",
    ];
    let plain = format!("select id, i from {PLAIN} order by 1, 2");
    for from in joined {
        check(&format!("select o.id, c.i from {from} order by 1, 2"), &plain).await;
    }
    let ours =
        "select sum(c.i * o.id) s, count(*) n, min(t) t from odd o, count_up(n) c where c.i > 0";
    let plain = format!("select sum(i * id) s, count(*) n, 't1' t from {PLAIN} where i > 0");
    check(ours, &plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_and_computed_columns_of_a_lateral_subquery_are_kept() {
    let ours = "select o.id, c.s from odd o,
        lateral (select w.i + o.id as s from count_up(o.n) w where w.i < o.id - 5) c order by 1, 2";
    let plain = format!("select id, i + id as s from {PLAIN} where i < id - 5 order by 1, 2");
    check(ours, &plain).await;
    let ours = "select o.id, c.i from odd o join lateral count_up(o.n) c on c.i = o.id % 3
        order by 1, 2";
    let plain = format!("select id, i from {PLAIN} where i = id % 3 order by 1, 2");
    check(ours, &plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_left_join_keeps_rows_without_output() {
    let ours =
        "select count(*) a, count(c.i) b, sum(c.i) c, sum(case when c.t is null then o.id end) d
        from odd o left join lateral count_up(o.n) as c on true";
    let plain = "select sum(greatest(coalesce(n % 4, 0), 1)) a, sum(coalesce(n % 4, 0)) b,
        sum(case n % 4 when 2 then 1 when 3 then 3 else 0 end) c,
        sum(case when coalesce(n % 4, 0) = 0 then id end) d from odd";
    check(ours, plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constants_subqueries_and_several_calls_work() {
    check(
        "select * from count_up(3)",
        "select * from (values (0, 't0'), (1, 't1'), (2, 't2')) v(i, t)",
    )
    .await;
    check("select count(*) n from count_up(4)", "select 0 n").await;
    let ours = "select count(*) n, sum(id) s from odd where id in (select i + 7 from count_up(3))";
    check(ours, "select 3 n, 24 s").await;
    let ours = "select c.i, o.id from odd o right join count_up(3) c on o.id = c.i * 2 order by 1";
    check(ours, "select i, i * 2 id from (values (0), (1), (2)) v(i) order by 1").await;
    let ours = "select o.id, a.i x, b.i y from odd o, count_up(o.n) a, count_up(a.i) b
        order by 1, 2, 3";
    let plain =
        format!("select id, i x, unnest(range(0, i)) y from {PLAIN} where i > 0 order by 1, 2, 3");
    check(ours, &plain).await;
    let ours = "select a.i x, b.i y from odd o, count_up(o.n) a, count_up(o.n) b where o.id = 2
        order by 1, 2";
    check(ours, "select * from (values (0, 0), (0, 1), (1, 0), (1, 1)) v(x, y)").await;
}

/// DataFusion knows that a grouped key is unique, and must forget it where rows are repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_were_unique_before_a_call_are_not_after_it() {
    let grouped = "select n % 10 k, max(n) m from odd where n is not null group by 1";
    let ours = format!(
        "select g.k, c.i, count(*) n from ({grouped}) g, count_up(g.m) c group by 1, 2 order by 1, 2"
    );
    let plain = format!(
        "select k, i, count(*) n from (select k, unnest(range(0, m % 4)) i from ({grouped})
         where m % 4 > 0) group by 1, 2 order by 1, 2"
    );
    check(&ours, &plain).await;
    let ours =
        format!("select distinct g.k from ({grouped}) g, count_up(g.m * 0 + 3) c order by 1");
    check(&ours, &format!("select k from ({grouped}) order by 1")).await;
    // The same for unnest of lists.
    let ours = format!(
        "select k, i, count(*) n from (select k, unnest([1, 2, 2, 1]) i from ({grouped}))
         group by 1, 2 order by 1, 2"
    );
    let plain = format!("select k, i, 2 n from ({grouped}), (values (1), (2)) v(i) order by 1, 2");
    check(&ours, &plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_an_answer_leaves_out_are_sent_again() {
    let (_, called) = text("select sum(c.i) from odd o, count_up(o.n) c", 1).await;
    // 3,334 rows of each file: the first call of an instance sends all of a batch.
    assert!(called[NAME] > 10_000 && called[NAME] < 40_000, "{called:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_call_the_function() {
    let sql = "select c.t, count(*) from odd o, count_up(o.n) c group by 1";
    let planned = snowmelt_query::plan(&spec(sql, 3)).await.unwrap();
    let shown = planned.worker_plan();
    assert!(shown.contains("UnnestExec") && shown.contains("count_up"), "{shown}");
    assert!(!planned.driver_plan().contains("UnnestExec"), "{}", planned.driver_plan());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_cannot_be_are_refused() {
    for (sql, code, words) in [
        ("select count_up(n) from odd", "SM-0107", "called in FROM"),
        ("select id from odd where count_up(n) is null", "SM-0107", "called in FROM"),
        ("select * from odd o, count_up(double_it(count_up(n)))", "SM-0107", "called in FROM"),
        ("select * from count_up(1) as c(a)", "SM-0107", "has 2 columns, and its alias names 1"),
        ("select * from count_up(1) with ordinality", "SM-0107", "WITH ORDINALITY"),
        ("select * from count_up(a0 => 1)", "SM-0107", "by position"),
        ("select * from count_up('x')", "SM-0103", "`count_up` takes (BIGINT)"),
        ("select * from odd o, count_up(o.s) c", "SM-0103", "`count_up` takes (BIGINT)"),
        ("select * from odd o, count_up() c", "SM-0103", "takes 1 arguments"),
        ("select * from odd o, count_up(o.nn) c", "SM-0102", "there is no column `nn`"),
        ("select * from count_up(n), odd o", "SM-0102", "there is no column `n`"),
        ("select (select count(*) from count_up(o.n)) from odd o", "SM-0107", "joined before it"),
        ("select * from odd o left join lateral count_up(o.n) c on c.i > 0", "SM-0107", "ON TRUE"),
        (
            "select * from odd o left join lateral (select i from count_up(o.n) where i > 0) c on true",
            "SM-0107",
            "ON TRUE",
        ),
        ("select * from odd o, count_upp(o.n) c", "SM-0102", "no table function `count_upp`"),
    ] {
        let report = refusal(&spec(sql, 2)).await;
        assert!(report.contains(code) && report.contains(words), "{sql}: {report}");
    }
}
