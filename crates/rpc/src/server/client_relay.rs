//! Clients at the address of a control that does not lead: their connections are carried to the
//! control that leads, over connections between hosts.
//!
//! Invariants: the control that leads finds out who a client is; the other one decrypts, and looks
//! at nothing but the first bytes, by which it answers supervisors itself. The address of a client
//! is believed only from a process with the certificate of a control, or with the token of a cluster
//! without encryption.

use std::io::{self, Cursor};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use snowmelt_types::{Code, ErrorReport};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc, watch};

use crate::server::{AcceptedConnection, Bounds, Ending, Listener, accept_all, connection, routed};
use crate::upgrade::{self, Incoming};
use crate::{Admission, HostStream, HostTarget, Peer, Problem};

/// The path at which the control that leads takes connections of clients.
pub const PATH: &str = "/v1/clients";

/// The beginning of the request by which supervisors ask whether a server lives.
const HEALTH: &[u8] = b"GET /healthz";

/// The bytes that are on their way in one direction of a connection.
const PIECE: usize = 64 << 10;

/// The limit on the time between the connection of a control and the address of the client.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// The limit on the time in which a client takes the end of its connection.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The most connections that wait to be served.
const MAX_WAITING: usize = 64;

/// A control that does not lead, as clients see it. Cheap to clone.
#[derive(Clone)]
pub struct ClientRelay {
    leader: watch::Receiver<Option<HostTarget>>,
    own: Router,
}

impl ClientRelay {
    /// Carries clients to the control that leads. These routes answer supervisors, and all clients
    /// while no control leads that can be reached.
    pub fn new(leader: watch::Receiver<Option<HostTarget>>, own: Router) -> Self {
        // The next request on a connection is not for this control.
        let closing = async |mut answer: Response| {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            answer
        };
        Self { leader, own: routed(own.layer(map_response(closing))) }
    }

    /// Serves until it is asked to end and every connection has ended.
    pub async fn serve<L: Listener>(self, listener: L, bounds: Bounds, ending: Ending) {
        let relay = Arc::new(self);
        // Clients are counted by the control that leads, which knows whose they are.
        let bounds = Bounds { of_holder: None, ..bounds };
        let of_each = ending.clone();
        let each = move |accepted, admission| {
            let relay = Arc::clone(&relay);
            let ending = of_each.clone();
            async move {
                let over = ending.over.clone();
                let carried = relay.carry(accepted, bounds, admission, ending);
                // Another control may lead: connections to this one would never end.
                if let Some(Err(error)) = over.run_until_cancelled(carried).await {
                    tracing::debug!(%error, "the connection of a client broke");
                }
            }
        };
        accept_all(listener, bounds, &ending, each).await;
    }

    async fn carry(
        &self,
        accepted: AcceptedConnection<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
        bounds: Bounds,
        admission: Admission,
        ending: Ending,
    ) -> io::Result<()> {
        let AcceptedConnection { mut stream, peer, address, user, certificate } = accepted;
        let first = tokio::time::timeout(bounds.idle, first_bytes(&mut stream)).await??;
        if first.is_empty() {
            return Ok(());
        }
        let leader = self.leader.borrow().clone().filter(|_| first != HEALTH);
        let opened = match &leader {
            Some(leader) => open(leader, address).await,
            None => None,
        };
        if let Some(mut far) = opened {
            // The control that leads closes those who show no key, and then this side is closed too.
            admission.give(None).map_err(|refused| io::Error::other(refused.message))?;
            far.write_all(&first).await?;
            return exchange(stream, far).await;
        }
        let (reading, writing) = tokio::io::split(stream);
        let stream = tokio::io::join(Cursor::new(first).chain(reading), writing);
        let accepted = AcceptedConnection { stream, peer, address, user, certificate };
        connection(accepted, self.own.clone(), bounds, admission, ending).await;
        Ok(())
    }
}

/// Carries bytes both ways until the control that leads has ended its side. What a client does then
/// is not waited for: it may do nothing for ever.
async fn exchange(
    near: impl AsyncRead + AsyncWrite + Unpin,
    mut far: HostStream,
) -> io::Result<()> {
    let (from_client, mut to_client) = tokio::io::split(near);
    let (from_leader, mut to_leader) = far.split();
    let mut from_client = BufReader::with_capacity(PIECE, from_client);
    let mut from_leader = BufReader::with_capacity(PIECE, from_leader);
    let there = async {
        tokio::io::copy_buf(&mut from_client, &mut to_leader).await?;
        to_leader.shutdown().await
    };
    let back = async {
        tokio::io::copy_buf(&mut from_leader, &mut to_client).await?;
        let _ = tokio::time::timeout(END_TIMEOUT, to_client.shutdown()).await;
        Ok(())
    };
    let mut back = std::pin::pin!(back);
    tokio::select! {
        ended = back.as_mut() => return ended,
        sent = there => sent?,
    }
    back.await
}

/// Reads as many bytes as tell a supervisor from others, or all that there are.
async fn first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut first = vec![0; HEALTH.len()];
    let mut read = 0;
    while read < first.len() && HEALTH.starts_with(&first[..read]) {
        match stream.read(&mut first[read..]).await? {
            0 => break,
            more => read += more,
        }
    }
    first.truncate(read);
    Ok(first)
}

/// Opens a connection to the control that leads, and says whose it is.
async fn open(leader: &HostTarget, address: Option<IpAddr>) -> Option<HostStream> {
    let opened = async {
        let mut far = upgrade::connect(leader, PATH).await.map_err(|report| report.message)?;
        let written = far.write_all(&octets(address)).await;
        written.map_err(|error| error.to_string())?;
        Ok::<_, String>(far)
    };
    opened
        .await
        .inspect_err(|error| {
            let leader = leader.address;
            tracing::warn!(error, %leader, "a client is not carried to the control that leads");
        })
        .ok()
}

/// An address as it is sent; that of no host for a client of this machine.
fn octets(address: Option<IpAddr>) -> [u8; 16] {
    match address {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
        None => Ipv6Addr::UNSPECIFIED.octets(),
    }
}

/// The entrance by which other controls bring clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RelayEntrance(mpsc::Sender<AcceptedConnection<HostStream>>);

/// The clients that other controls bring: a source of connections to serve.
#[derive(Debug)]
pub struct RelayedClients(Mutex<mpsc::Receiver<AcceptedConnection<HostStream>>>);

/// Makes the entrance of a control that leads, and the source of its clients.
pub fn relayed_clients() -> (RelayEntrance, RelayedClients) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    (RelayEntrance(sender), RelayedClients(Mutex::new(receiver)))
}

impl RelayEntrance {
    /// Takes over the connection of a request at [`PATH`]. Returns the answer to the request. Only
    /// other controls may ask.
    ///
    /// # Errors
    /// The request does not ask for the connection.
    pub fn take(&self, request: Request) -> Result<Response, Problem> {
        let (answer, incoming) = Incoming::of(request)?;
        let taken = self.clone();
        tokio::spawn(async move {
            let entered = tokio::time::timeout(ADDRESS_TIMEOUT, taken.enter(incoming));
            let late = |_| Err(ErrorReport::new(Code::PROTOCOL, "it says no address in time"));
            if let Err(error) = entered.await.unwrap_or_else(late) {
                tracing::warn!(%error, "a client of another control is not served");
            }
        });
        Ok(answer)
    }

    async fn enter(&self, incoming: Incoming) -> Result<(), ErrorReport> {
        let failed = |error: io::Error| ErrorReport::new(Code::PROTOCOL, error.to_string());
        let mut stream = incoming.connection().await?;
        let mut address = [0; 16];
        stream.read_exact(&mut address).await.map_err(failed)?;
        let address = Ipv6Addr::from(address);
        let address = (!address.is_unspecified()).then(|| IpAddr::V6(address).to_canonical());
        let peer = Peer::Remote;
        let accepted = AcceptedConnection { stream, peer, address, user: None, certificate: None };
        let ended = |_| ErrorReport::new(Code::LEADER_OTHER, "this control ends");
        self.0.send(accepted).await.map_err(ended)
    }
}

impl Listener for RelayedClients {
    type Stream = HostStream;

    async fn accept(&self) -> io::Result<AcceptedConnection<HostStream>> {
        match self.0.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            // There is no entrance any more, and nothing to wait for until the server ends.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use axum::{Extension, http::StatusCode};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::server::{HostListener, NETWORK, TENANTS, serve};
    use crate::{Credential, Meant, Token, admit};

    /// A listener whose clients all come from one address.
    struct Clients(TcpListener);

    impl Listener for Clients {
        type Stream = TcpStream;

        async fn accept(&self) -> io::Result<AcceptedConnection<TcpStream>> {
            let stream = self.0.accept().await?.0;
            let address = Some("203.0.113.9".parse().unwrap());
            let peer = Peer::Remote;
            Ok(AcceptedConnection { stream, peer, address, user: None, certificate: None })
        }
    }

    fn credential() -> Credential {
        Credential::from(Token::new("0123456789abcdef").unwrap())
    }

    async fn bound() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn echo(request: Request) -> Result<Response, Problem> {
        let (answer, incoming) = Incoming::of(request)?;
        tokio::spawn(async move {
            let mut stream = incoming.stream().await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(&said).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        Ok(answer)
    }

    /// A control that leads, which answers with its name and the address of the client.
    async fn leading(name: &'static str) -> HostTarget {
        let listening = bound().await;
        let entered = relayed_clients();
        let take = move |request: Request| async move { entered.0.take(request) };
        let router =
            Router::new().route(PATH, get(take)).layer(from_fn_with_state(credential(), admit));
        let hosts = HostListener::new(listening.0, credential());
        tokio::spawn(serve(hosts, router, NETWORK, Ending::default()));
        let say = move |Extension(peer): Extension<Peer>, Extension(from): Extension<Admission>| async move {
            format!("{name} {peer:?} {}", from.source().unwrap())
        };
        let clients = Router::new().route("/who", get(say)).route("/echo", get(echo));
        tokio::spawn(serve(entered.1, clients, TENANTS, Ending::default()));
        HostTarget { address: listening.1, meant: Meant::Control, credential: credential() }
    }

    /// A control that stands by, with what it is told of the leader.
    struct Standby {
        address: SocketAddr,
        leader: watch::Sender<Option<HostTarget>>,
        ending: Ending,
    }

    async fn standing_by() -> Standby {
        let listening = bound().await;
        let leader = watch::Sender::new(None);
        let away = async || (StatusCode::SERVICE_UNAVAILABLE, "away");
        let own = Router::new().route("/healthz", get(async || "lives")).fallback(away);
        let relay = ClientRelay::new(leader.subscribe(), own);
        let ending = Ending::default();
        tokio::spawn(relay.serve(Clients(listening.0), TENANTS, ending.clone()));
        Standby { address: listening.1, leader, ending }
    }

    fn request(path: &str, headers: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
    }

    async fn said(mut stream: TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said).await;
        said
    }

    async fn asked(address: SocketAddr, path: &str) -> String {
        let stream = TcpStream::connect(address).await.unwrap();
        said(stream, &request(path, "connection: close\r\n")).await
    }

    #[tokio::test]
    async fn a_client_is_served_by_the_control_that_leads_as_from_its_own_address() {
        let Standby { address, leader, .. } = standing_by().await;
        assert!(asked(address, "/who").await.ends_with("away"));
        leader.send_replace(Some(leading("one").await));
        assert!(asked(address, "/who").await.ends_with("one Remote 203.0.113.9"));
        // Two requests on a connection, the second of which leaves HTTP.
        let upgrade = request("/echo", "connection: upgrade\r\nupgrade: snowmelt\r\n");
        let stream = TcpStream::connect(address).await.unwrap();
        let both = said(stream, &format!("{}{upgrade}hello", request("/who", ""))).await;
        assert!(both.contains("one Remote") && both.ends_with("hello"), "{both}");
        leader.send_replace(Some(leading("two").await));
        assert!(asked(address, "/who").await.ends_with("two Remote 203.0.113.9"));
    }

    #[tokio::test]
    async fn supervisors_and_clients_without_a_leader_are_answered_here() {
        let Standby { address, leader, .. } = standing_by().await;
        leader.send_replace(Some(leading("one").await));
        assert!(asked(address, "/healthz").await.ends_with("lives"));
        // Bytes that come one by one, and too few of them.
        let mut stream = TcpStream::connect(address).await.unwrap();
        for byte in request("/healthz", "connection: close\r\n").bytes() {
            stream.write_all(&[byte]).await.unwrap();
        }
        assert!(said(stream, "").await.ends_with("lives"));
        let nothing = TcpStream::connect(address).await.unwrap();
        drop(nothing);
        let closed = bound().await;
        drop(closed.0);
        let gone =
            HostTarget { address: closed.1, meant: Meant::Control, credential: credential() };
        leader.send_replace(Some(gone));
        let answered = asked(address, "/who").await;
        assert!(answered.starts_with("HTTP/1.1 503") && answered.ends_with("away"), "{answered}");
    }

    #[tokio::test]
    async fn a_client_that_stays_silent_is_closed_with_the_leaders_side() {
        let Standby { address, leader, ending: _ending } = standing_by().await;
        leader.send_replace(Some(leading("one").await));
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The leader answers, and closes; the client keeps its side open.
        stream.write_all(request("/who", "connection: close\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("203.0.113.9"), "{answer}");
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_connection_of_a_supervisor_is_closed_after_its_answer() {
        let Standby { address, leader, ending: _ending } = standing_by().await;
        leader.send_replace(Some(leading("one").await));
        let stream = TcpStream::connect(address).await.unwrap();
        let both =
            said(stream, &format!("{}{}", request("/healthz", ""), request("/who", ""))).await;
        assert!(both.ends_with("lives"), "{both}");
    }

    #[tokio::test]
    async fn carried_connections_end_when_the_control_stands_by_no_more() {
        let Standby { address, leader, ending } = standing_by().await;
        leader.send_replace(Some(leading("one").await));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request("/who", "").as_bytes()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        ending.asked.cancel();
        ending.over.cancel();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
}
