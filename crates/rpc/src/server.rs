//! The server: HTTP on a listener, with bounds on its connections and an orderly end.
//!
//! Invariant: clients that only connect cannot exhaust the descriptors or the time that requests
//! need. A connection over the network is unauthenticated until a request with a token arrives on
//! it. Few unauthenticated connections are kept; the oldest is closed first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use futures::FutureExt;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::body::MAX_REQUEST_BYTES;
use crate::{Admission, HostStream, trace};

/// After which time a failed accept is tried again: a descriptor may become free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How long a response that is being sent may take to end after the grace time: its last part says
/// why it ends.
const LAST_PART_TIMEOUT: Duration = Duration::from_secs(1);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections in all; further ones wait to be accepted.
    pub connections: usize,
    /// Of these, unauthenticated ones; `None` on a listener that needs no token.
    pub unauthenticated: Option<usize>,
    /// How long a connection may be idle, before the first request and between two requests.
    pub idle: Duration,
}

/// Bounds of a unix socket: every process that can open it is trusted.
pub const LOCAL: Bounds =
    Bounds { connections: 4096, unauthenticated: None, idle: Duration::from_secs(75) };

/// Bounds of an address at which other hosts connect.
pub const NETWORK: Bounds =
    Bounds { connections: 2048, unauthenticated: Some(128), idle: Duration::from_secs(10) };
/// Bounds of an address at which tenants connect from other hosts.
pub const TENANTS: Bounds = NETWORK;

/// The other end of a connection. The server puts it into the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine with this user number, as the kernel reports it (`SO_PEERCRED`).
    User(u32),
    /// Another host, whose user is not known; its router checks the token of the cluster first.
    Cluster,
    /// A process of any host, over TLS; a router for it checks the token of a tenant first.
    Remote,
}

/// How a server ends.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// No connection is accepted any more, and running requests continue.
    pub asked: CancellationToken,
    /// Requests that still run are aborted, and responses that are being sent end.
    pub over: CancellationToken,
}

impl Ending {
    /// Waits until no connection may be open any more.
    async fn all_sent(&self) {
        self.over.cancelled().await;
        tokio::time::sleep(LAST_PART_TIMEOUT).await;
    }
}

/// A source of connections.
pub trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Waits for the next connection, and gives it with its other end.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Peer)> {
        let stream = UnixListener::accept(self).await?.0;
        let user = stream.peer_cred()?.uid();
        Ok((stream, Peer::User(user)))
    }
}

/// Connections from this process ([`crate::client::InProcess`]).
impl Listener for Mutex<mpsc::UnboundedReceiver<UnixStream>> {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Peer)> {
        match self.lock().await.recv().await {
            Some(stream) => Ok((stream, Peer::User(rustix::process::geteuid().as_raw()))),
            // No client is left, so there is nothing to wait for until the server ends.
            None => std::future::pending().await,
        }
    }
}

impl Listener for TcpListener {
    type Stream = HostStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Peer)> {
        let stream = TcpListener::accept(self).await?.0;
        stream.set_nodelay(true)?;
        Ok((HostStream::accepted(stream), Peer::Cluster))
    }
}

/// Serves until it is asked to end and every connection has ended, or until it is aborted.
pub async fn serve<L: Listener>(listener: L, router: Router, bounds: Bounds, ending: Ending) {
    let router = router
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .layer(middleware::from_fn(trace::identify));
    let mut connections = JoinSet::new();
    let mut unauthenticated = Unauthenticated::default();
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
                        ending.clone(),
                    );
                    let handle = connections.spawn(connection);
                    if let Some(most) = bounds.unauthenticated {
                        unauthenticated.add(handle, admission, most);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = ending.all_sent() => {}
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    (bounds, admission, peer): (Bounds, Admission, Peer),
    ending: Ending,
) {
    let routes = TowerToHyperService::new(router);
    let is_waiting = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&is_waiting);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(admission.clone());
        request.extensions_mut().insert(peer);
        state.store(true, Ordering::Relaxed);
        let (state, answer) = (Arc::clone(&state), routes.call(request.map(Body::new)));
        answer.inspect(move |_| state.store(false, Ordering::Relaxed))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.idle);
    let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = ending.asked.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served.as_mut() => ended,
                () = ending.over.cancelled() => match is_waiting.load(Ordering::Relaxed) {
                    true => return,
                    // The response has begun.
                    false => served.await,
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Unauthenticated connections, the oldest first.
#[derive(Default)]
struct Unauthenticated {
    waiting: VecDeque<(AbortHandle, Admission)>,
}

impl Unauthenticated {
    /// Adds a connection, and closes the oldest if there are too many.
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

    use crate::{Token, admit};
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use futures::StreamExt;
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
    async fn an_idle_connection_is_closed() {
        let bounds = Bounds { idle: Duration::from_millis(50), ..NETWORK };
        let (address, _ending) = serving(bounds, guarded()).await;
        closed(TcpStream::connect(address).await.unwrap()).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(HELLO.as_bytes()).await.unwrap();
        closed(slow).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut idle, &with_token()).await, "HTTP/1.1 200 OK");
        closed(idle).await;
    }

    /// 15,000 silent connections were all kept before there was a bound.
    #[tokio::test]
    async fn unauthenticated_connections_are_few_and_block_no_others() {
        let bounds = Bounds { unauthenticated: Some(4), ..NETWORK };
        let (address, _ending) = serving(bounds, guarded()).await;
        let mut member = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut member, &with_token()).await, "HTTP/1.1 200 OK");
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        assert_eq!(first_line(&mut late, &with_token()).await, "HTTP/1.1 200 OK");
        assert_eq!(first_line(&mut member, &with_token()).await, "HTTP/1.1 200 OK");
        for stream in silent.drain(..36) {
            closed(stream).await;
        }
    }

    #[tokio::test]
    async fn a_request_without_the_token_closes_its_connection() {
        let (address, _ending) = serving(NETWORK, guarded()).await;
        let mut unknown = TcpStream::connect(address).await.unwrap();
        let long = format!("{HELLO}content-length: 1000000000\r\n\r\n");
        assert_eq!(first_line(&mut unknown, &long).await, "HTTP/1.1 401 Unauthorized");
        closed(unknown).await;
    }

    #[tokio::test]
    async fn a_running_request_ends_before_the_server() {
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

    /// The last frame of a query's answer says why the query has failed.
    #[tokio::test]
    async fn an_answer_that_is_being_sent_ends_with_its_last_part_when_the_time_is_over() {
        let ending = Ending::default();
        let over = ending.over.clone();
        let answer = async move || {
            let first = futures::stream::once(async { Ok::<_, io::Error>("first") });
            let last = over.cancelled_owned().map(|()| Ok("last"));
            Body::from_stream(first.chain(futures::stream::once(last)))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(answer));
        let server = tokio::spawn(serve(listener, router, LOCAL, ending.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(format!("{HELLO}\r\n").as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"first\r\n") {
            assert!(client.read_buf(&mut said).await.unwrap() > 0);
        }
        ending.asked.cancel();
        ending.over.cancel();
        client.read_to_end(&mut said).await.unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(said.ends_with("last\r\n0\r\n\r\n"), "{said}");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_never_ends_is_aborted_after_the_grace_time() {
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
