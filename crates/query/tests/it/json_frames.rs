//! JSON files whose objects are not lines: lists, and objects in several lines.

use crate::formats::{found, put};
use crate::runner::{InProcess, failure, located, refusal};

fn objects(count: usize) -> Vec<String> {
    let object = |n| format!("{{\n  \"n\": {n},\n  \"s\": \"a, ]}} \\\"{}\"\n}}", n % 7);
    (0..count).map(object).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_pretty_objects_are_tables() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // More than 2 MiB: lines would be divided between workers.
    let objects = objects(60_000);
    put(&root.join("list.json"), format!("[{}]", objects.join(",\n"))).await;
    put(&root.join("list.json.gz"), format!("\u{feff} [\n{}\n]\n", objects.join(" , "))).await;
    put(&root.join("pretty.json.zst"), objects.join("\n")).await;
    put(&root.join("short.json"), "[{\"n\":1},{\"n\":2.5}]").await;
    put(&root.join("many/a.json"), "[{\"n\":1}]").await;
    put(&root.join("many/b.json"), "{\"n\":2}\n{\"n\":3}\n").await;
    put(&root.join("many/c.json"), "[]").await;
    for name in ["list.json", "list.json.gz", "pretty.json.zst"] {
        for workers in [1, 3] {
            let sql = format!("select count(*), sum(n), count(distinct s) from '{name}'");
            assert_eq!(found(&sql, root, workers).await, "|60000|1799970000|7|", "{name}");
        }
    }
    assert_eq!(found("select sum(n) from 'short.json'", root, 1).await, "|3.5|");
    assert_eq!(found("select sum(n), count(*) from 'many'", root, 2).await, "|6|3|");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_does_not_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let objects = objects(60_000);
    put(&root.join("cut.json"), format!("[{}", objects.join(","))).await;
    put(&root.join("wrong.json"), format!("[{},{{\"n\":\"x\"}}]", objects.join(","))).await;
    put(&root.join("small.json"), "[{\"n\":1},").await;
    for (name, parts) in [
        ("cut.json", ["object 60001", "the list does not end"]),
        ("wrong.json", ["object 60001", "column `n` is BIGINT, and `x` is not"]),
    ] {
        let query = located(&format!("select sum(n), max(s) from '{name}'"), root);
        let report = failure(&query, InProcess::default()).await;
        assert!(report.contains("SM-0119"), "{report}");
        assert!(parts.iter().all(|part| report.contains(part)), "{report}");
    }
    put(&root.join("comma.json"), "[{\"n\":1},\n{\"n\":2}{}]\n").await;
    for (name, why) in [
        ("small.json", "object 2: the list does not end"),
        ("comma.json", "object 3: there is no comma before it"),
    ] {
        let report = refusal(&located(&format!("select * from '{name}'"), root)).await;
        assert!(report.contains("SM-0119") && report.contains(why), "{report}");
    }
}
