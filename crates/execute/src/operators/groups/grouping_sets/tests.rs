use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringViewArray,
};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::MemTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{collect, collect_partitioned};

use super::*;

/// Two partitions of rows with nulls in all columns.
fn table(rows: i64) -> MemTable {
    let batch = |start: i64| {
        let rows = || start..(start + 500).min(rows);
        let some = |row: i64, of: i64| Some(row * 7919 % of).filter(|value| value % 7 != 3);
        let a: Int64Array = rows().map(|row| some(row, 11)).collect();
        let b: StringViewArray =
            rows().map(|row| some(row, 23).map(|n| format!("a long text for {n}"))).collect();
        let c: Int64Array = rows().map(|row| some(row, 1_009)).collect();
        let v: Int64Array = rows().map(|row| some(row, 10_007)).collect();
        let d: Decimal128Array = rows().map(|row| some(row, 10_007).map(i128::from)).collect();
        let k: BooleanArray = rows().map(|row| some(row, 13).map(|n| n > 6)).collect();
        let f: Float64Array = rows().map(|row| some(row, 64).map(|n| n as f64 / 8.0)).collect();
        let columns: [(&str, ArrayRef); 7] = [
            ("a", Arc::new(a)),
            ("b", Arc::new(b)),
            ("c", Arc::new(c)),
            ("v", Arc::new(v)),
            ("d", Arc::new(d.with_precision_and_scale(12, 2).unwrap())),
            ("f", Arc::new(f)),
            ("k", Arc::new(k)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
    };
    let batches: Vec<_> = (0..rows.max(1)).step_by(500).map(batch).collect();
    let (first, second) = batches.split_at(batches.len() / 2);
    MemTable::try_new(batches[0].schema(), vec![first.to_vec(), second.to_vec()]).unwrap()
}

/// Runs a query with and without the replacement, which has so many bytes of memory, and compares the
/// rows. Returns the number of rows that the replacement emits. `None` if nothing is replaced.
async fn check(sql: &str, rows: i64, memory: usize) -> Option<usize> {
    let config = SessionConfig::new().with_target_partitions(2).with_batch_size(256);
    let session = SessionContext::new_with_config(config.clone());
    session.register_table("t", Arc::new(table(rows))).unwrap();
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0).build_arc().unwrap();
    let limited = SessionContext::new_with_config_rt(config, runtime);
    let plan = async || session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let replaced = derived(&aggregation(&plan().await)?)?;
    let states = collect_partitioned(Arc::clone(&replaced), limited.task_ctx()).await.unwrap();
    let emitted = states.iter().flatten().map(RecordBatch::num_rows).sum();
    let source = MemorySourceConfig::try_new_exec(&states, replaced.schema(), None).unwrap();
    let with_states = |node: Arc<dyn ExecutionPlan>| match derived(&node) {
        Some(_) => Ok(Transformed::yes(Arc::clone(&source) as Arc<dyn ExecutionPlan>)),
        None => Ok(Transformed::no(node)),
    };
    let ours = plan().await.transform_up(with_states).data().unwrap();
    let run = async |plan: Arc<dyn ExecutionPlan>| {
        let batches = collect(plan, session.task_ctx()).await.unwrap();
        let shown = pretty_format_batches(&batches).unwrap().to_string();
        let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(run(ours).await, run(plan().await).await, "{sql}");
    Some(emitted)
}

const AMPLE: usize = 1 << 30;

const FUNCTIONS: &str = "count(*), count(v), sum(v), min(b), max(d), avg(d), sum(f), avg(f), \
                         bool_or(a > 3), sum(v) filter (where c % 2 = 0)";

#[tokio::test]
async fn sets_that_are_derived_have_the_same_groups() {
    for sets in [
        "rollup(a, b, c)",
        "cube(a, b)",
        "grouping sets ((a, b), (b, c), (b), ())",
        "grouping sets ((), (a), (a, c % 10))",
        "cube(a, k, arrow_cast(b, 'Dictionary(Int32, Utf8)'))",
        "rollup(a, b, c % 3, c % 5, a % 2, a % 3, a % 5, v % 2, k)",
    ] {
        let sql = format!("select grouping(a), {FUNCTIONS} from t group by {sets}");
        assert!(check(&sql, 20_000, AMPLE).await.is_some(), "{sets}");
        // Without any row, the set without columns has a group.
        assert!(check(&sql, 0, AMPLE).await.is_some(), "{sets}");
    }
}

#[tokio::test]
async fn groups_are_emitted_several_times_when_memory_is_short() {
    let sql = "select a, b, c, count(*), sum(v) from t group by rollup(a, b, c)";
    let once = check(sql, 20_000, AMPLE).await.unwrap();
    let often = check(sql, 20_000, 1 << 20).await.unwrap();
    assert!(often > once, "{often} {once}");
    for sets in ["cube(a, c)", "rollup(arrow_cast(b, 'Dictionary(Int32, Utf8)'), k, c)"] {
        let sql = format!("select {FUNCTIONS} from t group by {sets}");
        assert!(check(&sql, 20_000, 1 << 20).await.is_some(), "{sets}");
    }
}

#[tokio::test]
async fn tables_that_were_emitted_take_no_memory() {
    let session = SessionContext::new();
    session.register_table("t", Arc::new(table(20_000))).unwrap();
    let sql = "select arrow_cast(b, 'Dictionary(Int32, Utf8)') as d, c, sum(v) from t \
               group by rollup(arrow_cast(b, 'Dictionary(Int32, Utf8)'), c, v)";
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let found = aggregation(&plan).unwrap();
    let lattice = Lattice::of(found.downcast_ref::<AggregateExec>().unwrap().group_expr()).unwrap();
    let lattice = Arc::new(lattice);
    let rows = RowExpressions::new(&found, &lattice).unwrap();
    let mut groups = SetGroups::new(&found, lattice, 256).unwrap();
    let empty = groups.size();
    let input = Arc::clone(found.children()[0]);
    for batch in collect(input, session.task_ctx()).await.unwrap() {
        rows.add_to(&mut groups, &batch).unwrap();
    }
    let full = groups.size();
    groups.begin_output();
    let mut largest = 0;
    while groups.next_states().unwrap().is_some() {
        largest = largest.max(groups.size());
    }
    assert!(groups.is_empty() && groups.size() == empty, "{empty} {full} {}", groups.size());
    assert!(full > 2 * empty && largest < 2 * full, "{empty} {full} {largest}");
}

/// The first aggregation that has a replacement.
fn aggregation(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match derived(plan) {
        Some(_) => Some(Arc::clone(plan)),
        None => plan.children().into_iter().find_map(aggregation),
    }
}

#[tokio::test]
async fn other_aggregations_are_left_alone() {
    for sql in [
        "select a, sum(v) from t group by a",
        "select a, b, sum(v) from t group by grouping sets ((a), (b))",
        "select a, b, sum(v) from t group by grouping sets ((a, b), (a), (a))",
        "select a, b, array_agg(v order by v) from t group by rollup(a, b)",
        "select a, b, count(distinct v) from t group by rollup(a, b)",
        "select a, c, string_agg(b, ',') from t group by rollup(a, c)",
    ] {
        assert_eq!(check(sql, 5_000, AMPLE).await, None, "{sql}");
    }
}
