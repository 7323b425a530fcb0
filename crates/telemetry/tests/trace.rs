//! A request that goes from a client to a server and from there to a second one is one trace.

#[allow(dead_code)]
mod collector;

use axum::Router;
use axum::extract::Path;
use axum::http::Method;
use axum::routing::get;
use collector::{attribute, collector, export, serve, spans};
use serde_json::Value;
use snowmelt_rpc::client::NO_BODY;
use snowmelt_rpc::trace::{self, Export, SPANS};
use snowmelt_rpc::{Client, Problem, RequestId, Token};
use snowmelt_telemetry::Settings;
use snowmelt_types::{Code, ErrorReport};
use tracing::Instrument;

fn client(address: std::net::SocketAddr) -> Client {
    Client::tcp(address, Token::new("0123456789abcdef").unwrap())
}

fn find<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found = spans.iter().find(|span| span["name"] == name);
    found.unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
}

/// Begins a phase in a task that the request does not wait for.
async fn detached() {
    let later = async { drop(tracing::debug_span!(target: SPANS, "detached")) };
    trace::spawn(later).await.unwrap();
}

#[tokio::test]
async fn a_request_through_two_servers_is_one_trace_with_its_parents() {
    let (at, mut received) = collector().await;
    let mut settings = Settings::new(format!("http://{at}/v1/traces").parse().unwrap());
    settings.describe("service.name", "test");
    assert!(settings.send("x-scope", "tenant"));
    let running = export(settings);

    let fails = async |Path(_): Path<String>| {
        tracing::Span::current().record("snowmelt.tenant", "acme");
        Err::<(), _>(Problem::from(ErrorReport::new(Code::INTERNAL, "secret")))
    };
    let second = serve(Router::new().route("/inner/{name}", get(fails))).await;
    let first = async move || {
        let asked = async {
            detached().await;
            client(second).send(Method::GET, "/inner/x?key=secret", NO_BODY).await
        };
        asked.instrument(tracing::debug_span!(target: SPANS, "phase")).await.unwrap_err();
        tracing::error!("secret");
    };
    let first = serve(Router::new().route("/outer", get(first))).await;

    let id = RequestId::new();
    let asked = async { client(first).send(Method::GET, "/outer", NO_BODY).await };
    id.scope(asked).await.unwrap();
    // Requests that belong to no request are those of the platform itself.
    client(first).send(Method::GET, "/unknown", NO_BODY).await.unwrap_err();

    let spans = spans(&mut received, 6).await;
    assert_eq!(spans.len(), 6, "{spans:#?}");
    assert!(spans.iter().all(|span| span["traceId"] == id.to_string()), "{spans:#?}");
    let server = [find(&spans, "GET /outer"), find(&spans, "GET /inner/{name}")];
    let by = |url: &str| {
        let is_of = |span: &&Value| attribute(span, "url.full").is_some_and(|of| of == url);
        spans.iter().find(is_of).unwrap()
    };
    let requests = [by(&format!("http://{first}/outer")), by(&format!("http://{second}/inner/x"))];
    let phase = find(&spans, "phase");
    let detached = find(&spans, "detached");
    for (child, parent) in [
        (server[0], requests[0]),
        (phase, server[0]),
        (detached, phase),
        (requests[1], phase),
        (server[1], requests[1]),
    ] {
        assert_eq!(child["parentSpanId"], parent["spanId"], "{child:#} of {parent:#}");
    }
    assert_eq!(requests[0]["parentSpanId"], Value::Null);
    assert_eq!([&server[0]["kind"], &requests[0]["kind"], &phase["kind"]], [2, 3, 1]);
    assert_eq!(attribute(server[1], "http.route").unwrap(), "/inner/{name}");
    assert_eq!(attribute(server[1], "http.response.status_code").unwrap(), "500");
    assert_eq!(attribute(server[1], "error.type").unwrap(), Code::INTERNAL.code);
    assert_eq!(attribute(server[1], "snowmelt.tenant").unwrap(), "acme");
    assert_eq!(server[1]["status"]["code"], 2);
    assert_eq!(server[0]["status"], Value::Null);
    assert!(!format!("{spans:?}").contains("secret"));

    ends_with_what_waits(running, received).await;
}

/// The end of the export sends what waits, and the counts say what was sent.
async fn ends_with_what_waits(
    running: snowmelt_telemetry::Running,
    mut received: collector::Received,
) {
    RequestId::new().scope(async { drop(tracing::debug_span!(target: SPANS, "last")) }).await;
    tokio::task::spawn_blocking(|| running.end()).await.unwrap();
    let (headers, body) = received.recv().await.unwrap();
    assert_eq!(headers["x-scope"], "tenant");
    assert_eq!(headers["content-type"], "application/json");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["scopeSpans"][0]["spans"][0]["name"], "last");
    assert_eq!(attribute(&resource["resource"], "service.name").unwrap(), "test");
    assert_eq!(Export::installed().unwrap().counts(), [7, 0]);
}
