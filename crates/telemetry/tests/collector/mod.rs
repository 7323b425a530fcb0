//! A collector in this process, and servers whose requests are recorded.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::Value;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_telemetry::{Running, Settings};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;

/// What a collector received: the headers and the body of each request.
pub type Received = mpsc::UnboundedReceiver<(HeaderMap, Value)>;

/// A collector at `/v1/traces`.
pub async fn collector() -> (SocketAddr, Received) {
    let (sender, received) = mpsc::unbounded_channel();
    let take = async |State(sender): State<mpsc::UnboundedSender<_>>, headers, body: Bytes| {
        let body: Value = serde_json::from_slice(&body).unwrap();
        sender.send((headers, body)).unwrap();
        "{}"
    };
    let router = Router::new().route("/v1/traces", post(take)).with_state(sender);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Not the server of this project: it would record the requests of the export.
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, received)
}

/// Records the spans of this process and sends them there.
pub fn export(settings: Settings) -> Running {
    let (layer, prepared) = snowmelt_telemetry::prepare(settings);
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    prepared.start().unwrap()
}

/// Serves requests without a token.
pub async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let token = snowmelt_rpc::Token::new("0123456789abcdef").unwrap();
    let listener = server::HostListener::new(listener, token);
    tokio::spawn(server::serve(listener, router, server::NETWORK, Ending::default()));
    address
}

/// All spans until so many have arrived.
pub async fn spans(received: &mut Received, count: usize) -> Vec<Value> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(60), received.recv()).await;
        let (_, body) = next.unwrap().unwrap();
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        all.extend(spans.as_array().unwrap().iter().cloned());
    }
    all
}

/// An attribute of a span or of a resource, as text.
pub fn attribute(of: &Value, key: &str) -> Option<String> {
    let found = of["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    let value = found["value"].as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
