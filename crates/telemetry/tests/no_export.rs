//! Without an export nothing is recorded, and a client names no span that nobody has recorded.

use axum::Router;
use axum::http::{HeaderMap, Method};
use axum::routing::get;
use snowmelt_rpc::client::NO_BODY;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::trace::{Context, Export, SPANS};
use snowmelt_rpc::{Client, RequestId, Token};
use tokio::net::TcpListener;

#[tokio::test]
async fn nothing_is_recorded_unless_it_is_configured() {
    // As a server writes its log by default.
    let log = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    tracing::subscriber::set_global_default(log).unwrap();
    let headers = async |headers: HeaderMap| {
        assert!(tracing::debug_span!(target: SPANS, "phase").is_disabled());
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let context = Context::current().unwrap();
        axum::Json((
            context.id.to_string(),
            context.span,
            text("traceparent"),
            text("x-request-id"),
        ))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client =
        Client::tcp(listener.local_addr().unwrap(), Token::new("0123456789abcdef").unwrap());
    let router = Router::new().route("/", get(headers));
    let listener = server::HostListener::new(listener, Token::new("0123456789abcdef").unwrap());
    tokio::spawn(server::serve(listener, router, server::NETWORK, Ending::default()));

    type Seen = (String, Option<u64>, Option<String>, Option<String>);
    let ask = async || client.json::<Seen>(Method::GET, "/", NO_BODY).await.unwrap();
    let id = RequestId::new();
    let seen = id.scope(ask()).await;
    assert_eq!(seen, (id.to_string(), None, None, Some(id.to_string())));
    // A process that records nothing passes on the span that it received.
    let received = Context { id, span: Some(7), is_sampled: true };
    let header = format!("00-{id}-0000000000000007-01");
    assert_eq!(received.scope(ask()).await, (id.to_string(), Some(7), Some(header), None));
    assert!(Export::installed().is_none());
}
