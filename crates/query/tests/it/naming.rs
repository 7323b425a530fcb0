//! Names: of columns in any case, of columns from folders, of the columns of an answer, and the
//! statements that only return names.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;

use crate::data::write;
use crate::runner::{answer, located, refusal, spec};

fn batch(rows: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..rows).map(|id| format!("n{id}"))));
    RecordBatch::try_from_iter([("UserID", Arc::clone(&ids)), ("Name", names), ("v", ids)]).unwrap()
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("t.parquet"), &batch(5), 10);
    folder
}

async fn table(sql: &str, folder: &TempDir) -> String {
    let (batches, _) = answer(&located(sql, folder.path()), Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

async fn header(sql: &str) -> Vec<String> {
    let (batches, _) = answer(&spec(sql, 2), Arc::default()).await.unwrap();
    let schema = batches[0].schema();
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_found_in_any_case() {
    let folder = folder();
    for sql in [
        "select UserID from 't.parquet' where userid > 3",
        "select USERID, count(*) from 't.parquet' t where t.userid = 4 group by userid order by UserId",
        "select x.userid from (select UserID from 't.parquet') x where x.UserID = 4",
        "with w as (select userid as userid, name n from 't.parquet') select * from w where n = 'n4'",
        "select max(userid) as userid from 't.parquet' where NAME like 'n%' order by userid",
        "select sum(v) over (partition by name order by userid) from 't.parquet' where userid = 4",
    ] {
        let text = table(sql, &folder).await;
        assert!(text.contains('4') && text.lines().count() == 5, "{sql}\n{text}");
    }
    let text = table("select userid from 't.parquet' limit 1", &folder).await;
    assert!(text.contains("UserID"), "{text}");
}

#[tokio::test]
async fn a_name_that_matches_two_columns_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let column = |n| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("Ab", column(1)), ("aB", column(2))]).unwrap();
    write(&folder.path().join("t.parquet"), &batch, 10);
    let report = refusal(&located("select ab from 't.parquet'", folder.path())).await;
    assert!(report.contains("SM-0102") && report.contains("`Ab` or `aB`"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_are_named_as_they_are_written() {
    for (sql, expected) in [
        ("select count(*), sum(n + 1) from odd", &["count(*)", "sum(n + 1)"][..]),
        ("select l_orderkey + 1, 7 from lineitem limit 1", &["l_orderkey + 1", "7"]),
        (
            "select day - interval '1' day, cast(n as double) from odd limit 1",
            &["day - INTERVAL '1' DAY", "n"],
        ),
        (
            "select *, n_regionkey * 2 from nation limit 1",
            &["n_nationkey", "n_name", "n_regionkey", "n_comment", "n_regionkey * 2"],
        ),
        ("select count(*) c, max(n) from odd union all select 1, 2", &["c", "max(n)"]),
        (
            "select double_it(n), \"n\" from odd order by double_it(n) limit 1",
            &["double_it(n)", "n"],
        ),
        ("select upper(s) from odd group by upper(s) order by upper(s) limit 1", &["upper(s)"]),
        ("select distinct n % 3 from odd order by 1", &["n % 3"]),
    ] {
        assert_eq!(header(sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_first_and_describe() {
    let folder = folder();
    let text = table("from 't.parquet' limit 2", &folder).await;
    assert!(text.contains("UserID") && text.contains("n1") && text.lines().count() == 6, "{text}");
    let text = table("describe 't.parquet'", &folder).await;
    for part in ["| column_name | column_type | nullable |", "| UserID      | BIGINT", "| VARCHAR"]
    {
        assert!(text.contains(part), "{text}");
    }
    let text = table("describe select count(*), avg(v) from 't.parquet'", &folder).await;
    assert!(text.contains("count(*)") && text.contains("DOUBLE"), "{text}");
    let report = refusal(&spec("explain analyze select 1", 1)).await;
    assert!(report.contains("EXPLAIN ANALYZE") && report.contains("--profile"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hive_folders_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    for (path, rows) in [
        ("t/year=2023/kind=a b/x.parquet", 2),
        ("t/year=2024/kind=c/x.parquet", 3),
        ("t/year=2024/kind=__HIVE_DEFAULT_PARTITION__/x.parquet", 4),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &batch(rows), 2);
    }
    for (sql, expected) in [
        ("select year, count(*) from 't' group by 1 order by 1", "2023|2 2024|7"),
        ("select count(*) from 't/**/*.parquet' where year = 2023", "2"),
        ("select count(*), sum(v) from 't' where kind is null", "4|6"),
        ("select kind, max(v), min(year + 1) from 't' where kind < 'b' group by kind", "ab|1|2024"),
        ("select count(distinct kind) from 't' where userid >= 0", "2"),
        ("select year from 't' where v = 3", "2024"),
    ] {
        let text = table(sql, &folder).await;
        let rows = text.lines().filter(|line| line.starts_with('|')).skip(1);
        let rows: Vec<String> =
            rows.map(|line| line.replace(' ', "").trim_matches('|').to_owned()).collect();
        assert_eq!(rows.join(" "), expected, "{sql}");
    }
    let text = table("select * from 't' where v = 3", &folder).await;
    assert!(text.contains("| year | kind |"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn dangling_links_and_other_formats_are_reported() {
    let folder = folder();
    std::os::unix::fs::symlink("gone.parquet", folder.path().join("u.parquet")).unwrap();
    let report = refusal(&located("select * from '.'", folder.path())).await;
    for part in ["SM-0105", "u.parquet` is broken", "no gone.parquet"] {
        assert!(report.contains(part), "{report}");
    }
    std::fs::write(folder.path().join("x.orc"), "a,b\n1,2\n".repeat(9)).unwrap();
    let report = refusal(&located("select * from 'x.orc'", folder.path())).await;
    assert!(report.contains("ORC is not read") && !report.contains("truncated"), "{report}");
}

#[tokio::test]
async fn hints_match_the_error() {
    for (sql, parts) in [
        (
            "select abs(n, n, n) from odd",
            &["SM-0103", "`abs` takes 1 argument, but the query gives 3"][..],
        ),
        ("select add_up(n) from odd", &["takes 2 arguments", "one value for each"]),
        ("select country(n) from odd", &["no function `country`", "--udf"]),
        ("select sume(n) from odd", &["did you mean `sum`?"]),
    ] {
        let report = refusal(&spec(sql, 1)).await;
        assert!(parts.iter().all(|part| report.contains(part)), "{sql}: {report}");
        assert!(!report.contains("did you mean `count`"), "{report}");
    }
}
