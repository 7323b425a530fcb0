//! Connections of the client: to a unix socket, or to an address, with TLS or without.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::HostStream;
use crate::endpoint::{Endpoint, HostTarget, InProcess, TlsServer};

/// The limit on the time in which another host accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time without data after which the other end is asked whether it is there, and the number of
/// times it is asked.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// The limit on the time for a connection over TLS with its handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit on the time for which data stays unacknowledged, so that a connection to a host that
/// vanished breaks.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a connection is tried again if the listen queue of a unix socket is full.
/// Connecting to such a socket fails at once instead of waiting, as it does over TCP.
const FULL_QUEUE_RETRY: Duration = Duration::from_millis(20);

impl InProcess {
    fn connect(self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let ended = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        self.0.send(theirs).map_err(ended)?;
        Ok(ours)
    }
}

impl Endpoint {
    async fn connect(self) -> io::Result<ClientStream> {
        match self {
            Self::InProcess(server) => server.connect().map(ClientStream::Unix),
            Self::Unix(path) => loop {
                match UnixStream::connect(&*path).await {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        tokio::time::sleep(FULL_QUEUE_RETRY).await;
                    }
                    connected => return connected.map(ClientStream::Unix),
                }
            },
            Self::Tcp(target) => tcp(&target).await.map(ClientStream::Tcp),
            Self::Tls(server) => {
                tls(&server).await.map(|stream| ClientStream::Tls(Box::new(stream)))
            }
        }
    }
}

/// Connects to another process of the cluster. Nothing is sent before its certificate was verified.
pub(crate) async fn tcp(target: &HostTarget) -> io::Result<HostStream> {
    let connecting = async {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_tcp_user_timeout(&stream, unacknowledged_timeout())?;
        HostStream::connected(stream, &target.meant, &target.credential).await
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Connects over TLS, to the address for clients of other hosts. Nothing is sent, and so no token,
/// before the server's certificate was verified.
async fn tls(server: &TlsServer) -> io::Result<TlsStream<TcpStream>> {
    let connecting = async {
        let stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        watch(&stream)?;
        let connector = TlsConnector::from(Arc::clone(server.config()));
        connector.connect(server.name().clone(), stream).await
    };
    let connected = tokio::time::timeout(TLS_TIMEOUT, connecting).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Whether a connection failed because the server's certificate is not trusted.
pub(super) fn is_not_trusted(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Has the kernel find out that the other end has vanished, also while nothing is sent.
pub(crate) fn watch(stream: &impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, unacknowledged_timeout())
}

/// The limit on the time for which data stays unacknowledged, in milliseconds.
pub(crate) fn unacknowledged_timeout() -> u32 {
    u32::try_from(UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX)
}

/// Opens connections to one endpoint, whatever the host in a request's URI is.
#[derive(Clone, Debug)]
pub(super) struct Connector(pub Endpoint);

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<ClientStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.0.clone().connect();
        Box::pin(async { connecting.await.map(TokioIo::new) })
    }
}

/// The connection of a client.
#[derive(Debug)]
pub(super) enum ClientStream {
    Unix(UnixStream),
    Tcp(HostStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for ClientStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
