//! A collector that does not answer delays neither requests nor the end.

#[allow(dead_code)]
mod collector;

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use collector::{export, serve};
use snowmelt_rpc::client::NO_BODY;
use snowmelt_rpc::trace::{Export, SPANS};
use snowmelt_rpc::{Client, RequestId, Token};
use snowmelt_telemetry::Settings;
use tokio::net::TcpListener;

/// More than the queue holds.
const SPANS_TOO_MANY: usize = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_collector_delays_neither_requests_nor_the_end() {
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let running = export(Settings::new(format!("http://{at}/v1/traces").parse().unwrap()));

    let address = serve(Router::new().route("/", get(async || "hello"))).await;
    let client = Client::tcp(address, Token::new("0123456789abcdef").unwrap());
    let ask = async || {
        let response = client.send(Method::GET, "/", NO_BODY).await.unwrap();
        client.whole(response).await.unwrap();
    };
    RequestId::new().scope(ask()).await;
    RequestId::new()
        .scope(async {
            for _ in 0..SPANS_TOO_MANY {
                drop(tracing::debug_span!(target: SPANS, "one of many"));
            }
        })
        .await;
    let [sent, dropped] = Export::installed().unwrap().counts();
    assert_eq!(sent, 0);
    assert!(dropped > 0, "the queue is bounded");
    RequestId::new().scope(ask()).await;

    let begun = Instant::now();
    tokio::task::spawn_blocking(|| running.end()).await.unwrap();
    // Without the bound it would be the time-out of a request, 10 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(silent);
}
