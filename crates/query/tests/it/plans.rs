//! Golden plans, which show where each query is cut. `SNOWMELT_BLESS=1` writes them again.

use std::path::{Path, PathBuf};

use snowmelt_query::plan;

use crate::runner::{answer, spec};

const QUERIES: &[(&str, &str)] = &[
    (
        "aggregate",
        "select l_returnflag, count(*), sum(l_tax) from lineitem where l_quantity < 24 group by 1",
    ),
    (
        "aggregate_ordered",
        "select l_shipmode, count(*) from lineitem group by 1 order by 2 desc limit 3",
    ),
    ("top", "select l_orderkey, l_tax from lineitem order by l_tax desc, 1 limit 10"),
    ("sort", "select l_orderkey from lineitem order by l_shipdate"),
    ("limit", "select l_orderkey from lineitem where l_tax > 0.05 limit 10 offset 5"),
    ("scan", "select l_orderkey + 1 from lineitem where l_comment like '%x%'"),
    (
        "window",
        "select l_orderkey, rank() over (partition by l_shipmode order by l_tax) from lineitem",
    ),
    // One partition: the whole plan goes to one worker, unless the codec would change it.
    ("window_of_one", "select n_name, sum(n_regionkey) over (order by n_name) from nation"),
    (
        "window_filter",
        "select n_name, sum(n_regionkey) filter (where n_nationkey > 1) over (order by n_name) from nation",
    ),
    (
        "window_nulls",
        "select n_name, lag(n_regionkey) ignore nulls over (order by n_name) from nation order by 1",
    ),
    ("distinct", "select count(distinct l_suppkey) from lineitem"),
    ("union_all", "select l_orderkey from lineitem union all select o_orderkey from orders"),
    (
        "union_of_aggregates",
        "select count(l_tax) from lineitem where l_tax > 0 union all select count(o_comment) from orders where o_orderkey > 5",
    ),
    ("udf", "select double_it(sum(double_it(n))) from odd where double_it(id) > 7"),
    ("table_function", "select o.id, c.t from odd o, count_up(o.n) c where o.id > 7 and c.i > 0"),
    ("small_table", "select n_regionkey, count(*) from nation group by 1 order by 1"),
    ("no_table", "select 1 + 1"),
];

fn golden(name: &str) -> PathBuf {
    Path::new("tests/it/plans").join(format!("{name}.txt"))
}

#[tokio::test]
async fn queries_are_cut_as_in_the_golden_plans() {
    for (name, sql) in QUERIES {
        compare(name, sql, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_tpch_are_cut_as_in_the_golden_plans() {
    for (name, sql) in crate::joins::tpch() {
        tokio::spawn(async move { compare(&format!("tpch_{name}"), &sql, 4).await }).await.unwrap();
    }
}

async fn compare(name: &str, sql: &str, workers: u32) {
    let planned = plan(&spec(sql, workers)).await.unwrap();
    let found =
        format!("{sql}\n\ndriver\n{}\nworkers\n{}", planned.driver_plan(), planned.worker_plan());
    let path = golden(name);
    if std::env::var_os("SNOWMELT_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name}: SNOWMELT_BLESS=1 writes the plans again");
}

#[tokio::test]
async fn equal_parts_of_a_plan_run_once() {
    let sums = "with t as (select l_suppkey k, sum(l_quantity) q from lineitem group by 1)";
    let joined = "select a.k, b.k from t a join t b on a.q = b.q";
    let random = sums.replace("lineitem", "lineitem where l_quantity > 50 * random()");
    for (sql, scans) in [
        (format!("{sums} {joined}"), 1),
        // Each use of a random value is another one.
        (format!("{random} {joined}"), 2),
    ] {
        let planned = plan(&spec(&sql, 4)).await.unwrap();
        assert_eq!(planned.worker_plan().matches("ParquetScan").count(), scans, "{sql}");
    }
}

/// What an outer join finds no match for is null in most rows, so these are many.
#[tokio::test]
async fn rows_without_a_match_are_not_the_build_side_of_the_next_join() {
    let sql = "select count(*) from lineitem
        left join orders on l_orderkey = o_orderkey and o_totalprice > 300000
        join supplier on l_suppkey = s_suppkey where o_orderkey is null and s_nationkey < 5";
    let planned = plan(&spec(sql, 2)).await.unwrap();
    let stages = planned.worker_plan();
    assert!(stages.contains("join_type=Inner, on=[(s_suppkey@0, l_suppkey@"), "{stages}");
}

/// A stage has as many tasks as its bytes are worth, and each of them collects the build side.
#[tokio::test]
async fn a_build_side_is_collected_if_there_are_likely_to_be_few_tasks() {
    let sql = "select o_orderpriority, sum(l_quantity) from orders join lineitem on o_orderkey = l_orderkey group by 1";
    let called = "select o_orderpriority, sum(double_it(l_linenumber)) from orders join lineitem on o_orderkey = l_orderkey group by 1";
    for (sql, bytes, mode) in [
        (sql, 0, "Partitioned"),
        (sql, 1, "Partitioned"),
        (sql, 16 << 20, "CollectLeft"),
        // What a call costs is not known, so there is a task for each worker.
        (called, 16 << 20, "Partitioned"),
    ] {
        let mut query = spec(sql, 16);
        query.scan_task_bytes = bytes;
        let plan = plan(&query).await.unwrap();
        let join = plan.worker_plan().lines().find(|line| line.contains("HashJoinExec")).unwrap();
        assert!(join.contains(&format!("mode={mode}")), "{bytes}: {join}");
    }
}

#[tokio::test]
async fn small_tables_are_joined_by_the_tasks_that_read_them_unless_they_would_differ() {
    let small = "select s_suppkey from supplier join nation on s_nationkey = n_nationkey";
    for (condition, is_read_by_tasks) in [("n_regionkey < 3", true), ("random() < 0.5", false)] {
        let sql = format!(
            "select count(*) from lineitem join ({small} where {condition}) s on l_suppkey = s_suppkey"
        );
        let planned = plan(&spec(&sql, 2)).await.unwrap();
        let stages = planned.worker_plan();
        assert_eq!(!stages.contains("ExchangeRead"), is_read_by_tasks, "{stages}");
    }
}

#[tokio::test]
async fn explain_shows_both_halves_and_runs_no_task() {
    let runner = std::sync::Arc::new(crate::runner::InProcess::default());
    let query = spec("explain select count(*) from lineitem where l_tax > 0", 2);
    let (batches, _) = answer(&query, std::sync::Arc::clone(&runner)).await.unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    assert!(text.contains("| driver") && text.contains("ResultExec"), "{text}");
    assert!(text.contains("| workers") && text.contains("ParquetScan"), "{text}");
    assert_eq!(runner.attempts.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn files_are_granted_only_to_the_tasks_that_read_them() {
    let planned = plan(&spec("select l_orderkey from lineitem", 4)).await.unwrap();
    let tasks = planned.tasks().unwrap();
    assert_eq!((tasks.len(), planned.files().unwrap().len()), (4, 4));
    // Four files, four workers: a partition may end inside a file, but no task needs all files.
    assert!(tasks.iter().all(|task| task.files.len() <= 2 && !task.files.is_empty()));
    assert_eq!(tasks.iter().map(|task| task.bytes).sum::<u64>(), planned.bytes_total());
}
