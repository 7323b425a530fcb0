//! PIVOTs that list no values: those of the data become columns. Each expected answer is DuckDB's.

use std::sync::Arc;

use snowmelt_query::{HostFiles, ListedQuery, LocalFiles, QuerySpec, Reporter};
use snowmelt_types::Report;
use snowmelt_wire::LocalFile;

use crate::everyday::table;
use crate::runner::{InProcess, RecordingReporter, answer, located, options, spec};

const T: &str = "(values ('a', 1, 'x'), ('b', 2, 'y'), (null, 4, 'x'), ('a', 3, null)) t(c, v, w)";

/// A statement, the names of its columns, and its rows.
const CASES: &[(&str, &str, &[&str])] = &[
    ("pivot {} on c using sum(v) order by w", "w|a|b", &["x|1|", "y||2", "|3|"]),
    ("pivot {} on c using sum(v) group by w order by w", "w|a|b", &["x|1|", "y||2", "|3|"]),
    ("pivot {} on c, w using sum(v)", "a_x|a_y|b_x|b_y", &["1|||2"]),
    ("pivot {} on c in ('a', null), w using sum(v)", "a_x|a_y|NULL_x|NULL_y", &["1||4|"]),
    ("pivot {} on c || w using sum(v) as s, count(*) as n", "ax_s|ax_n|by_s|by_n", &["1|1|2|1"]),
    ("pivot {} on c order by v limit 2", "v|w|a|b", &["1|x|1|0", "2|y|0|1"]),
    (
        "pivot {} on c using sum(v) + count(*), max(v) order by w limit 1",
        "w|a_sum(v) + count(*)|a_max(v)|b_sum(v) + count(*)|b_max(v)",
        &["x|2|1||"],
    ),
    // Values are texts, in the order of texts.
    ("pivot (values (10), (9), (-1)) t(c) on c using count(*)", "-1|10|9", &["1|1|1"]),
    ("pivot (values (true, 1), (false, 2)) t(c, v) on c using sum(v)", "false|true", &["2|1"]),
    (
        "pivot (values (date '2024-02-01', 1), (date '2024-01-01', 2)) t(c, v) on c using sum(v)",
        "2024-01-01|2024-02-01",
        &["2|1"],
    ),
    (
        "pivot (values (1.50::decimal(5, 2), 1), (10.25::decimal(5, 2), 2)) t(c, v) on c using sum(v)",
        "1.50|10.25",
        &["1|2"],
    ),
    ("pivot (values ('', 1), ('B', 2)) t(c, v) on c using sum(v)", "''|B", &["1|2"]),
    // Nothing becomes a column.
    ("pivot (select w, c, v from {} where false) on c using sum(v)", "", &[]),
    ("pivot (select 1 as w, c, v from {} where c is null) on c using sum(v)", "w", &["1"]),
    (
        "with s as (from {}), q as (select * from s where v < 3) pivot q on c using sum(v) order by w",
        "w|a|b",
        &["x|1|", "y||2"],
    ),
    ("select n.w, n.b from {} pivot (sum(v) for c in (any)) as n where n.w = 'y'", "w|b", &["y|2"]),
    (
        "with p as (select * from {} pivot (max(v) for c in (any))) select a, b from p order by all",
        "a|b",
        &["1|", "3|", "|2"],
    ),
    (
        "select * from {} pivot (sum(v) for c in (select 'b' union all select 'a' union all select 'b')) as p order by w limit 1",
        "w|a|b",
        &["x|1|"],
    ),
    (
        "select count(*), sum(l.a), sum(r.b) from {} pivot (sum(v) for c in (any)) l, {} pivot (sum(v) for c in (any)) r",
        "count(*)|sum(l.a)|sum(r.b)",
        &["9|12|6"],
    ),
    // A table of WITH with other values of its own.
    (
        "with p as (select * from {} pivot (sum(v) for w in (any))) pivot p on c using sum(x)",
        "y|a|b",
        &["2||", "|1|"],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_values_of_the_data_become_columns() {
    for (sql, names, expected) in CASES {
        for workers in [1, 3] {
            let sql = sql.replace("{}", T);
            let (found, rows) =
                table(&sql, workers).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            if !rows.is_empty() {
                assert_eq!(found, *names, "{sql}");
            }
            let mut rows = rows;
            if !sql.contains("order by") {
                rows.sort();
            }
            assert_eq!(rows, *expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pivots_of_files_run_in_stages() {
    let sql = "pivot (select o_orderpriority, o_orderstatus, year(o_orderdate) y from orders where o_orderkey < ?)
        on o_orderstatus using count(*) group by o_orderpriority order by 1";
    let listed = sql.replace("on o_orderstatus", "on o_orderstatus in ('F', 'O', 'P')");
    let given = snowmelt_wire::Parameters::Places(vec![serde_json::from_str("3000").unwrap()]);
    let with = |sql: &str| QuerySpec { params: given.clone(), ..spec(sql, 3) };
    let (expected, _) = answer(&with(&listed), Arc::default()).await.unwrap();
    let runner = Arc::new(InProcess::default());
    let (found, profile) = answer(&with(sql), Arc::clone(&runner)).await.unwrap();
    assert_eq!(found, expected);
    assert!(found[0].num_rows() == 5 && found[0].num_columns() == 4, "{found:?}");
    // The tasks that found the values count, and have numbers of their own.
    let before = profile.lanes.iter().filter(|lane| lane.name.starts_with("values: ")).count();
    assert!(before > 0 && before < profile.lanes.len(), "{:?}", profile.lanes);
    assert_eq!(profile.totals.tasks as usize, profile.lanes.len());
    assert!(runner.tried.lock().unwrap().values().all(|tried| *tried == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_pivots_say_what_is_wrong_in_their_own_text() {
    for (sql, part) in [
        ("pivot nation on n_nothing using count(*)", "n_nothing"),
        ("pivot nation on n_name using sum(n_nothing)", "n_nothing"),
        ("pivot nothing on n_name using count(*)", "nothing"),
        ("pivot nation on n_name using n_name", "PIVOT takes aggregates"),
        ("pivot nation on n_name using n_regionkey + sum(n_nationkey)", "PIVOT takes aggregates"),
        ("pivot nation on n_name using sum(n_nationkey) over ()", "PIVOT takes aggregates"),
        (
            "select * from nation pivot (sum(n_nationkey) for n_name in (any) default on null (0))",
            "FOR c IN",
        ),
        ("pivot orders on o_orderkey using count(*) group by o_orderstatus", "SM-0109"),
        (
            "pivot orders on o_orderkey using count(*) group by o_orderstatus",
            "more than 10000 values",
        ),
    ] {
        let report = table(sql, 2).await.unwrap_err();
        assert!(report.contains(part), "{sql}: {report}");
        let internal = ["SELECT DISTINCT", "VARCHAR", "value\"", "pivoted", "IS NOT NULL"];
        assert!(!internal.iter().any(|word| report.contains(word)), "{sql}: {report}");
    }
    let unlisted = snowmelt_query::plan(&spec("pivot nation on n_name using count(*)", 1)).await;
    assert!(unlisted.unwrap_err().report().to_string().contains("SM-0107"));
}

/// Files of which one is added after they were listed once.
#[derive(Debug)]
struct GrowingFiles {
    files: HostFiles,
}

#[async_trait::async_trait]
impl LocalFiles for GrowingFiles {
    async fn list(&self, location: &str) -> snowmelt_query::Result<Vec<LocalFile>> {
        let listed = self.files.list(location).await;
        std::fs::write(self.files.folder.join("b.csv"), "c,v\nz,5\n").unwrap();
        listed
    }

    async fn open(&self, path: &str) -> snowmelt_query::Result<std::fs::File> {
        self.files.open(path).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_change_before_the_values_are_used_end_the_query() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.csv"), "c,v\nx,1\ny,2\n").unwrap();
    let sql = "pivot '*.csv' on c using sum(v)";
    let path = folder.path();
    let found = |files: Arc<dyn LocalFiles>| async move {
        let spec = QuerySpec { files, ..located(sql, path) };
        let options = options(&spec);
        let reporter: Arc<dyn Reporter> = Arc::new(RecordingReporter::default());
        let runner = Arc::new(InProcess::default());
        let listed = ListedQuery::find(spec, runner, &reporter, options).await.unwrap();
        listed.plan().await.map(|_| ()).map_err(|error| error.report().to_string())
    };
    let folder_of = || HostFiles { folder: folder.path().to_owned() };
    assert_eq!(found(Arc::new(folder_of())).await, Ok(()));
    let report = found(Arc::new(GrowingFiles { files: folder_of() })).await.unwrap_err();
    assert!(report.contains("SM-0116") && report.contains("*.csv"), "{report}");
}
