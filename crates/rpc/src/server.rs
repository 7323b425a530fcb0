//! The server: HTTP on a listener, with bounds on its connections and an orderly end.
//!
//! Invariant: clients that only connect cannot exhaust the descriptors or the time that requests
//! need. A connection over the network is unauthenticated until a request with a token arrives on
//! it. Few unauthenticated connections are kept; the oldest one of the source with the most is
//! closed first. Each holder of a token has a share of the authenticated ones. A body that comes
//! too slowly is given up.

pub mod client_relay;
#[cfg(test)]
mod tests;
mod unauthenticated;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
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
use snowmelt_kernel::file_user::{FileUser, UserConnection};
use snowmelt_kernel::socket::peer_user;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::body::MAX_REQUEST_BYTES;
pub use crate::body_timeout::Pace;
use crate::body_timeout::Paced;
use crate::membership::token::Holders;
use crate::membership::{Credential, PeerSlot};
use crate::{Admission, HostStream, trace};
use unauthenticated::Unauthenticated;

/// The time after which a failed accept is tried again: a descriptor may become free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The time in which a response that is being sent must end after the grace time: its last part
/// says why it ends.
const LAST_PART_TIMEOUT: Duration = Duration::from_secs(1);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The greatest number of connections; further ones wait to be accepted.
    pub connections: usize,
    /// The greatest number of unauthenticated connections; `None` on a listener that needs no
    /// token.
    pub unauthenticated: Option<usize>,
    /// The time for which a connection may be idle, before the first request and between two
    /// requests.
    pub idle: Duration,
    /// The greatest number of connections that have brought the token of the same tenant, or of the
    /// same host of the cluster. `None` for no limit.
    pub of_holder: Option<usize>,
    /// The pace at which bodies of requests have to come. `None` for no limit.
    pub pace: Option<Pace>,
}

/// Bounds of a unix socket: every process that can open it is trusted.
pub const LOCAL: Bounds = Bounds {
    connections: 4096,
    unauthenticated: None,
    idle: Duration::from_secs(75),
    of_holder: None,
    pace: None,
};

/// Bounds of an address at which other hosts connect.
pub const NETWORK: Bounds = Bounds {
    connections: 2048,
    unauthenticated: Some(128),
    idle: Duration::from_secs(10),
    of_holder: Some(1024),
    pace: Some(Pace::OF_NETWORK),
};

/// Bounds of an address at which tenants connect from other hosts.
pub const TENANTS: Bounds = Bounds { connections: 4096, ..NETWORK };

/// An accepted connection.
#[derive(Debug)]
pub struct AcceptedConnection<S> {
    /// The connection.
    pub stream: S,
    /// The process at the other end.
    pub peer: Peer,
    /// The address of the other end; `None` on a unix socket.
    pub address: Option<IpAddr>,
    /// The user of the other end with its groups; `None` for another host. The server puts it into
    /// the extensions of each request.
    pub user: Option<FileUser>,
    /// The certificate of another host of the cluster; `None` elsewhere. The server puts it into
    /// the extensions of each request.
    pub certificate: Option<PeerSlot>,
}

impl<S> AcceptedConnection<S> {
    /// Makes a connection of a user of this machine.
    fn of_user(stream: S, user: FileUser) -> Self {
        Self {
            stream,
            peer: Peer::User(user.user),
            address: None,
            user: Some(user),
            certificate: None,
        }
    }
}

/// The identity of the other end of a connection. The server puts it into the extensions of each
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine with this user number, as the kernel reports it (`SO_PEERCRED`).
    User(u32),
    /// Another host, whose user is not known; its router checks the token of the cluster first.
    Cluster,
    /// A process of any host, over TLS; a router for it checks the token of a tenant first.
    Remote,
}

/// The two signals that end a server.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// The signal to end: no connection is accepted any more, and running requests continue.
    pub asked: CancellationToken,
    /// The signal that the grace time is over: running requests are aborted, and responses that are
    /// being sent end.
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

    /// Waits for the next connection. Returns it with its other end.
    fn accept(&self) -> impl Future<Output = io::Result<AcceptedConnection<Self::Stream>>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<AcceptedConnection<Self::Stream>> {
        let stream = UnixListener::accept(self).await?.0;
        let mut user = peer_user(&stream)?;
        // A server that is not root has to prove to its broker for whom it asks.
        let own = rustix::process::geteuid();
        if !own.is_root() && user.user != own.as_raw() {
            user.connection = Some(UserConnection::of(&stream)?);
        }
        Ok(AcceptedConnection::of_user(stream, user))
    }
}

/// Connections from this process ([`crate::client::InProcess`]).
impl Listener for Mutex<mpsc::UnboundedReceiver<UnixStream>> {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<AcceptedConnection<Self::Stream>> {
        match self.lock().await.recv().await {
            Some(stream) => {
                let user = peer_user(&stream)?;
                Ok(AcceptedConnection::of_user(stream, user))
            }
            // No client is left, so there is nothing to wait for until the server ends.
            None => std::future::pending().await,
        }
    }
}

/// Accepts connections of processes of a cluster.
pub struct HostListener {
    listener: TcpListener,
    credential: Credential,
}

impl HostListener {
    /// Serves the processes that the credential knows.
    pub fn new(listener: TcpListener, credential: impl Into<Credential>) -> Self {
        Self { listener, credential: credential.into() }
    }
}

impl Listener for HostListener {
    type Stream = HostStream;

    async fn accept(&self) -> io::Result<AcceptedConnection<Self::Stream>> {
        let (stream, address) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        let address = Some(source(address.ip()));
        let certificate = PeerSlot::default();
        let stream = HostStream::received(stream, &self.credential, &certificate)?;
        let certificate = Some(certificate);
        Ok(AcceptedConnection { stream, peer: Peer::Cluster, address, user: None, certificate })
    }
}

/// Returns the address by which connections are counted. A host with IPv6 has at least 2^64
/// addresses.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

/// Serves until it is asked to end and every connection has ended, or until it is aborted.
pub async fn serve<L: Listener>(listener: L, router: Router, bounds: Bounds, ending: Ending) {
    let router = routed(router);
    let of_each = ending.clone();
    let each = move |accepted, admission| {
        connection(accepted, router.clone(), bounds, admission, of_each.clone())
    };
    accept_all(listener, bounds, &ending, each).await;
}

/// Adds to routes what those of every server have.
pub(crate) fn routed(router: Router) -> Router {
    router
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .layer(middleware::from_fn(trace::identify))
}

/// Accepts connections until the server is asked to end, and waits until every one has ended.
pub(crate) async fn accept_all<L: Listener, F: Future<Output = ()> + Send + 'static>(
    listener: L,
    bounds: Bounds,
    ending: &Ending,
    each: impl Fn(AcceptedConnection<L::Stream>, Admission) -> F,
) {
    let mut connections = JoinSet::new();
    let mut unauthenticated = Unauthenticated::default();
    let holders = bounds.of_holder.map(Holders::new);
    while !ending.asked.is_cancelled() {
        let is_full = connections.len() >= bounds.connections;
        tokio::select! {
            () = ending.asked.cancelled() => {}
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if !is_full => match accepted {
                Ok(accepted) => {
                    let admission = Admission::new(accepted.address, holders.clone());
                    let handle = connections.spawn(each(accepted, admission.clone()));
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

/// Serves the requests of one connection.
pub(crate) async fn connection(
    accepted: AcceptedConnection<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    router: Router,
    bounds: Bounds,
    admission: Admission,
    ending: Ending,
) {
    let AcceptedConnection { stream, peer, user, certificate, .. } = accepted;
    let routes = TowerToHyperService::new(router);
    let is_waiting = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&is_waiting);
    let body = move |body: Incoming| match bounds.pace {
        Some(pace) => Body::new(Paced::new(body, pace)),
        None => Body::new(body),
    };
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(admission.clone());
        request.extensions_mut().insert(peer);
        if let Some(user) = user.clone() {
            request.extensions_mut().insert(user);
        }
        if let Some(certificate) = certificate.clone() {
            request.extensions_mut().insert(certificate);
        }
        state.store(true, Ordering::Relaxed);
        let state = Arc::clone(&state);
        let answer = routes.call(request.map(body));
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
