//! Overflow: an error in workers and in the driver, never a wrapped number.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, UInt64Array};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_query::plan;
use tempfile::TempDir;

use crate::data::write;
use crate::runner::{InProcess, answer, failure, located, spec};

/// `t.parquet` with two groups: the sum of `a` overflows, the sum of `b` does not.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let big = i64::MAX - 1;
    let columns: [(&str, ArrayRef); 6] = [
        ("g", Arc::new(arrow::array::StringArray::from(vec!["a", "a", "b", "b", "b"]))),
        ("n", Arc::new(Int64Array::from(vec![big, 2, big, 2, -5]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 1, u64::MAX - 1, 1, 0]))),
        ("i", Arc::new(Int32Array::from(vec![i32::MAX, i32::MIN, 1, 2, 3]))),
        ("least", Arc::new(Int64Array::from(vec![i64::MIN; 5]))),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![10_i128.pow(38) - 1, 1, 5, 6, 7])
                    .with_precision_and_scale(38, 0)
                    .unwrap(),
            ),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write(&folder.path().join("t.parquet"), &batch, 2);
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflow_is_an_error() {
    let folder = folder();
    for (sql, fits) in [
        ("n + 10", "BIGINT"),
        ("n * 2", "BIGINT"),
        ("-2 - n * 1 - 10", "BIGINT"),
        ("-least", "BIGINT"),
        ("u + u", "BIGINT UNSIGNED"),
        ("u - u - 1::bigint unsigned", "BIGINT UNSIGNED"),
        ("i + i", "INTEGER"),
        ("sum(n)", "BIGINT"),
        ("sum(u)", "BIGINT UNSIGNED"),
        ("sum(n + 1)", "BIGINT"),
        ("sum(distinct u)", "BIGINT UNSIGNED"),
        ("sum(d)", "DECIMAL(38, 0)"),
        ("max(n) * 3", "BIGINT"),
        ("sum(n) over (order by g)", "BIGINT"),
        ("sum(n) filter (where g = 'a') over ()", "BIGINT"),
        ("9223372036854775807 + 1", "BIGINT"),
    ] {
        let sql = format!("select {sql} from 't.parquet'");
        let report = failure(&located(&sql, folder.path()), InProcess::default()).await;
        let expected = format!("does not fit {fits}\nhint: compute in a wider type");
        assert!(report.contains("SM-0109") && report.contains(&expected), "{sql}: {report}");
    }
    for sql in [
        "select g, sum(n) from 't.parquet' group by g",
        "select g, sum(d) from 't.parquet' group by g",
        "select n from 't.parquet' where n + 10 > 0",
        "select n from 't.parquet' order by n * 3",
        "select sum(n) from 't.parquet' group by n + 10",
    ] {
        let report = failure(&located(sql, folder.path()), InProcess::default()).await;
        assert!(report.contains("SM-0109") && report.contains("does not fit"), "{sql}: {report}");
    }
}

async fn table(sql: &str, folder: &TempDir) -> String {
    let (batches, _) = answer(&located(sql, folder.path()), Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intermediate_sums_may_overflow() {
    let folder = folder();
    // The sum of two values of `b` overflows, the sum of all three does not.
    for sql in [
        "select sum(n) v from 't.parquet' where g = 'b'",
        "select sum(n) v from 't.parquet' where g = 'b' group by g",
        "select sum(distinct n) v from 't.parquet' where g = 'b'",
        "select sum(n) over (rows between unbounded preceding and unbounded following) v from 't.parquet' where g = 'b' limit 1",
    ] {
        let text = table(sql, &folder).await;
        assert!(text.contains(&(i64::MAX - 4).to_string()), "{sql}\n{text}");
    }
    let text = table("select sum(n::decimal(38, 0)) v from 't.parquet'", &folder);
    assert!(text.await.contains("18446744073709551611"), "sums in a wider type");
}

/// `t.parquet`: a first half of large numbers and a second half of their opposites, so that the sum
/// of either half does not fit. Of `d` only three rows have a value.
fn halves() -> TempDir {
    const ROWS: i64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let number = |row: i64| if row < ROWS / 2 { i64::MAX - row } else { row - ROWS / 2 - i64::MAX };
    let large = 6 * 10_i128.pow(37);
    let decimal = |row: i64| match row {
        0 | 1 => Some(large),
        row => (row == ROWS - 1).then_some(-large),
    };
    let columns: [(&str, ArrayRef); 3] = [
        ("g", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % 2)))),
        ("n", Arc::new(Int64Array::from_iter_values((0..ROWS).map(number)))),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter((0..ROWS).map(decimal))
                    .with_precision_and_scale(38, 0)
                    .unwrap(),
            ),
        ),
    ];
    write(&folder.path().join("t.parquet"), &RecordBatch::try_from_iter(columns).unwrap(), 2_000);
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_sums_of_workers_may_overflow() {
    let folder = halves();
    let large = format!("6{}", "0".repeat(37));
    for (sql, sums) in [
        ("select sum(n) v from 't.parquet'", vec!["0"]),
        ("select g, sum(n) v from 't.parquet' group by g order by g", vec!["0", "0"]),
        ("select sum(d) v from 't.parquet' where n <> 1", vec![large.as_str()]),
        (
            "select g, sum(d) v from 't.parquet' where n <> 1 group by g order by g",
            vec![large.as_str(), "0"],
        ),
    ] {
        let query = located(sql, folder.path());
        let tasks = plan(&query).await.unwrap().tasks().unwrap();
        assert_eq!(tasks.iter().filter(|task| !task.files.is_empty()).count(), 2, "{sql}");
        let text = table(sql, &folder).await;
        let last =
            |line: &str| line.trim_end_matches([' ', '|']).rsplit(' ').next().map(str::to_owned);
        let found: Vec<String> = text.lines().skip(3).filter_map(last).collect();
        assert_eq!(found[..sums.len()], sums, "{sql}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_named_as_the_operators_are_written() {
    let (batches, _) =
        answer(&spec("select n + 1, -n, sum(n * 2) over () from odd limit 1", 2), Arc::default())
            .await
            .unwrap();
    let schema = batches[0].schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert!(names.iter().all(|name| !name.contains("checked")), "{names:?}");
}
