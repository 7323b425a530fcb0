//! A listener with TLS: its certificate and key, and connections whose handshake is part of their
//! first read.
//!
//! Invariants: nothing is served without TLS. A client that does not finish its handshake delays no
//! other one, and is disconnected after the time that a connection may be idle.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::Peer;
use crate::client::watch;
use crate::fair_queue::{TurnWaiter, Turns};
use crate::server::{AcceptedConnection, Listener, source};

/// The certificate that a server shows to its clients, with its key. The key is never logged. Clones
/// share it: when one is replaced, all are.
#[derive(Clone)]
pub struct Certificate(Arc<RwLock<Arc<ServerConfig>>>);

impl Certificate {
    /// Reads certificates and key from two PEM texts: the server's certificate is the first one,
    /// the certificates that lead to its authority follow.
    ///
    /// # Errors
    /// A text is not valid: the error says why.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        Ok(Self(Arc::new(RwLock::new(config(chain, key)?))))
    }

    /// Shows another certificate to the clients that connect from now on. Connections that are open
    /// go on.
    ///
    /// # Errors
    /// A text is not valid: the certificate stays as it is, and the error says why.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), String> {
        let config = config(chain, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn config(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    if chain.is_empty() {
        return Err("the file of the certificate contains no PEM certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| format!("the key cannot be read: {error}"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config =
        config.map_err(|error| format!("certificate and key do not fit each other: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A client that waits for an answer would be woken by tickets, which no client uses.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// Accepts connections over TLS.
pub struct TlsListener {
    listener: TcpListener,
    certificate: Certificate,
    /// The turns of handshakes to compute. Their number is limited, so that any number of clients
    /// leaves processors to requests. Sources alternate.
    handshakes: Arc<Turns>,
}

impl TlsListener {
    /// Serves the certificate on a listener.
    pub fn new(listener: TcpListener, certificate: &Certificate) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let handshakes = Turns::new((processors / 2).max(1));
        Self { listener, certificate: certificate.clone(), handshakes }
    }
}

impl Listener for TlsListener {
    type Stream = TlsConnection;

    async fn accept(&self) -> io::Result<AcceptedConnection<TlsConnection>> {
        let (stream, address) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        // A client whose host has vanished holds an instance for seconds and not for ever.
        watch(&stream)?;
        let address = source(address.ip());
        let handshake = Box::new(Handshake {
            accept: self.certificate.acceptor().accept(stream),
            waiter: TurnWaiter::new(Arc::clone(&self.handshakes), address),
        });
        Ok(AcceptedConnection {
            stream: TlsConnection::Handshake(handshake),
            peer: Peer::Remote,
            address: Some(address),
            user: None,
            certificate: None,
        })
    }
}

/// A handshake, and its turn to compute. It has no turn while it waits for its client.
pub struct Handshake {
    accept: Accept<TcpStream>,
    waiter: TurnWaiter,
}

impl Handshake {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TlsStream<TcpStream>>> {
        let _turn = ready!(self.waiter.poll(context));
        Pin::new(&mut self.accept).poll(context)
    }
}

/// A connection during or after its handshake.
pub enum TlsConnection {
    /// The handshake has not ended.
    Handshake(Box<Handshake>),
    /// The handshake has ended.
    Open(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Failed,
}

impl TlsConnection {
    fn poll_open(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&mut TlsStream<TcpStream>>> {
        if let Self::Handshake(handshake) = self {
            match ready!(handshake.poll(context)) {
                Ok(stream) => *self = Self::Open(Box::new(stream)),
                Err(error) => {
                    *self = Self::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(stream),
            Self::Handshake(_) | Self::Failed => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Open(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written.
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Open(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use axum::Router;
    use axum::extract::Request;
    use axum::middleware::from_fn_with_state;
    use axum::response::Response;
    use axum::routing::get;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsConnector, client};

    use super::*;
    use crate::server::{Bounds, Ending, TENANTS, serve};
    use crate::upgrade::Incoming;
    use crate::{Credential, Problem, Token, admit};

    const TOKEN: &str = "0123456789abcdef";
    const CHAIN: &[u8] = include_bytes!("../testdata/server.pem");
    const KEY: &[u8] = include_bytes!("../testdata/server.key");
    const AUTHORITY: &[u8] = include_bytes!("../testdata/authority.pem");
    const OTHER: &[u8] = include_bytes!("../testdata/other.pem");

    async fn serving(bounds: Bounds) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TlsListener::new(listener, &Certificate::new(CHAIN, KEY).unwrap());
        let router = Router::new().route("/", get(async || "hello")).route("/echo", get(echo));
        let router =
            router.layer(from_fn_with_state(Credential::from(Token::new(TOKEN).unwrap()), admit));
        tokio::spawn(serve(listener, router, bounds, Ending::default()));
        address
    }

    /// Sends back the received bytes, instead of HTTP.
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

    async fn connect(
        address: SocketAddr,
        authority: &[u8],
        name: &'static str,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn trusting(address: SocketAddr) -> client::TlsStream<TcpStream> {
        connect(address, AUTHORITY, "localhost").await.unwrap()
    }

    fn request(path: &str, headers: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{headers}\r\n")
    }

    /// The answer, until the other side closes the connection. A reset is an end as well.
    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
        // It may have ended before everything was sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.flush().await;
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        String::from_utf8_lossy(&said).into_owned()
    }

    #[tokio::test]
    async fn a_request_is_answered_over_tls() {
        let address = serving(TENANTS).await;
        let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("hello"), "{said}");
        let wrong = request("/", "connection: close\r\n").replace(TOKEN, "another-token-of-16");
        let said = answer(trusting(address).await, &wrong).await;
        assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    }

    #[tokio::test]
    async fn a_connection_leaves_http_over_tls() {
        let address = serving(TENANTS).await;
        let mut stream = trusting(address).await;
        let asked = request("/echo", "connection: upgrade\r\nupgrade: snowmelt\r\n");
        // The first bytes of the other protocol come with the request.
        let said = answer(&mut stream, &format!("{asked}hello")).await;
        assert!(said.starts_with("HTTP/1.1 101") && said.ends_with("hello"), "{said}");
    }

    #[tokio::test]
    async fn a_client_does_not_trust_another_authority_or_name() {
        let address = serving(TENANTS).await;
        for (authority, name) in [(OTHER, "localhost"), (AUTHORITY, "example.org")] {
            assert!(connect(address, authority, name).await.is_err(), "{name}");
        }
        trusting(address).await;
    }

    #[tokio::test]
    async fn a_replaced_certificate_is_shown_to_new_clients() {
        let certificate = Certificate::new(CHAIN, KEY).unwrap();
        let refused = certificate.replace(OTHER, KEY).unwrap_err();
        assert!(refused.contains("do not fit"), "{refused}");
        assert!(certificate.replace(b"", KEY).is_err() && certificate.replace(CHAIN, b"").is_err());
        let shown = certificate.clone();
        let before = Arc::clone(shown.acceptor().config());
        assert!(Arc::ptr_eq(&before, shown.acceptor().config()), "wrong ones change nothing");
        certificate.replace(CHAIN, KEY).unwrap();
        assert!(!Arc::ptr_eq(&before, shown.acceptor().config()));
    }

    #[tokio::test]
    async fn plain_http_is_not_served() {
        let address = serving(TENANTS).await;
        let plain = TcpStream::connect(address).await.unwrap();
        let said = answer(plain, &request("/", "")).await;
        assert!(!said.contains("HTTP") && !said.contains("hello"), "{said}");
        trusting(address).await;
    }

    #[tokio::test]
    async fn a_header_that_is_too_long_is_refused() {
        let address = serving(TENANTS).await;
        let long = format!("x-long: {}\r\n", "x".repeat(1 << 20));
        let said = answer(trusting(address).await, &request("/", &long)).await;
        assert!(!said.contains("200 OK"), "{said}");
        trusting(address).await;
    }

    /// The first bytes of a handshake.
    async fn begun(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn a_slow_client_delays_no_other() {
        let address = serving(TENANTS).await;
        let slow = (TcpStream::connect(address).await.unwrap(), begun(address).await);
        let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        drop(slow);
    }

    #[tokio::test]
    async fn a_slow_client_is_disconnected() {
        let bounds = Bounds { idle: Duration::from_millis(50), ..TENANTS };
        let address = serving(bounds).await;
        for stream in [TcpStream::connect(address).await.unwrap(), begun(address).await] {
            assert_eq!(answer(stream, "").await, "");
        }
        // It sends a part of its request, unless its handshake was too slow already.
        if let Ok(stream) = connect(address, AUTHORITY, "localhost").await {
            assert!(!answer(stream, "GET / HTTP/1.1\r\n").await.contains("200"));
        }
    }

    #[tokio::test]
    async fn unauthenticated_clients_are_few() {
        let bounds = Bounds { unauthenticated: Some(2), ..TENANTS };
        let address = serving(bounds).await;
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let said = answer(trusting(address).await, &request("/", "connection: close\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert_eq!(answer(silent.remove(0), "").await, "");
    }

    #[test]
    fn files_that_are_not_a_certificate_and_its_key_are_refused() {
        for (chain, key, reason) in [
            (&b""[..], KEY, "no PEM certificate"),
            (CHAIN, &b""[..], "the key cannot be read"),
            (OTHER, KEY, "do not fit each other"),
        ] {
            let refused = Certificate::new(chain, key).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
