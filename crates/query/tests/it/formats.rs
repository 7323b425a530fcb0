//! Tables of CSV, JSON and Arrow files: the same rows as from Parquet, in every form of a location.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::util::pretty::pretty_format_batches;
use bytes::Bytes;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use futures::{StreamExt, TryStreamExt, stream};
use snowmelt_query::plan;
use snowmelt_types::Report;

use crate::data;
use crate::runner::{answer, located, refusal, run_failure};

/// Rows of the types that all formats have.
pub fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let some = |i: &i64| i % 7 != 3;
    let numbers = || range.clone().map(|i| some(&i).then_some(i));
    let text =
        |i: i64| format!("wört \"{}\", {}", i % 13, if i % 5 == 0 { "two\nlines" } else { "" });
    let s: StringArray = numbers().map(|n| n.map(text)).collect();
    let x: Float64Array = numbers().map(|n| n.map(|n| n as f64 + 0.25)).collect();
    let yes: BooleanArray = numbers().map(|n| n.map(|n| n % 2 == 0)).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(range.clone())) as ArrayRef, true),
        ("n", Arc::new(Int64Array::from_iter(numbers())), true),
        ("x", Arc::new(x), true),
        ("yes", Arc::new(yes), true),
        ("s", Arc::new(s), true),
    ])
    .unwrap()
}

/// Compresses a text as the extension of its path says, and writes it.
pub async fn put(path: &Path, text: impl AsRef<[u8]>) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let kind = match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => FileCompressionType::GZIP,
        Some("zst") => FileCompressionType::ZSTD,
        _ => FileCompressionType::UNCOMPRESSED,
    };
    let text = Bytes::copy_from_slice(text.as_ref());
    let packed = kind.convert_to_compress_stream(stream::iter([Ok(text)]).boxed()).unwrap();
    let packed: Vec<Bytes> = packed.try_collect().await.unwrap();
    std::fs::write(path, packed.concat()).unwrap();
    path.to_owned()
}

fn text(batch: &RecordBatch, path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let name = path.to_str().unwrap();
    if name.contains("json") {
        let mut writer = arrow::json::LineDelimitedWriter::new(&mut bytes);
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        return bytes;
    }
    let delimiter = if name.contains(".tsv") { b'\t' } else { b',' };
    let mut writer = arrow::csv::WriterBuilder::new().with_delimiter(delimiter).build(&mut bytes);
    writer.write(batch).unwrap();
    drop(writer);
    bytes
}

fn arrow(path: &Path, batches: &[RecordBatch], compression: Option<CompressionType>) {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

/// The rows of an answer as text.
pub async fn found(sql: &str, folder: &Path, workers: u32) -> String {
    let query = snowmelt_query::QuerySpec { workers, ..located(sql, folder) };
    let (batches, _) = answer(&query, Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{workers} workers: {sql}: {}", error.report()));
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(1);
    rows.map(|row| row.replace(' ', "")).collect::<Vec<_>>().join("\n")
}

const ALL: &str = "select count(*), sum(id), sum(n), sum(x), count(n), count(s),
    sum(case when yes then 1 else 0 end), min(s), max(s), count(distinct s) from ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_and_compression_gives_the_rows_of_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    data::write(&root.join("x.parquet"), &rows(0..5_000), 700);
    let expected = found(&format!("{ALL} 'x.parquet'"), root, 2).await;
    let ordered = "order by id desc limit 20";
    let last = found(&format!("select * from 'x.parquet' {ordered}"), root, 2).await;
    let mut names: Vec<String> = Vec::new();
    for end in ["csv", "tsv", "json", "ndjson", "jsonl"] {
        for packed in ["", ".gz", ".zst"] {
            let path = root.join(format!("x.{end}{packed}"));
            put(&path, text(&rows(0..5_000), &path)).await;
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    let parts = [rows(0..3_000), rows(3_000..3_000), rows(3_000..5_000)];
    for (name, compression) in [
        ("x.arrow", None),
        ("x.feather", Some(CompressionType::LZ4_FRAME)),
        ("x.ipc", Some(CompressionType::ZSTD)),
    ] {
        arrow(&root.join(name), &parts, compression);
        names.push(name.to_owned());
    }
    for name in names {
        for workers in [1, 3] {
            assert_eq!(found(&format!("{ALL} '{name}'"), root, workers).await, expected, "{name}");
        }
        let count = found(&format!("select count(*) from '{name}'"), root, 3).await;
        assert_eq!(count, "|5000|", "{name}");
        let found = found(&format!("select * from '{name}' {ordered}"), root, 3).await;
        assert_eq!(found, last, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locations_are_files_folders_globs_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("t/a.csv"), "n,s\n1,a\n2,b\n").await;
    put(&root.join("t/b.csv.gz"), "n,s\n3,c\n").await;
    put(&root.join("t/deep/c.csv.zst"), "n,s\n4,d\n").await;
    put(&root.join("t/_hidden.csv"), "n,s\n5,e\n").await;
    for (from, sum) in [
        ("'t'", "|10|"),
        ("'t/*.csv'", "|3|"),
        ("'t/*.csv*'", "|6|"),
        ("'t/**/*.csv.*'", "|7|"),
        ("'t/_hidden.csv'", "|5|"),
        ("\"t/a.csv\"", "|3|"),
    ] {
        assert_eq!(found(&format!("select sum(n) from {from}"), root, 2).await, sum, "{from}");
    }
    let mut query = located("select sum(n), max(shout(s)) from things", root);
    query.tables.insert("things".to_owned(), "t/*.csv".to_owned());
    let (batches, _) = answer(&query, Arc::default()).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    assert!(text.contains("| 3 ") && text.contains("B!"), "{text}");
    let explained = found("explain select sum(n) from 't'", root, 2).await;
    assert!(explained.contains("CsvScan:3filesin"), "{explained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_with_keys_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("t/year=2023/kind=a/x.json"), "{\"n\":1}\n{\"n\":2}\n").await;
    put(&root.join("t/year=2024/kind=b/y.json.gz"), "{\"n\":10}\n").await;
    let sql = "select year, kind, sum(n) from 't' group by all order by 1";
    assert_eq!(found(sql, root, 2).await, "|2023|a|3|\n|2024|b|10|");
    assert_eq!(found("select sum(n) from 't' where year > 2023", root, 2).await, "|10|");
    assert_eq!(found("select count(*) from 't' where kind = 'a'", root, 2).await, "|2|");
    // Only the files whose folders match are read.
    for (filter, files, rows) in [
        ("year > 2023", 1, "|1|"),
        ("year = 2023 and n = 1", 1, "|1|"),
        ("upper(kind) = 'B' or year = 2023", 2, "|3|"),
        ("double_it(year) > 0", 2, "|3|"),
        ("year > n", 2, "|3|"),
        ("year = 1999", 0, "|0|"),
        ("1 / (year - 2023) = 1", 2, ""),
    ] {
        let sql = format!("select count(*) from 't' where {filter}");
        let planned = plan(&located(&sql, root)).await.unwrap();
        assert_eq!(planned.files().unwrap().len(), files, "{sql}");
        if !rows.is_empty() {
            assert_eq!(found(&sql, root, 2).await, rows, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_with_different_columns_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("c/a.csv"), "n,s,zip,day\n1,a,123,2024-01-01\n2,,456,2024-01-02\n").await;
    put(&root.join("c/b.csv.gz"), "zip,only,n\n00A,true,2.5\n,,3\n").await;
    put(&root.join("c/empty.csv"), "").await;
    put(&root.join("c/header.csv"), "n,other\n").await;
    put(&root.join("j/a.json"), "{\"n\":1,\"o\":{\"x\":1},\"m\":1}\n{\"s\":\"a\"}\n").await;
    put(&root.join("j/b.json"), "{\"o\":{\"y\":[1]},\"n\":0.5,\"m\":\"z\"}\n").await;
    put(&root.join("j/c.json.zst"), "").await;
    for (sql, expected) in [
        ("select sum(n), max(s), count(s), count(only) from 'c'", "|8.5|a|1|1|"),
        ("select string_agg(zip, '-' order by zip) from 'c'", "|00A-123-456|"),
        ("select count(*), max(day), count(other) from 'c'", "|4|2024-01-02|0|"),
        ("select sum(n), max(s), sum(o['x']), count(*) from 'j'", "|1.5|a|1|3|"),
        ("select o['y'][1], m from 'j' where n < 1", "|1|z|"),
    ] {
        for workers in [1, 3] {
            assert_eq!(found(sql, root, workers).await, expected, "{sql}");
        }
    }
    std::fs::create_dir(root.join("a")).unwrap();
    let one = RecordBatch::try_from_iter([
        ("n", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef),
        ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
    ]);
    let other = RecordBatch::try_from_iter([
        ("s", Arc::new(LargeStringArray::from(vec!["c"])) as ArrayRef),
        ("n", Arc::new(Int64Array::from(vec![1 << 40]))),
        ("only", Arc::new(BooleanArray::from(vec![true]))),
    ]);
    arrow(&root.join("a/a.arrow"), &[one.unwrap()], None);
    arrow(&root.join("a/b.arrow"), &[other.unwrap()], None);
    let sql = "select sum(n), string_agg(s, '' order by s), count(only), count(*) from 'a'";
    assert_eq!(found(sql, root, 3).await, "|1099511627779|abc|1|3|");
    let wrong = RecordBatch::try_from_iter([("n", Arc::new(StringArray::from(vec!["x"])) as _)]);
    arrow(&root.join("a/c.arrow"), &[wrong.unwrap()], None);
    let report = refusal(&located("select * from 'a'", root)).await;
    assert!(report.contains("SM-0106") && report.contains("column `n` is Int64 in"), "{report}");
    put(&root.join("j/d.json"), "{\"o\":1}\n").await;
    let report = refusal(&located("select * from 'j'", root)).await;
    assert!(report.contains("SM-0106") && report.contains("`o` is an object"), "{report}");
    assert!(report.contains("j/d.json"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_and_names_of_csv_columns() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let text = "\u{feff}\"a,b\",,When,at,code,none\r\n\
        1,x,2024-01-02,2024-01-02T03:04:05Z,007,\r\n\
        -2,\"q\"\"q\",2024-12-31,2024-01-02 03:04:05+01:00,8,\r\n";
    put(&root.join("x.csv"), text).await;
    let types = "|a,b|BIGINT|true|\n|column1|VARCHAR|true|\n|When|DATE|true|\n\
        |at|TIMESTAMPWITHTIMEZONE|true|\n|code|VARCHAR|true|\n|none|VARCHAR|true|";
    assert_eq!(found("describe 'x.csv'", root, 1).await, types);
    let sql = "select sum(\"a,b\"), max(column1), max(\"When\"), count(none) from 'x.csv'";
    assert_eq!(found(sql, root, 1).await, "|-1|x|2024-12-31|0|");
    let sql = "select \"code\", date_part('hour', at) from 'x.csv' order by 1";
    assert_eq!(found(sql, root, 1).await, "|007|3|\n|8|2|");
    put(&root.join("big.json"), "{\"n\":9223372036854775807}\n{\"n\":18446744073709551615}\n")
        .await;
    let sql = "select max(n) from 'big.json'";
    assert_eq!(found(sql, root, 1).await, "|18446744073709551615|");
}

#[tokio::test]
async fn a_table_has_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("t/a.csv"), "n\n1\n").await;
    put(&root.join("t/b.csv"), "n\n1\n").await;
    put(&root.join("t/c.json"), "{\"n\":1}\n").await;
    put(&root.join("t/notes.txt"), "x").await;
    for from in ["'t'", "'t/*.[cj]s*'"] {
        let report = refusal(&located(&format!("select * from {from}"), root)).await;
        assert!(report.contains("SM-0118") && report.contains("and 1 more"), "{report}");
        assert!(report.contains("CSV (`") && report.contains("JSON (`c.json`)"), "{report}");
    }
    assert_eq!(found("select count(*) from 't/*.csv'", root, 1).await, "|2|");
    // Beside Parquet files other files are not data.
    data::write(&root.join("t/d.parquet"), &rows(0..10), 10);
    assert_eq!(found("select count(*) from 't'", root, 1).await, "|10|");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_csv_file_that_changes_after_planning_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder.path().join("x.csv"), "n\n1\n").await;
    let query = located("select sum(n) from 'x.csv'", folder.path());
    let planned = plan(&query).await.unwrap();
    put(&path, "n\n2\n3\n").await;
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116") && report.contains("x.csv"), "{report}");
}

/// About 4 MiB, without quotation marks.
pub fn large() -> String {
    let line = |n: i64| format!("{n},{},some text of row {n}\n", n * 7 % 1000);
    let lines = (0..110_000).map(line).collect::<String>();
    format!("id,n,s\n{lines}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_divided_between_workers() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("x.csv"), large()).await;
    put(&root.join("x.csv.gz"), large()).await;
    let object = |line: &str| {
        let values: Vec<&str> = line.split(',').collect();
        format!("{{\"id\":{},\"n\":{},\"s\":\"{}\"}}\n", values[0], values[1], values[2])
    };
    put(&root.join("x.json"), large().lines().skip(1).map(object).collect::<String>()).await;
    let sql = "select count(*), count(distinct id), sum(id), sum(n), min(s), max(s) from ";
    let expected = found(&format!("{sql} 'x.csv.gz'"), root, 1).await;
    assert!(expected.starts_with("|110000|110000|6049945000|"), "{expected}");
    for name in ["x.csv", "x.json", "x.csv.gz"] {
        for workers in [1, 2, 3, 8] {
            let found = found(&format!("{sql} '{name}'"), root, workers).await;
            assert_eq!(found, expected, "{name}, {workers} workers");
        }
        let query = snowmelt_query::QuerySpec {
            workers: 3,
            ..located(&format!("select max(s) from '{name}'"), root)
        };
        let tasks = plan(&query).await.unwrap().tasks().unwrap().len();
        assert_eq!(tasks, if name.ends_with("gz") { 1 } else { 3 }, "{name}");
        // Whether a line break ends a record is known only when all before it is read.
        let early = format!("select id from '{name}' where n >= 0 limit 3");
        assert_eq!(found(&early, root, 3).await, "|0|\n|1|\n|2|");
        assert_eq!(plan(&located(&early, root)).await.unwrap().tasks().unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_batches_of_arrow_are_divided_between_workers() {
    let folder = tempfile::tempdir().unwrap();
    let parts: Vec<_> = (0..10).map(|part| rows(part * 20_000..(part + 1) * 20_000)).collect();
    arrow(&folder.path().join("x.arrow"), &parts, None);
    let sql = "select count(*), sum(id), max(s) from 'x.arrow'";
    let expected = found(sql, folder.path(), 1).await;
    assert!(expected.starts_with("|200000|19999900000|"), "{expected}");
    for workers in [2, 5, 20] {
        assert_eq!(found(sql, folder.path(), workers).await, expected);
    }
    let query = snowmelt_query::QuerySpec { workers: 5, ..located(sql, folder.path()) };
    assert_eq!(plan(&query).await.unwrap().tasks().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_can_be_combined() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("x.csv"), "n\n1\n2\n").await;
    put(&folder.path().join("y.json"), "{\"n\":3}\n").await;
    let sql = "select sum(n) from (select n from 'x.csv' union all select n from 'y.json')";
    assert_eq!(found(sql, folder.path(), 2).await, "|6|");
    let udf = "select sum(double_it(n)) from 'x.csv' where double_it(n) > 2";
    assert_eq!(found(udf, folder.path(), 2).await, "|4|");
}
