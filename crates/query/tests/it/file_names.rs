//! The names of files: `glob`, the column of names, and lists of locations.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use crate::formats::{found, put};
use crate::runner::{located, refusal};

fn parquet(value: i64) -> Vec<u8> {
    let column = Arc::new(Int64Array::from(vec![value])) as _;
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_files_are_a_table_and_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let root = root.as_path();
    put(&root.join("c/a.csv"), "n\n1\n2\n").await;
    put(&root.join("c/b.csv.gz"), "n\n3\n").await;
    put(&root.join("j/a.json"), "{\"n\":4}\n").await;
    put(&root.join("p/k=7/a.parquet"), parquet(5)).await;
    put(&root.join("p/k=8/b.parquet"), parquet(6)).await;
    put(&root.join("own.csv"), "filename,n\nx,1\n").await;
    let shown = |name: &str| root.join(name).display().to_string();
    let a = shown("c/a.csv");
    let b = shown("c/b.csv.gz");
    for (sql, expected) in [
        ("select file from glob('c/*') order by 1", format!("|{a}|\n|{b}|")),
        ("select count(*) from glob('c/*.parquet')", "|0|".to_owned()),
        ("select count(*), min(g.file) from glob('c/*') g, glob('j/*')", format!("|2|{a}|")),
        (
            "select filename, sum(n) from read_csv('c', filename => true) group by 1 order by 1",
            format!("|{a}|3|\n|{b}|3|"),
        ),
        ("select f, n from read_json('j', filename => 'f')", format!("|{}|4|", shown("j/a.json"))),
        (
            "select filename, n, k from read_parquet('p', filename => true) where filename like '%b.parquet'",
            format!("|{}|6|8|", shown("p/k=8/b.parquet")),
        ),
        (
            "select sum(n), count(*) from read_parquet(['p/k=7/a.parquet', 'p/k=8'])",
            "|11|2|".into(),
        ),
        ("select sum(n) from read_csv(['c/b.csv.gz', 'c/a.csv'], header => true)", "|6|".into()),
        // As in DuckDB, a file that is named twice is read twice.
        ("select sum(n) from read_csv(['c/a.csv', 'c/a.csv'])", "|6|".into()),
        ("select n from read_csv('own.csv', filename => 'file')", "|1|".into()),
    ] {
        for workers in [1, 2] {
            assert_eq!(found(sql, root, workers).await, expected.replace(' ', ""), "{sql}");
        }
    }
    for (from, parts) in [
        ("glob('none/x.csv')", ["SM-0105", "--> query:1"]),
        ("read_csv(['c/a.csv', 'none.csv'])", ["SM-0105", "none.csv"]),
        ("read_csv('own.csv', filename => true)", ["SM-0110", "`filename` already"]),
        ("read_parquet(['p', 'c'])", ["SM-0110", "is a file of CSV"]),
    ] {
        let report = refusal(&located(&format!("select * from {from}"), root)).await;
        assert!(parts.iter().all(|part| report.contains(part)), "{from}: {report}");
    }
}
