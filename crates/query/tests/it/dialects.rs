//! CSV files as other programs write them: recognised, or as `read_csv` says.

use std::path::Path;

use crate::formats::{found, put};
use crate::runner::{InProcess, failure, located, refusal};

fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(unit).collect()
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

const ROWS: &str = "|1|häß;lich, \"x\"|2.5|\n|2||3.0|";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dialect_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let comma = "id,name,x\n1,\"häß;lich, \"\"x\"\"\",2.5\n2,,3\n";
    let semicolon = "id;name;x\n1;\"häß;lich, \"\"x\"\"\";2.5\n2;;3\n";
    let files: [(&str, Vec<u8>); 12] = [
        ("comma.csv", comma.into()),
        ("semicolon.csv", semicolon.into()),
        ("semicolon.csv.gz", semicolon.into()),
        (
            "tab.csv",
            comma.replace("\",", "\"\t").replace(",", "\t").replace(";lich\t", ";lich,").into(),
        ),
        ("pipe.tsv", semicolon.replace(';', "|").replace("häß|", "häß;").into()),
        (
            "apostrophe.csv",
            "id;name;x\n1;'häß;lich, \u{22}x\u{22}';2.5\n".replace('\u{22}', "").into(),
        ),
        ("escaped.csv", comma.replace("\"\"x\"\"", "\\\"x\\\"").into()),
        ("latin1.csv", latin1(comma)),
        ("utf16le.csv", utf16(comma, u16::to_le_bytes)),
        ("utf16be.csv.zst", utf16(semicolon, u16::to_be_bytes)),
        ("marked.csv", format!("\u{feff}{semicolon}").into()),
        ("returns.csv", comma.replace('\n', "\r").into()),
    ];
    for (name, bytes) in files {
        put(&root.join(name), bytes).await;
        let expected = match name {
            "apostrophe.csv" => "|1|häß;lich,x|2.5|",
            _ => ROWS,
        };
        let expected = expected.replace(' ', "");
        for workers in [1, 2] {
            let sql = format!("select id, name, x from '{name}' order by id");
            assert_eq!(found(&sql, root, workers).await, expected, "{name}");
            let count = found(&format!("select count(*) from '{name}'"), root, workers).await;
            assert_eq!(count, format!("|{}|", expected.lines().count()), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_a_header_keeps_its_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("x.csv"), "1;a\n2;b\n3;c\n").await;
    let sql = "select sum(column0), string_agg(column1, '' order by column1) from 'x.csv'";
    assert_eq!(found(sql, root, 2).await, "|6|abc|");
    let types = "|column0|BIGINT|true|\n|column1|VARCHAR|true|";
    assert_eq!(found("describe 'x.csv'", root, 1).await, types);
    // Parts of one table, as Hadoop writes them.
    put(&root.join("t/part-0.csv"), "1,a\n2,b\n").await;
    put(&root.join("t/part-1.csv"), "3,c\n").await;
    assert_eq!(found("select sum(column0), count(*) from 't'", root, 2).await, "|6|3|");
    put(&root.join("t/part-2.csv"), "id,name\n4,d\n").await;
    let report = refusal(&located("select * from 't'", root)).await;
    assert!(
        report.contains("SM-0106") && report.contains("part-2.csv` seems to begin"),
        "{report}"
    );
    let sql = "select count(*) from read_csv('t', header => false)";
    assert_eq!(found(sql, root, 2).await, "|5|");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_say_how_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("x.txt"), "made by a machine\n;\nn:s\n1:\"a\n2:b\n").await;
    put(&root.join("y.csv"), "a,b\nc,d\n").await;
    put(&root.join("z.dat.gz"), b"n,s\n1,\xe9\n").await;
    put(&root.join("o.json.gz"), "{\"n\":5}\n").await;
    put(&root.join("e.csv"), "s,n\n\"50% \\\"\",1\n\"C:\\new\",2\n").await;
    for (from, expected) in [
        (
            "select sum(n), min(s) from read_csv('x.txt', delim => ':', quote => '', skip => 2)",
            "|3|\"a|",
        ),
        ("select count(*) from read_csv('y.csv', header => false)", "|2|"),
        ("select count(*) from read_csv('y.csv', header = true) t", "|1|"),
        ("select t.column1 from read_csv('y.csv', header => false) t where column0 = 'a'", "|b|"),
        ("select s, n + 1 from read_csv('z.dat.gz')", "|é|2|"),
        ("select n || '0' from read_csv('z.dat.gz', all_varchar => true)", "|10|"),
        ("select n from read_json('o.json.gz')", "|5|"),
        ("select s from read_csv('e.csv', escape => '\\') order by n", "|50%\"|\n|C:\\new|"),
        ("select count(*) from read_csv('y.csv') a, read_csv('y.csv', header => false) b", "|2|"),
    ] {
        for workers in [1, 2] {
            assert_eq!(found(from, root, workers).await, expected, "{from}");
        }
    }
    for (from, parts) in [
        ("read_csv('none.csv')", ["SM-0105", "--> query:1"]),
        ("read_parquet('y.csv')", ["SM-0110", "is a file of CSV"]),
        ("read_csv('o.json.gz')", ["SM-0110", "is a file of JSON"]),
    ] {
        let report = refusal(&located(&format!("select * from {from}"), root)).await;
        assert!(parts.iter().all(|part| report.contains(part)), "{report}");
    }
}

/// More than 2 MiB: divided between workers if that is possible.
fn large(line: impl Fn(usize) -> String) -> String {
    (0..90_000).map(|n| format!("{}\n", line(n))).collect()
}

async fn same_for_all(sql: &str, root: &Path, expected: &str) {
    for workers in [1, 2, 3] {
        assert_eq!(found(sql, root, workers).await, expected, "{sql}, {workers} workers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_of_any_dialect_are_divided_between_workers() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows = large(|n| format!("{n};some text of a long row {};x", n % 7));
    put(&root.join("plain.csv"), &rows).await;
    put(&root.join("skipped.csv"), format!("about;\nthis\nid;s;c\n{rows}")).await;
    put(&root.join("comments.csv"), format!("# about\n#this\nid;s;c\n{rows}")).await;
    put(&root.join("latin.csv"), latin1(&format!("id;s;ü\n{}", rows.replace('x', "é")))).await;
    put(&root.join("returns.csv"), rows.replace('\n', "\r")).await;
    let expected = "|90000|4049955000|7|";
    let sql = "select count(*), sum(column0), count(distinct column1) from 'plain.csv'";
    same_for_all(sql, root, expected).await;
    let sql = "select count(*), sum(id), count(distinct s) from read_csv('skipped.csv', skip => 2)";
    same_for_all(sql, root, expected).await;
    let sql = "select count(*), sum(id), count(distinct s) from 'comments.csv'";
    same_for_all(sql, root, expected).await;
    let sql = "select count(*), sum(id), count(distinct s) from 'latin.csv' where \"ü\" = 'é'";
    same_for_all(sql, root, expected).await;
    let sql = "select count(*), sum(column0), count(distinct column1) from 'returns.csv'";
    same_for_all(sql, root, expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_escaped_mark_behind_the_sample_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows = large(|n| format!("{n},some text of a long row"));
    put(&root.join("x.csv"), format!("n,s\n{rows}7,\"he said \\\"hi\\\"\"\n")).await;
    for workers in [1, 3] {
        let query = snowmelt_query::QuerySpec {
            workers,
            ..located("select sum(n), max(s) from 'x.csv'", root)
        };
        let report = failure(&query, InProcess::default()).await;
        assert!(report.contains("SM-0119") && report.contains("line 90002"), "{report}");
        assert!(report.contains("escape => '\\'"), "{report}");
    }
    let sql = "select sum(n), max(s) from read_csv('x.csv', escape => '\\') where s like 'he%'";
    same_for_all(sql, root, "|7|hesaid\"hi\"|").await;
}
