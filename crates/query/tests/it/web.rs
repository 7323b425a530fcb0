//! Files on servers of HTTP: the same rows as of local files, and servers that are not believed.

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use snowmelt_query::{QuerySpec, plan};
use snowmelt_types::Report;

use crate::data;
use crate::formats::rows;
use crate::runner::{answer, refusal, run_failure, spec};
use crate::small_web::SmallWeb;

/// A server with a Parquet file of some rows and a CSV file.
fn server() -> SmallWeb {
    let server = SmallWeb::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    data::write(&path, &rows(0..20_000), 3_000);
    server.put("k=7/x%20y.parquet", std::fs::read(&path).unwrap());
    let csv: String = (0..200_000).map(|n| format!("{n},text {n}\n")).collect();
    server.put("x.csv", format!("n,s\n{csv}").into_bytes());
    server.put("empty.csv", Vec::new());
    server
}

fn allowed(sql: &str, hosts: &[&str]) -> QuerySpec {
    let sources = hosts.iter().map(|host| format!("http://{host}").parse().unwrap());
    QuerySpec { http_sources: sources.collect(), ..spec(sql, 3) }
}

async fn found(query: &QuerySpec) -> String {
    let (batches, _) = answer(query, Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{}: {}", query.sql, error.report()));
    let text = pretty_format_batches(&batches).unwrap().to_string();
    text.lines().nth(3).unwrap().replace(' ', "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_tables_however_the_server_sends_them() {
    let server = server();
    let hosts = [server.host.as_str()];
    for how in ["ranged", "rangeless", "headless", "dated", "cut", "hollow"] {
        server.cut(2);
        let url = server.url(how, "k=7/x y.parquet");
        let sql = format!("select count(*), sum(id), count(n), min(k) from '{url}' where id >= 10");
        assert_eq!(found(&allowed(&sql, &hosts)).await, "|19990|199989955|17134|7|", "{how}");
        server.cut(2);
        let url = server.url(how, "x.csv");
        let sql = format!("select count(*), sum(n), max(s) from read_csv('{url}')");
        assert_eq!(found(&allowed(&sql, &hosts)).await, "|200000|19999900000|text99999|", "{how}");
    }
    // What has been read costs nothing.
    let query = allowed(&format!("select n from '{}'", server.url("ranged", "x.csv")), &hosts);
    let (_, profile) = answer(&query, Arc::default()).await.unwrap();
    let progress = profile.totals.progress;
    assert!(progress.requests > 0 && progress.store_reads == 0, "{progress:?}");
}

/// The query of a URL is sent, and its secrets are in no message beside the SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_sent_with_each_request() {
    let server = server();
    let token = "token=a%2Fb&x";
    let table = |file: &str| [("t".to_owned(), server.url("token", file))].into();
    let with =
        |sql: &str, file: &str| QuerySpec { tables: table(file), ..allowed(sql, &[&server.host]) };
    let query = with("select count(*), sum(n), max(s) from t", &format!("x.csv?{token}"));
    assert_eq!(found(&query).await, "|200000|19999900000|text99999|");
    let query = with("select count(*), min(k) from t", &format!("k=7/x y.parquet?{token}"));
    assert_eq!(found(&query).await, "|20000|7|");
    let url = server.url("token", &format!("x.csv?{token}"));
    let sql = format!("select min(filename) from read_csv('{url}', filename => true)");
    let plain = server.url("token", "x.csv");
    assert_eq!(found(&allowed(&sql, &[&server.host])).await, format!("|{plain}|"));
    let report = refusal(&with("select * from t", "x.csv?token=secret")).await;
    assert!(report.contains("403") && report.contains("token/x.csv"), "{report}");
    assert!(!report.contains("secret"), "{report}");
    server.put("bad.csv", b"a,b\n1,2\n3\n".to_vec());
    let query = with("select * from t", &format!("bad.csv?{token}"));
    let report = match answer(&query, Arc::default()).await {
        Ok(_) => panic!("read"),
        Err(error) => error.report().to_string(),
    };
    assert!(report.contains("token/bad.csv") && !report.contains("a%2Fb"), "{report}");
    let query = with("show tables", &format!("x.csv?{token}"));
    assert_eq!(found(&query).await, format!("|t|{plain}|"));
    server.put("more.csv", b"1,x\n2,y\n".to_vec());
    let urls = ["x.csv", "more.csv"].map(|file| server.url("token", &format!("{file}?{token}")));
    let QuerySpec { tables, .. } = with("", &format!("x.csv?{token}"));
    for sql in
        ["explain select sum(n) from t", "describe t", "select zz from t", "select t.n.x from t"]
    {
        let query = QuerySpec { tables: tables.clone(), ..allowed(sql, &[&server.host]) };
        let text = match answer(&query, Arc::default()).await {
            Ok((batches, _)) => pretty_format_batches(&batches).unwrap().to_string(),
            Err(error) => error.report().to_string(),
        };
        assert!(!text.contains("a%2Fb"), "{sql}: {text}");
    }
    let sql = format!("select * from read_csv(['{}', '{}'])", urls[0], urls[1]);
    let error = plan(&allowed(&sql, &[&server.host])).await.unwrap_err();
    let message = error.report().message;
    assert!(message.contains("token/x.csv") && !message.contains("a%2Fb"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_servers_of_the_operators_list_are_asked() {
    let other = server();
    let server = server();
    let sql = |url: &str| format!("select count(*) from '{url}'");
    let url = server.url("ranged", "x.csv");
    let report = refusal(&allowed(&sql(&url), &[])).await;
    for part in ["SM-0120", "server.http_sources", "/etc/snowmelt/config.toml", "--> query:1"] {
        assert!(report.contains(part), "{report}");
    }
    let report = refusal(&allowed(&sql(&url), &[&other.host])).await;
    assert!(report.contains("SM-0120") && report.contains(&server.host), "{report}");
    let url = server.url("to", &format!("{}/ranged/x.csv", other.host));
    let report = refusal(&allowed(&sql(&url), &[&server.host])).await;
    assert!(report.contains("SM-0120") && report.contains("refers to another server"), "{report}");
    assert!(report.contains(&other.host) && other.requests() == 0, "{report}");
    let both = [server.host.as_str(), &other.host];
    assert_eq!(found(&allowed(&sql(&url), &both)).await, "|200000|");
    let port = server.host.rsplit_once(':').unwrap().1;
    let url = format!("http://localhost:{port}/ranged/x.csv");
    let named = format!("localhost:{port}");
    assert_eq!(found(&allowed(&sql(&url), &[&named])).await, "|200000|");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_answer_wrongly_is_explained() {
    let server = server();
    for (how, file, code, part) in [
        ("ranged", "gone.csv", "SM-0105", "does not exist"),
        ("ranged", "*.csv", "SM-0105", "no lists"),
        ("ranged", "x.csv#1", "SM-0105", "fragment"),
        ("ranged", "gone.csv?sig=1", "SM-0105", "does not exist"),
        ("ranged", "", "SM-0105", "names no file"),
        ("forbidden", "x.csv", "SM-0108", "status code: 403"),
        ("broken", "x.csv", "SM-0108", "status code: 500"),
        ("round", "x.csv", "SM-0108", "again and again"),
        ("short", "x.csv", "SM-0108", "the server"),
        ("shifted", "x.csv", "SM-0108", "another range"),
        ("huge", "x.csv", "SM-0108", "sends no ranges of files"),
    ] {
        let url = server.url(how, file);
        let sql = format!("select count(*) from read_csv('{url}')");
        let report = refusal(&allowed(&sql, &[&server.host])).await;
        let is = report.contains(code) || code == "SM-0105" && report.contains("SM-0110");
        assert!(is && report.contains(part), "{how} {file}: {report}");
        assert!(!report.contains("AWS_"), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_while_it_is_read_is_an_error() {
    for how in ["ranged", "rangeless", "dated"] {
        for file in ["x.csv", "k=7/x%20y.parquet"] {
            let server = server();
            let bytes = |first: u8| {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("x.parquet");
                data::write(&path, &rows(i64::from(first)..20_000), 3_000);
                std::fs::read(path).unwrap()
            };
            let url = server.url(how, file);
            let query = allowed(&format!("select sum(length(s)) from '{url}'"), &[&server.host]);
            let planned = plan(&query).await.unwrap();
            server.put("x.csv", b"n,s\n1,x\n".to_vec());
            server.put("k=7/x%20y.parquet", bytes(1));
            let report = run_failure(planned, &query).await;
            assert!(report.contains("SM-0116"), "{how} {file}: {report}");
        }
    }
}
