//! Every query gives the same answer as plain DataFusion with 1, 2, 3 and 8 workers.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use crate::data;
use crate::runner::{InProcess, answer, spec};

const Q1: &str = "select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
    sum(l_extendedprice) as sum_base_price,
    sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
    avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
    count(*) as count_order
    from lineitem where l_shipdate <= date '1998-09-02'
    group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus";

const Q6: &str = "select sum(l_extendedprice * l_discount) as revenue from lineitem
    where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
    and l_discount between 0.05 and 0.07 and l_quantity < 24";

/// Queries with ordered rows, or with only one row.
const ORDERED: &[&str] = &[
    Q1,
    Q6,
    "select count(*) from lineitem",
    "select count(*), min(l_shipdate), max(l_shipdate) from lineitem where l_tax > 0.04",
    "select l_shipmode, count(*) c from lineitem group by 1 having count(*) > 8000 order by 1",
    "select distinct l_shipmode from lineitem order by l_shipmode",
    "select count(distinct l_suppkey), count(distinct l_partkey) from lineitem",
    "select l_returnflag, count(distinct l_suppkey) from lineitem group by 1 order by 1",
    "select l_orderkey, l_linenumber from lineitem order by l_extendedprice desc, 1, 2 limit 7",
    "select l_orderkey, l_linenumber from lineitem order by 1, 2 limit 5 offset 1000",
    "select * from nation order by n_name",
    "select * from odd order by word desc, s nulls first, x desc, small, id",
    "select id, s, word from odd order by s desc nulls last, word, price desc nulls first, id",
    "select l_orderkey, l_linenumber, l_comment from lineitem order by l_shipmode, l_comment desc, 1, 2",
    "select n_regionkey, string_agg(n_name, ',' order by n_name) from nation group by 1 order by 1",
    "select sum(case when l_shipmode = 'AIR' then 1 else 0 end) air, sum(case l_linestatus when 'O' then l_quantity end) o from lineitem",
    "select upper(l_shipmode), length(l_shipinstruct), count(*) from lineitem group by 1, 2 order by 1, 2",
    "select extract(year from l_shipdate) y, date_trunc('month', l_shipdate) m, count(*) from lineitem group by 1, 2 order by 1, 2",
    "select o_orderpriority, avg(o_totalprice), stddev_pop(cast(o_shippriority as double)) from orders where o_comment like '%special%' group by 1 order by 1",
    "select l_orderkey, rank() over (order by l_extendedprice desc, l_orderkey) r from lineitem order by r, 1 limit 10",
    "select * from (select l_shipmode, l_orderkey, row_number() over (partition by l_shipmode order by l_extendedprice desc, l_orderkey, l_linenumber) n from lineitem) where n <= 2 order by 1, 3",
    "select sum(s) from (select l_suppkey, sum(l_quantity) s from lineitem group by 1 having sum(l_quantity) > 15000)",
    "select count(*) from lineitem union all select count(*) from orders union all select 7 order by 1",
    "select n, count(*), sum(small), avg(x), count(s), count(distinct word) from odd where n is null or n < 20 group by n order by n nulls first",
    "select s, min(day), max(price), bool_and(yes) from odd group by s order by s nulls last",
    "select pair['x'] x, list[2] from odd order by id limit 20",
    "select id, unnest(list) from odd order by 1, 2 limit 50",
    "select word, grouping(word), count(*) from odd group by rollup(word) order by 1, 2",
    "select coalesce(s, 'none'), id from odd where id between 5 and 25 and s not in ('wört 4') or n is null and id < 40 order by id",
    "select sum(case small % 9 when 0 then 1 when 1 then 2 when 2 then 4 when 3 then 8 else 0 end), min(case word when 'a' then 'x' when 'b' then 'y' when 'c' then 'z' end) from odd",
    "select count(*), sum(n), max(s) from none",
    "select n, count(*) from none group by n",
    "with big as (select * from lineitem where l_quantity > 45) select l_linestatus, count(*) from big group by 1 order by 1",
    "select approx_distinct(l_suppkey) > 50 from lineitem",
    "select median(l_quantity) from lineitem",
    "select 1 + 1 as two, 'x' || 'y'",
    "values (1, 'a'), (2, 'b')",
];

/// Queries whose rows have no order.
const UNORDERED: &[&str] = &[
    "select l_suppkey, sum(l_quantity), count(*) from lineitem group by l_suppkey",
    "select l_orderkey, l_partkey, l_comment from lineitem where l_quantity = 1 and l_tax = 0",
    "select n_name from nation union select l_shipmode from lineitem",
    "select id, s from odd where s like 'wört 1%'",
    "select id from odd where yes union all select o_orderkey from orders where o_orderkey < 100",
];

async fn plain(sql: &str) -> Vec<RecordBatch> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for table in data::TABLES {
        let folder = data::folder().join(table);
        let options = ParquetReadOptions::default();
        session.register_parquet(table, folder.to_str().unwrap(), options).await.unwrap();
    }
    session.sql(sql).await.unwrap().collect().await.unwrap()
}

/// The rows as text, without the header, because the names of expressions differ.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    // Widths of columns differ if batches are empty, so spaces are ignored.
    let blank = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().filter(|line| line.starts_with('|')).skip(1).map(blank).collect()
}

/// Whether two rows are the same, but for the last digit of an average of decimals: plain DataFusion
/// truncates it.
fn alike(one: &str, other: &str) -> bool {
    let digits = |value: &str| {
        let (whole, behind) = value.split_once('.')?;
        (behind.len() >= 6).then(|| format!("{whole}{behind}").parse::<i128>().ok())?
    };
    let close = |one: &str, other: &str| match (digits(one), digits(other)) {
        (Some(number), Some(truncated)) if one.len() == other.len() => {
            number.abs_diff(truncated) <= 1
        }
        _ => one == other,
    };
    let (one, other): (Vec<&str>, Vec<&str>) =
        (one.split(' ').collect(), other.split(' ').collect());
    one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| close(one, other))
}

/// No query of these tables takes this long on any machine.
const HANGS: Duration = Duration::from_secs(20);

pub async fn check(sql: &str, ordered: bool) {
    check_against(sql, sql, ordered).await;
}

/// Compares with the answer of plain DataFusion to a query in other words.
pub async fn check_against(sql: &str, words: &str, ordered: bool) {
    let mut expected = rows(&plain(words).await);
    for workers in [1, 2, 3, 8] {
        let asked = spec(sql, workers);
        // A plan that waits for itself would hang.
        let answered = tokio::time::timeout(HANGS, answer(&asked, Arc::default())).await;
        let (batches, profile) = answered
            .unwrap_or_else(|_| panic!("{workers} workers: hangs: {sql}"))
            .unwrap_or_else(|error| panic!("{workers} workers: {sql}: {error}"));
        let mut found = rows(&batches);
        if !ordered {
            expected.sort();
            found.sort();
        }
        let same = found.len() == expected.len()
            && found.iter().zip(&expected).all(|(one, other)| alike(one, other));
        assert!(same, "{workers} workers: {sql}\n{found:?}\n{expected:?}");
        let given: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(profile.rows, given as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_queries_give_the_same_answer_as_plain_datafusion() {
    for sql in ORDERED {
        check(sql, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unordered_queries_give_the_same_answer_as_plain_datafusion() {
    for sql in UNORDERED {
        check(sql, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_without_order_gives_rows_of_the_table() {
    for workers in [1, 3] {
        let sql = "select l_orderkey from lineitem where l_quantity > 10 limit 17";
        let (batches, _) = answer(&spec(sql, workers), Arc::default()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 17);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_several_threads_and_partitions_gives_the_same_answer() {
    let sql = "select l_orderkey, l_comment from lineitem where l_tax = 0.01
        union all select o_orderkey, o_comment from orders where o_orderkey < 500";
    let mut expected = rows(&plain(sql).await);
    let runner = Arc::new(InProcess { threads: 4, ..InProcess::default() });
    let (batches, _) = answer(&spec(sql, 3), runner).await.unwrap();
    let mut found = rows(&batches);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_larger_than_the_memory_budget_are_read_from_disk() {
    // About 100 MiB: 60,000 rows of 1,600 bytes.
    let sql = "select l_orderkey, repeat(l_comment, 60) c from lineitem";
    let (batches, profile) = answer(&spec(sql, 2), Arc::default()).await.unwrap();
    assert!(profile.totals.bytes_exchanged > 64 << 20, "{}", profile.totals.bytes_exchanged);
    let given: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let count = rows(&plain("select count(*) from lineitem").await);
    assert_eq!(count[0], format!("| {given} |"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profile_has_phases_bytes_and_operators() {
    let (_, profile) = answer(&spec(Q1, 3), Arc::default()).await.unwrap();
    let phases: Vec<&str> = profile.phases.iter().map(|phase| phase.phase.as_str()).collect();
    assert_eq!(phases, ["plan", "start", "run", "merge"]);
    assert!(profile.phases.windows(2).all(|pair| pair[0].to_us <= pair[1].from_us));
    // Three scans, and three tasks that read them.
    assert_eq!((profile.totals.tasks, profile.lanes.len()), (6, 6));
    let rows = rows(&plain("select count(*) from lineitem").await);
    assert_eq!(rows[0], format!("| {} |", profile.totals.progress.rows_read));
    assert!(profile.totals.progress.bytes_read > 0 && profile.totals.progress.requests >= 4);
    assert!(profile.totals.progress.bytes_read <= 2 * profile.totals.bytes_total);
    assert!(profile.totals.cpu_seconds > 0.0 && profile.totals.peak_memory > 0);
    let scan = profile.operators.iter().find(|operator| operator.name.starts_with("Parquet"));
    let scan = scan.unwrap();
    assert!(scan.name.starts_with("ParquetScan") && scan.compute_nanos > 0, "{scan:?}");
    assert_eq!(scan.rows, profile.totals.progress.rows_read);
    assert!(profile.driver_operators.iter().any(|op| op.name.starts_with("ResultExec")));
}
