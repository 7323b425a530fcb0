//! Locations in every form, and errors of locations and files.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use snowmelt_query::plan;
use snowmelt_types::Report;
use tempfile::TempDir;

use crate::data::write;
use crate::runner::{InProcess, answer, failure, located, refusal, run_failure};
use crate::udfs::ACTION;

fn numbers(rows: i64) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("s{n}"))));
    RecordBatch::try_from_iter([("n", n), ("s", s)]).unwrap()
}

/// A folder with two good files in `t`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("t")).unwrap();
    for name in ["a.parquet", "b.parquet"] {
        write(&folder.path().join("t").join(name), &numbers(5_000), 1_000);
    }
    folder
}

async fn count(from: &str, folder: &Path) -> String {
    let sql = format!("select count(*) c, sum(n) s from {from} where s is not null");
    let (batches, _) = answer(&located(&sql, folder), Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {}", error.report()));
    let text = pretty_format_batches(&batches).unwrap().to_string();
    text.lines().nth(3).unwrap().replace(' ', "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locations_are_quoted_in_from() {
    let folder = folder();
    let root = folder.path();
    let both = "|10000|24995000|";
    for from in ["'t/*.parquet'", "\"t/*.parquet\"", "'t/'", "'./t'", "'t/[ab].parquet'"] {
        assert_eq!(count(from, root).await, both, "{from}");
    }
    let absolute = format!("'{}/t/*.parquet' as x", root.display());
    assert_eq!(count(&absolute, root).await, both);
    assert_eq!(count("'t/a.parquet'", root).await, "|5000|12497500|");
    let odd = root.join("ö d d%20 #1");
    std::fs::create_dir(&odd).unwrap();
    write(&odd.join("x y.parquet"), &numbers(10), 100);
    assert_eq!(count("'ö d d%20 #1/*.parquet'", root).await, "|10|45|");
}

#[tokio::test]
async fn missing_and_empty_locations_are_reported() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("none")).unwrap();
    std::fs::write(folder.path().join("none/notes.txt"), "x").unwrap();
    for (from, code) in [
        ("'gone/*.parquet'", "SM-0105"),
        ("'gone.parquet'", "SM-0105"),
        ("'none'", "SM-0104"),
        ("'none/*.parquet'", "SM-0104"),
        ("'ftp://host/x'", "SM-0105"),
    ] {
        let report = refusal(&located(&format!("select * from {from}"), folder.path())).await;
        assert!(report.contains(code), "{report}");
        assert!(report.contains("\n   |                 ^"), "{report}");
    }
}

#[tokio::test]
async fn damaged_footers_name_their_file() {
    let folder = folder();
    let good = std::fs::read(folder.path().join("t/b.parquet")).unwrap();
    let path = folder.path().join("t/b.parquet");
    let cases: [Vec<u8>; 5] = [
        Vec::new(),
        b"PAR1".to_vec(),
        good[..good.len() / 2].to_vec(),
        good[..good.len() - 1].to_vec(),
        b"a,b\n1,2\n".repeat(1000),
    ];
    for bytes in cases {
        std::fs::write(&path, bytes).unwrap();
        let report = refusal(&located("select * from 't'", folder.path())).await;
        assert!(report.contains("SM-0106") && report.contains("t/b.parquet"), "{report}");
    }
}

#[tokio::test]
async fn files_with_incompatible_schemas_are_refused() {
    let folder = folder();
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let other = RecordBatch::try_from_iter([("n", words)]).unwrap();
    write(&folder.path().join("t/c.parquet"), &other, 100);
    let report = refusal(&located("select * from 't'", folder.path())).await;
    assert!(report.contains("SM-0106") && report.contains("column `n` is Int64 in"), "{report}");
    assert!(report.contains("t/a.parquet") && report.contains("Utf8 in"), "{report}");
    assert!(report.contains("t/c.parquet"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_different_writers_are_one_table() {
    use arrow::array::*;
    let folder = tempfile::tempdir().unwrap();
    let instant = 1_700_000_000_123_i64;
    let lists = |values: Vec<i32>| {
        ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([
            Some(values.into_iter().map(Some).collect::<Vec<_>>()),
            None,
        ])
    };
    let one: [(&str, ArrayRef); 6] = [
        ("n", Arc::new(Int32Array::from(vec![1, 2]))),
        ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("t", Arc::new(TimestampMillisecondArray::from(vec![instant, instant]))),
        ("x", Arc::new(Float32Array::from(vec![0.5, 1.5]))),
        ("l", Arc::new(lists(vec![1, 2]))),
        ("only", Arc::new(Int64Array::from(vec![7, 8]))),
    ];
    let other: [(&str, ArrayRef); 5] = [
        ("s", Arc::new(LargeStringArray::from(vec!["c", "d"]))),
        ("n", Arc::new(Int64Array::from(vec![1 << 40, 2 << 40]))),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![instant * 1000, instant * 1000 + 1]))),
        ("x", Arc::new(Int64Array::from(vec![3, 4]))),
        (
            "l",
            Arc::new(LargeListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>([
                Some(vec![Some(1_i64 << 40)]),
                None,
            ])),
        ),
    ];
    for (name, batch) in [
        ("a.parquet", RecordBatch::try_from_iter(one).unwrap()),
        ("b.parquet", RecordBatch::try_from_iter(other).unwrap()),
    ] {
        write(&folder.path().join(name), &batch, 1);
    }
    for (sql, expected) in [
        ("select sum(n), max(n), min(n) from '.'", "3298534883331|2199023255552|1"),
        ("select string_agg(s, '' order by s) from '.'", "abcd"),
        ("select count(distinct t), count(*) from '.' where t >= timestamp '2023-01-01'", "2|4"),
        ("select count(*) from '.' where n > 2", "2"),
        ("select count(*) from '.' where n = 2 and s = 'b' and x < 2", "1"),
        ("select count(*) from '.' where t > timestamp '2023-11-14 22:13:20.123'", "1"),
        ("select sum(x), sum(only), count(only) from '.'", "9.0|15|2"),
        ("select sum(l[1]), sum(l[2]) from '.'", "1099511627777|2"),
    ] {
        let (batches, _) = answer(&located(sql, folder.path()), Arc::default())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {}", error.report()));
        let text = pretty_format_batches(&batches).unwrap().to_string();
        let row = text.lines().nth(3).unwrap().replace(' ', "");
        assert_eq!(row.trim_matches('|'), expected, "{sql}");
    }
}

#[tokio::test]
async fn a_duplicate_column_of_a_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let field = || arrow::datatypes::Field::new("n", arrow::datatypes::DataType::Int64, true);
    let schema = arrow::datatypes::Schema::new(vec![field(), field()]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![column(), column()]).unwrap();
    write(&folder.path().join("a.parquet"), &batch, 1);
    let report = refusal(&located("select * from 'a.parquet'", folder.path())).await;
    assert!(report.contains("SM-0106") && report.contains("two columns named `n`"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_pages_name_their_file() {
    let folder = folder();
    let path = folder.path().join("t/b.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8..400].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let query = located("select sum(n), max(s) from 't/b.parquet'", folder.path());
    let report = failure(&query, InProcess::default()).await;
    assert!(report.contains("SM-0106") && report.contains("t/b.parquet"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_after_planning_is_refused() {
    let folder = folder();
    let query = located("select sum(n) from 't'", folder.path());
    let planned = plan(&query).await.unwrap();
    write(&folder.path().join("t/b.parquet"), &numbers(77), 10);
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116") && report.contains("t/b.parquet"), "{report}");
}

/// The new file has the same size and time, but is another file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_replaced_after_planning_is_refused() {
    let folder = folder();
    let old = folder.path().join("t/b.parquet");
    let new = folder.path().join("new");
    let query = located("select sum(n) from 't'", folder.path());
    let planned = plan(&query).await.unwrap();
    std::fs::copy(&old, &new).unwrap();
    let times = std::fs::FileTimes::new().set_modified(old.metadata().unwrap().modified().unwrap());
    std::fs::File::options().append(true).open(&new).unwrap().set_times(times).unwrap();
    std::fs::rename(&new, &old).unwrap();
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116"), "{report}");
}

/// The UDF that the query calls writes to the file, in the middle of the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_written_to_while_it_is_read_fails_the_query() {
    let folder = folder();
    let path = folder.path().join("t/a.parquet");
    let query = located("select count(runs_action(n)) from 't/a.parquet'", folder.path());
    let planned = plan(&query).await.unwrap();
    *ACTION.lock().unwrap() = Some(Box::new(move || {
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"more").unwrap();
    }));
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116") && report.contains("t/a.parquet"), "{report}");
}

/// For any damaged bytes the query gives an answer or names the damaged file. It never panics.
#[test]
fn random_damage_gives_an_error_or_an_answer() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder.path().join("x.parquet"), &numbers(300), 100);
    let good = std::fs::read(&path).unwrap();
    let damage = prop::collection::vec((0..good.len(), any::<u8>()), 1..4);
    let mut runner =
        TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    runner
        .run(&damage, |damage| {
            let mut bytes = good.clone();
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            std::fs::write(&path, bytes).unwrap();
            let query = located("select count(*), sum(n), max(s) from 'x.parquet'", folder.path());
            if let Err(error) = runtime.block_on(answer(&query, Arc::default())) {
                let report = error.report();
                prop_assert!(report.code != "SM-0901", "{}", report);
            }
            Ok(())
        })
        .unwrap();
}
