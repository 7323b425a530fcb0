//! HTTP on a listener: how many connections there may be, how long one may be silent, and how all
//! of them end.
//!
//! Invariant: clients that only connect cannot exhaust the descriptors or the time that requests
//! need. A connection over the network is unauthenticated until a request with the token of the
//! cluster came over it. Few unauthenticated connections are kept; the oldest is closed first.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use snowmelt_node::agent::Admission;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::identity::Peer;

/// How long a listener that cannot accept waits: a descriptor may become free.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What a listener allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections in all; further ones wait to be accepted.
    pub connections: usize,
    /// Of these, unauthenticated ones; `None` where no token is needed.
    pub strangers: Option<usize>,
    /// How long a connection may be silent, before the first request and between two requests.
    pub silent: Duration,
}

/// The socket of this machine: every process that can open it is trusted.
pub(crate) const LOCAL: Bounds =
    Bounds { connections: 4096, strangers: None, silent: Duration::from_secs(75) };

/// An address at which other hosts connect.
pub(crate) const NETWORK: Bounds =
    Bounds { connections: 2048, strangers: Some(128), silent: Duration::from_secs(10) };

/// How a server ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Nothing new is accepted, and what is under way goes on.
    pub asked: CancellationToken,
    /// Requests that are still running are aborted.
    pub over: CancellationToken,
}

/// Where connections come from.
pub(crate) trait Listener {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, with the identity of its other end.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Peer)> {
        let stream = UnixListener::accept(self).await?.0;
        let user = stream.peer_cred()?.uid();
        Ok((stream, Peer::User(user)))
    }
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Peer)> {
        let stream = TcpListener::accept(self).await?.0;
        stream.set_nodelay(true)?;
        // A request without the token is refused before it is handled.
        Ok((stream, Peer::Cluster))
    }
}

/// Serves until it is asked to end and every connection has ended, or until it is aborted.
pub(crate) async fn serve<L: Listener>(
    listener: L,
    router: Router,
    bounds: Bounds,
    ending: Ending,
) {
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::default();
    while !ending.asked.is_cancelled() {
        let is_full = connections.len() >= bounds.connections;
        tokio::select! {
            () = ending.asked.cancelled() => {}
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, peer)) => {
                    let admission = Admission::default();
                    let connection = connection(
                        stream,
                        router.clone(),
                        (bounds, admission.clone(), peer),
                        ending.asked.clone(),
                    );
                    let handle = connections.spawn(connection);
                    if let Some(most) = bounds.strangers {
                        strangers.add(handle, admission, most);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            },
        }
    }
    drop(listener);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = ending.over.cancelled() => {}
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    (bounds, admission, peer): (Bounds, Admission, Peer),
    asked: CancellationToken,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(admission.clone());
        request.extensions_mut().insert(peer);
        routes.call(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.silent);
    let mut served = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = asked.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Unauthenticated connections, the oldest first.
#[derive(Default)]
struct Strangers {
    waiting: VecDeque<(AbortHandle, Admission)>,
}

impl Strangers {
    /// Adds one, and closes the oldest if there are too many.
    fn add(&mut self, connection: AbortHandle, admission: Admission, most: usize) {
        self.waiting.push_back((connection, admission));
        if self.waiting.len() <= most {
            return;
        }
        self.waiting
            .retain(|(connection, admission)| !connection.is_finished() && !admission.is_given());
        while self.waiting.len() > most {
            if let Some((oldest, _)) = self.waiting.pop_front() {
                oldest.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use snowmelt_node::agent::{Token, admit};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const HELLO: &str = "GET / HTTP/1.1\r\nhost: x\r\n";

    async fn serving(bounds: Bounds, router: Router) -> (SocketAddr, Ending) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ending = Ending::default();
        tokio::spawn(serve(listener, router, bounds, ending.clone()));
        (address, ending)
    }

    fn guarded() -> Router {
        let token = Token::new(TOKEN).unwrap();
        Router::new().route("/", get(async || "hello")).layer(from_fn_with_state(token, admit))
    }

    fn with_token() -> String {
        format!("{HELLO}authorization: Bearer {TOKEN}\r\n\r\n")
    }

    async fn first_line(stream: &mut TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = vec![0; 4096];
        let length = stream.read(&mut said).await.unwrap();
        let said = String::from_utf8_lossy(&said[..length]).into_owned();
        said.lines().next().unwrap_or_default().to_owned()
    }

    /// Waits until the other side has closed the connection.
    async fn closed(mut stream: TcpStream) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut rest).await;
    }

    #[tokio::test]
    async fn who_says_nothing_is_let_go() {
        let bounds = Bounds { silent: Duration::from_millis(50), ..NETWORK };
        let (address, _ending) = serving(bounds, guarded()).await;
        closed(TcpStream::connect(address).await.unwrap()).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(HELLO.as_bytes()).await.unwrap();
        closed(slow).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut idle, &with_token()).await, "HTTP/1.1 200 OK");
        closed(idle).await;
    }

    /// Once, 15,000 silent connections were all kept.
    #[tokio::test]
    async fn strangers_are_few_and_keep_nobody_out() {
        let bounds = Bounds { strangers: Some(4), ..NETWORK };
        let (address, _ending) = serving(bounds, guarded()).await;
        let mut friend = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut friend, &with_token()).await, "HTTP/1.1 200 OK");
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut late, &with_token()).await, "HTTP/1.1 200 OK");
        assert_eq!(first_line(&mut friend, &with_token()).await, "HTTP/1.1 200 OK");
        for stream in silent.drain(..36) {
            closed(stream).await;
        }
    }

    #[tokio::test]
    async fn who_has_no_token_is_let_go_at_once() {
        let (address, _ending) = serving(NETWORK, guarded()).await;
        let mut stranger = TcpStream::connect(address).await.unwrap();
        let long = format!("{HELLO}content-length: 1000000000\r\n\r\n");
        assert_eq!(first_line(&mut stranger, &long).await, "HTTP/1.1 401 Unauthorized");
        closed(stranger).await;
    }

    #[tokio::test]
    async fn what_is_under_way_may_end_before_the_server_does() {
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go));
        let slow = async move || {
            tell.notify_one();
            wait.notified().await;
            "done"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ending = Ending::default();
        let router = Router::new().route("/", get(slow));
        let server = tokio::spawn(serve(listener, router, LOCAL, ending.clone()));
        let mut running = TcpStream::connect(address).await.unwrap();
        let idle = TcpStream::connect(address).await.unwrap();
        running.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
        begun.notified().await;
        ending.asked.cancel();
        closed(idle).await;
        go.notify_one();
        let mut said = String::new();
        running.read_to_string(&mut said).await.unwrap();
        assert!(said.ends_with("done"), "{said}");
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn what_never_ends_is_given_up_when_the_time_is_over() {
        let begun = Arc::new(Notify::new());
        let tell = Arc::clone(&begun);
        let never = async move || {
            tell.notify_one();
            std::future::pending::<&str>().await
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ending = Ending::default();
        let router = Router::new().route("/", get(never));
        let server = tokio::spawn(serve(listener, router, LOCAL, ending.clone()));
        let mut running = TcpStream::connect(address).await.unwrap();
        running.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
        begun.notified().await;
        ending.asked.cancel();
        ending.over.cancel();
        server.await.unwrap();
        closed(running).await;
    }
}
