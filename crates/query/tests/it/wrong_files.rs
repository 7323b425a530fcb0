//! Files that cannot be read: the error names file and line, and memory is bounded.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use snowmelt_query::QuerySpec;
use snowmelt_types::Report;
use tempfile::TempDir;

use crate::formats::{found, large, put, rows};
use crate::runner::{InProcess, answer, failure, located, refusal};

/// The report of a query that fails in planning or while it runs.
async fn report(sql: &str, folder: &Path, workers: u32) -> String {
    let query = QuerySpec { workers, ..located(sql, folder) };
    failure(&query, InProcess::default()).await
}

#[track_caller]
fn check(report: &str, parts: &[&str]) {
    for part in parts {
        assert!(report.contains(part), "{report}\nlacks {part}");
    }
    assert!(report.len() < 2_000, "{} bytes", report.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_value_behind_the_sample_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let text = large();
    let (before, behind) = text.split_at(text.len() / 4 * 3);
    let (line, _) = before.rsplit_once('\n').unwrap();
    let number = line.lines().count() + 1;
    let cases = [
        ("x,y,z", "column `id` is BIGINT, and `x` is not"),
        ("1,2.5,z", "column `n` is BIGINT, and `2.5` is not"),
        ("1,2", "it has 2 values, and the header has 3"),
        ("1,2,3,4", "values, and the header has 3"),
    ];
    for (wrong, why) in cases {
        for name in ["x.csv", "x.csv.gz"] {
            put(&root.join(name), format!("{line}\n{wrong}\n{behind}")).await;
            for workers in [1, 4] {
                let report =
                    report(&format!("select max(id), sum(n) from '{name}'"), root, workers).await;
                check(&report, &["SM-0119", &format!("{name}`, line {number}: "), why]);
            }
        }
    }
    let objects: String = (0..150_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    for (wrong, why) in [
        ("{\"n\":1.5}", "column `n` is BIGINT, and `1.5` is not"),
        ("{\"n\":", "JSON"),
        ("3", "expected {"),
        ("{\"n\":1} {\"n\":1}", "not one object"),
    ] {
        put(&root.join("x.json"), format!("{objects}{wrong}\n{{\"n\":1}}\n")).await;
        for workers in [1, 2] {
            let report = report("select sum(n) from 'x.json'", root, workers).await;
            check(&report, &["SM-0119", "x.json`, line 150001: "]);
            assert!(report.contains(why) || why == "JSON", "{report}");
        }
    }
}

#[tokio::test]
async fn a_wrong_line_of_the_sample_is_refused_by_the_planner() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (name, text, parts) in [
        ("a.csv", &b"a,b\n1,2\n3\n"[..], &["line 3", "it has 1 value, and the header has 2"][..]),
        ("b.csv", b"a,b\n1,\"2\n3", &["line 2", "has no end"]),
        ("c.csv", b"a,b\n\xc3\xa9,\xff\n", &["line 2", "not UTF-8"]),
        ("d.csv", b"\xc3\xa9,\xff\n", &["line 1", "header is not UTF-8"]),
        ("e.csv.gz", b"a\n\"", &["line 2", "has no end"]),
        ("f.json", b"{\"a\":1}\n[]\n", &["line 2", "it is a list"]),
        ("h.json", b"{\"a\":1}\n{\"a\":{}}\n", &["line 2", "`a` is an object or a list"]),
        ("i.json", b"{\"a\":\"\xff\"}\n", &["line 1"]),
    ] {
        put(&root.join(name), text).await;
        let report = refusal(&located(&format!("select * from '{name}'"), root)).await;
        check(&report, &["SM-0119", &format!("{name}`, line"), "--> query:1"]);
        check(&report, parts);
    }
    put(&root.join("twice.csv"), "a,a\n1,2\n").await;
    let report = refusal(&located("select * from 'twice.csv'", root)).await;
    check(&report, &["SM-0106", "two columns named `a`"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["a.csv", "b.json", "c.csv.gz"] {
        std::fs::write(root.join(name), "").unwrap();
        let report = refusal(&located(&format!("select * from '{name}'"), root)).await;
        check(&report, &["SM-0119", name, "there is no column"]);
    }
    put(&root.join("blank.csv.zst"), "\n\n").await;
    let report = refusal(&located("select * from 'blank.csv.zst'", root)).await;
    check(&report, &["there is no column"]);
    for name in ["h.csv", "h.csv.gz", "i.csv"] {
        let text = if name.starts_with('i') { "n,s" } else { "n,s\n" };
        put(&root.join(name), text).await;
        assert_eq!(found(&format!("select count(*), max(s) from '{name}'"), root, 2).await, "|0||");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_compressed_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (name, text) in [
        ("small.csv.gz", "n,s\n1,a\n".to_owned()),
        ("small.json.zst", "{\"n\":1}\n".to_owned()),
        ("large.csv.gz", large()),
        ("large.csv.zst", large()),
    ] {
        let path = put(&root.join(name), text).await;
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
        let report = report(&format!("select max(n) from '{name}'"), root, 2).await;
        check(&report, &["SM-0106", name, "end too early"]);
    }
    std::fs::write(root.join("no.csv.gz"), "n,s\n1,a\n".repeat(9)).unwrap();
    let report = refusal(&located("select * from 'no.csv.gz'", root)).await;
    check(&report, &["SM-0106", "no.csv.gz", "gzip data are damaged"]);
    std::fs::write(root.join("no.csv.zst"), "n,s\n1,a\n".repeat(9)).unwrap();
    let report = refusal(&located("select * from 'no.csv.zst'", root)).await;
    check(&report, &["SM-0106", "no.csv.zst", "zstd data are damaged"]);
}

#[tokio::test]
async fn damaged_arrow_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, why) in [
        ("a.arrow", &b""[..], "too few"),
        ("b.arrow", &b"ARROW1\0\0and no footer"[..], "magic number"),
        ("c.arrow", &b"ARROW1\0\0\xff\xff\xff\x7fARROW1"[..], "footer's length"),
        ("d.arrow", &b"ARROW1\0\0garbage garbage\x08\0\0\0ARROW1"[..], "cannot be read"),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let report = refusal(&located(&format!("select * from '{name}'"), folder.path())).await;
        check(&report, &["SM-0106", name, why]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bomb_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let long = "x".repeat(80 << 20);
    for (name, begin, code) in [
        ("header.csv.gz", "", "header line has more than 1 MiB"),
        (
            "value.csv.gz",
            "n,s\n1,a\n2,",
            "line 3: the record that begins here has more than 64 MiB",
        ),
        ("quoted.csv.zst", "n,s\n1,a\n2,\"", "line 3: the record that begins here has more than"),
        ("value.json.gz", "{\"s\":\"a\"}\n{\"s\":\"", "line 2: the record that begins here has"),
        ("first.json.zst", "{\"s\":\"", "the first object has more than 8 MiB"),
    ] {
        put(&root.join(name), format!("{begin}{long}")).await;
        assert!(std::fs::metadata(root.join(name)).unwrap().len() < 1 << 20);
        let report = report(&format!("select max(s) from '{name}'"), root, 2).await;
        check(&report, &["SM-0119", name, code]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_long_value_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let long = "x".repeat(20 << 20);
    put(&root.join("x.csv"), format!("n,s\n2,b\n1,{long}\n")).await;
    put(&root.join("x.json.gz"), format!("{{\"n\":2}}\n{{\"n\":1,\"s\":\"{long}\"}}\n")).await;
    for workers in [1, 3] {
        let sql = "select sum(n), max(length(s)), count(*) from 'x.csv'";
        assert_eq!(found(sql, root, workers).await, "|3|20971520|2|");
    }
    assert_eq!(found("select sum(n), count(*) from 'x.json.gz'", root, 2).await, "|3|2|");
}

/// The sample of the file has no quotation mark, so it is divided, inside a value.
fn with_a_late_quotation(folder: &TempDir) {
    let lines = "7,plain text\n".repeat(100_000);
    let long = "a line\n".repeat(300_000);
    let text = format!("n,s\n{lines}1,\"{long}\"\n{lines}");
    std::fs::write(folder.path().join("x.csv"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_division_inside_a_value_is_never_answered_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    with_a_late_quotation(&folder);
    let sql = "select count(*), sum(n), max(length(s)) from 'x.csv'";
    assert_eq!(found(sql, folder.path(), 1).await, "|200001|1400001|2100000|");
    let report = report(sql, folder.path(), 4).await;
    check(&report, &["SM-0119", "x.csv`, line"]);
    // With line breaks in quotations in the sample, the file is not divided.
    let lines = "7,\"plain\ntext\"\n".repeat(200_000);
    std::fs::write(folder.path().join("y.csv"), format!("n,s\n{lines}")).unwrap();
    let sql = "select count(*), sum(n), max(length(s)) from 'y.csv'";
    assert_eq!(found(sql, folder.path(), 4).await, "|200000|1400000|10|");
}

/// For any damaged bytes the query gives an answer or an error that is not one of the platform.
#[test]
fn random_damage_gives_an_error_or_an_answer() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let json: String = (0..50).map(|n| format!("{{\"n\":{n},\"s\":[\"{n}\"]}}\n")).collect();
    let csv: String = (0..50).map(|n| format!("{n},\"a{n}\"\n")).collect();
    let csv = format!("n,s\n{csv}");
    let paths = runtime.block_on(async {
        let mut paths = Vec::new();
        for (name, text) in [
            ("a.csv", &csv),
            ("b.csv.gz", &csv),
            ("c.csv.zst", &csv),
            ("d.json", &json),
            ("e.json.gz", &json),
        ] {
            paths.push(put(&root.join(name), text).await);
        }
        paths
    });
    let arrow = root.join("f.arrow");
    let mut writer = arrow::ipc::writer::FileWriter::try_new(
        std::fs::File::create(&arrow).unwrap(),
        &rows(0..1).schema(),
    )
    .unwrap();
    writer.write(&rows(0..50)).unwrap();
    writer.finish().unwrap();
    for path in paths.into_iter().chain([arrow]) {
        let good = std::fs::read(&path).unwrap();
        let damage = prop::collection::vec((0..good.len(), any::<u8>()), 1..4);
        let mut runner =
            TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
        let name = path.file_name().unwrap().to_str().unwrap();
        runner
            .run(&damage, |damage| {
                let mut bytes = good.clone();
                for (at, byte) in damage {
                    bytes[at] = byte;
                }
                std::fs::write(&path, bytes).unwrap();
                let query = located(&format!("select * from '{name}'"), root);
                if let Err(error) = runtime.block_on(answer(&query, Arc::default())) {
                    let report = error.report();
                    let known = ["SM-0106", "SM-0119"].contains(&report.code.as_str());
                    prop_assert!(known, "{}: {}", name, report);
                }
                Ok(())
            })
            .unwrap();
    }
}
