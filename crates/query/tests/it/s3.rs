//! Tables on S3, with a real server. Needs `SNOWMELT_TEST_S3`: the endpoint of a server with
//! writable buckets (`moto_server`, MinIO with default keys).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStore, ObjectStoreExt};
use snowmelt_query::{QuerySpec, plan};
use snowmelt_types::Report;

use crate::data;
use crate::formats::{large, put};
use crate::runner::{answer, refusal, run_failure, spec};

const BUCKET: &str = "snowmelt-test";

fn variables() -> Option<BTreeMap<String, String>> {
    let Ok(endpoint) = std::env::var("SNOWMELT_TEST_S3") else {
        eprintln!("skipped: SNOWMELT_TEST_S3 names no S3 server");
        return None;
    };
    let pairs = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "minioadmin"),
        ("AWS_SECRET_ACCESS_KEY", "minioadmin"),
    ];
    Some(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn store(variables: &BTreeMap<String, String>) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(&variables["AWS_ENDPOINT_URL"])
        .with_access_key_id("minioadmin")
        .with_secret_access_key("minioadmin")
        .with_bucket_name(BUCKET)
        .with_allow_http(true)
        .build()
        .unwrap()
}

/// Uploads the files of `odd` to `s3://snowmelt-test/odd/`.
async fn upload(variables: &BTreeMap<String, String>) {
    let store = store(variables);
    for entry in std::fs::read_dir(data::folder().join("odd")).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("odd/{}", path.file_name().unwrap().to_str().unwrap());
        let bytes = std::fs::read(path).unwrap();
        store.put(&name.as_str().into(), bytes.into()).await.unwrap();
    }
    store.put(&"other/notes.txt".into(), "x".into()).await.unwrap();
    assert!(store.list_with_delimiter(None).await.unwrap().common_prefixes.len() >= 2);
}

fn on_s3(sql: &str, aws: &BTreeMap<String, String>) -> QuerySpec {
    QuerySpec { aws: aws.clone(), ..spec(sql, 3) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_on_s3_give_the_same_answer_as_local_ones() {
    let Some(aws) = variables() else { return };
    upload(&aws).await;
    let sql = |from: &str| {
        format!(
            "select word, count(*), sum(n), max(s) from {from} where id > 100 group by 1 order by 1"
        )
    };
    let (expected, _) = answer(&spec(&sql("odd"), 3), Arc::default()).await.unwrap();
    let expected = pretty_format_batches(&expected).unwrap().to_string();
    for from in ["odd/*.parquet", "odd", "odd/", "odd/part-[012].parquet", "**/part-*.parquet"] {
        let query = on_s3(&sql(&format!("'s3://{BUCKET}/{from}'")), &aws);
        let (found, profile) = answer(&query, Arc::default())
            .await
            .unwrap_or_else(|error| panic!("{from}: {error:?}"));
        assert_eq!(pretty_format_batches(&found).unwrap().to_string(), expected, "{from}");
        let progress = profile.totals.progress;
        assert!(progress.requests >= 6 && progress.bytes_read > 10_000, "{progress:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_locations_on_s3_are_named() {
    let Some(aws) = variables() else { return };
    upload(&aws).await;
    for (location, code) in [
        (format!("s3://{BUCKET}/gone/*.parquet"), "SM-0104"),
        (format!("s3://{BUCKET}/gone"), "SM-0105"),
        (format!("s3://{BUCKET}/other/"), "SM-0104"),
        ("s3://no-such-bucket-here/x/*.parquet".to_owned(), "SM-010"),
        (format!("s3://{BUCKET}/other/notes.txt"), "SM-0106"),
    ] {
        let report = refusal(&on_s3(&format!("select * from '{location}'"), &aws)).await;
        assert!(report.contains(code) && report.contains(&location), "{location}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_and_arrow_files_on_s3_are_tables() {
    let Some(aws) = variables() else { return };
    upload(&aws).await;
    let folder = tempfile::tempdir().unwrap();
    let large = put(&folder.path().join("a.csv"), large()).await;
    let packed = put(&folder.path().join("b.csv.gz"), "s,n,id\nz,1,-1\n").await;
    for (key, path) in [("csv/k=1/a.csv", &large), ("csv/k=2/b.csv.gz", &packed)] {
        store(&aws).put(&key.into(), std::fs::read(path).unwrap().into()).await.unwrap();
    }
    let sql =
        "select k, count(*), sum(id), max(s) from 's3://snowmelt-test/csv/' group by 1 order by 1";
    for workers in [1, 3] {
        let query = QuerySpec { workers, ..on_s3(sql, &aws) };
        let (found, _) = answer(&query, Arc::default()).await.unwrap();
        let text = pretty_format_batches(&found).unwrap().to_string().replace(' ', "");
        assert!(text.contains("|1|110000|6049945000|"), "{text}");
        assert!(text.contains("|2|1|-1|z|"), "{text}");
    }
    let wrong = format!("{}x,1,y\n", std::fs::read_to_string(&large).unwrap());
    store(&aws).put(&"csv/k=1/a.csv".into(), wrong.into()).await.unwrap();
    let query = on_s3(sql, &aws);
    let report = run_failure(plan(&query).await.unwrap(), &query).await;
    assert!(report.contains("s3://snowmelt-test/csv/k=1/a.csv`, line 110002"), "{report}");
    store(&aws).delete(&"csv/k=1/a.csv".into()).await.unwrap();
    store(&aws).delete(&"csv/k=2/b.csv.gz".into()).await.unwrap();
}

/// The object is replaced by one of the same size between planning and reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_object_is_never_read() {
    let Some(aws) = variables() else { return };
    upload(&aws).await;
    let store = store(&aws);
    let old = std::fs::read(data::folder().join("odd/part-0.parquet")).unwrap();
    let mut new = old.clone();
    new[100] ^= 1;
    store.put(&"torn/a.parquet".into(), old.into()).await.unwrap();
    let query = on_s3(&format!("select sum(n) from 's3://{BUCKET}/torn/'"), &aws);
    let planned = plan(&query).await.unwrap();
    store.put(&"torn/a.parquet".into(), new.into()).await.unwrap();
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116") && report.contains("torn/a.parquet"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_with_glob_characters_are_found() {
    let Some(aws) = variables() else { return };
    upload(&aws).await;
    let bytes = std::fs::read(data::folder().join("odd/part-0.parquet")).unwrap();
    let key = object_store::path::Path::parse("what?/a b#1%20.parquet").unwrap();
    store(&aws).put(&key, bytes.into()).await.unwrap();
    for from in ["what?/", "what?", "what?/*.parquet", "what?/a b#1%20.parquet"] {
        let query = on_s3(&format!("select count(*) c from 's3://{BUCKET}/{from}'"), &aws);
        let (found, _) = answer(&query, Arc::default())
            .await
            .unwrap_or_else(|error| panic!("{from}: {}", error.report()));
        assert_eq!(found[0].num_rows(), 1, "{from}");
    }
}

#[tokio::test]
async fn wrong_settings_are_reported_by_variable() {
    let Some(aws) = variables() else { return };
    for (name, value, code, word) in [
        ("AWS_ENDPOINT_URL", "localhost:9000", "SM-0117", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "not an address", "SM-0117", "AWS_ENDPOINT_URL"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "SM-0108", "AWS_ENDPOINT_URL"),
        ("AWS_SECRET_ACCESS_KEY", "", "SM-0117", "AWS_SECRET_ACCESS_KEY is not"),
    ] {
        let mut aws = aws.clone();
        aws.insert(name.to_owned(), value.to_owned());
        let query = on_s3(&format!("select * from 's3://{BUCKET}/odd'"), &aws);
        let report = refusal(&query).await;
        assert!(report.contains(code) && report.contains(word), "{report}");
    }
}
