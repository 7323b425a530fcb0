//! Connections that leave HTTP: a request asks for one, and from its answer on the two
//! sides speak another protocol over the same connection.
//!
//! Invariants: between hosts the side that connects speaks first, so that no byte of the other
//! protocol is left in a buffer of the HTTP library. The connection to a host that vanished breaks
//! within [`client::UNACKNOWLEDGED_TIMEOUT`](crate::client).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use snowmelt_types::{Code, ErrorReport};

use crate::client::{connect_tcp, problem, unreachable, watch};
use crate::membership::TERM;
use crate::trace::Outgoing;
use crate::version::{PROTOCOL_HEADER, protocol};
use crate::{Endpoint, HostStream, HostTarget, Problem};

/// The name of what is spoken instead of HTTP.
const PROTOCOL: &str = "snowmelt";

/// The limit on the time in which another host answers the request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection to a host of the cluster. The caller speaks first.
///
/// # Errors
/// A host that cannot be reached, or refuses the request.
pub async fn connect(target: &HostTarget, path: &str) -> Result<HostStream, ErrorReport> {
    let connected = tokio::time::timeout(ANSWER_TIMEOUT, request(target, path)).await;
    connected.unwrap_or_else(|_| {
        let message = format!("{} does not answer", target.address);
        Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message))
    })
}

async fn request(target: &HostTarget, path: &str) -> Result<HostStream, ErrorReport> {
    let endpoint = Endpoint::Tcp(Arc::new(target.clone()));
    let stream = connect_tcp(target).await.map_err(|error| unreachable(&endpoint, &error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&endpoint, &e))?;
    // It ends when the connection was upgraded or refused.
    tokio::spawn(connection.with_upgrades());
    let outgoing = Outgoing::new(&Method::GET, path, &endpoint);
    let mut request = http::Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(header::HOST, "snowmelt")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, PROTOCOL)
        .header(PROTOCOL_HEADER, protocol());
    if let Some(token) = target.credential.token() {
        request = request.header(header::AUTHORIZATION, token.header());
    }
    if let Some(term) = target.credential.terms().own() {
        request = request.header(TERM, term);
    }
    let request = outgoing.identify(request).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| internal(&error))?;
    let answered = sender.send_request(request).await;
    outgoing.describe(&answered);
    let answer = answered.map_err(|error| unreachable(&endpoint, &error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| unreachable(&endpoint, &error))?.to_bytes();
        return Err(problem(&endpoint, status, &body));
    }
    let upgraded = hyper::upgrade::on(answer).await;
    taken(upgraded.map_err(|error| unreachable(&endpoint, &error))?)
}

/// A connection that is being opened by another host.
#[derive(Debug)]
pub struct Incoming(OnUpgrade);

impl Incoming {
    /// Takes over the connection of a request that asks for that. Returns the answer to the
    /// request.
    ///
    /// # Errors
    /// The request does not ask for the connection.
    pub fn of(request: Request) -> Result<(Response, Self), Problem> {
        let asked = request.headers().get(header::UPGRADE).map(|value| value.as_bytes());
        if asked != Some(PROTOCOL.as_bytes()) {
            let message = format!("the request does not ask for `{PROTOCOL}` instead of HTTP");
            let report = ErrorReport::new(Code::PROTOCOL, message);
            return Err(Problem { status: StatusCode::UPGRADE_REQUIRED, report });
        }
        let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
        let answer = (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response();
        Ok((answer, Self(hyper::upgrade::on(request))))
    }

    /// Waits until the answer is sent. The other side speaks first.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn connection(self) -> Result<HostStream, ErrorReport> {
        taken(self.0.await.map_err(|error| internal(&error))?)
    }

    /// Waits until the answer is sent, on a connection of any kind. Bytes that the other side has
    /// sent already are kept.
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn stream(self) -> Result<TokioIo<Upgraded>, ErrorReport> {
        Ok(TokioIo::new(self.0.await.map_err(|error| internal(&error))?))
    }
}

/// Returns the connection beneath HTTP.
fn taken(upgraded: Upgraded) -> Result<HostStream, ErrorReport> {
    let parts = upgraded.downcast::<TokioIo<HostStream>>().map_err(|_| {
        ErrorReport::new(Code::PROTOCOL, "the request did not come over a TCP connection")
    })?;
    let stream = parts.io.into_inner();
    if !parts.read_buf.is_empty() || !stream.is_empty() {
        let message = "the other side of a connection spoke before it was its turn";
        return Err(ErrorReport::new(Code::PROTOCOL, message));
    }
    watch(&stream).map_err(|error| internal(&error))?;
    Ok(stream)
}

fn internal(error: &dyn std::error::Error) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("a connection between hosts failed: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::server::{Ending, HostListener, NETWORK, serve};
    use crate::{Credential, Meant, Token, admit};

    const TOKEN: &str = "0123456789abcdef";

    async fn echo(request: Request) -> Result<Response, Problem> {
        let (answer, incoming) = Incoming::of(request)?;
        tokio::spawn(async move {
            let mut stream = incoming.connection().await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(&said).await.unwrap();
        });
        Ok(answer)
    }

    fn known_by(address: SocketAddr, token: &str) -> HostTarget {
        let credential = Credential::from(Token::new(token).unwrap());
        HostTarget { address, meant: Meant::Control, credential }
    }

    async fn serving() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let credential = Credential::from(Token::new(TOKEN).unwrap());
        let router = Router::new().route("/echo", get(echo));
        let router = router.layer(from_fn_with_state(credential.clone(), admit));
        let listener = HostListener::new(listener, credential);
        tokio::spawn(serve(listener, router, NETWORK, Ending::default()));
        address
    }

    #[tokio::test]
    async fn both_sides_speak_over_the_connection_of_the_request() {
        let address = serving().await;
        let mut stream = connect(&known_by(address, TOKEN), "/echo").await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
    }

    #[tokio::test]
    async fn a_connection_is_refused_without_the_token_and_where_there_is_none() {
        let address = serving().await;
        let other = known_by(address, "another-token-of-16");
        let refused = connect(&other, "/echo").await.unwrap_err();
        assert_eq!(refused.code, Code::HOST_REFUSED.code);
        assert!(connect(&known_by(address, TOKEN), "/nothing").await.is_err());
    }
}
