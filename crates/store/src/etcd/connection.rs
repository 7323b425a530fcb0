//! A connection to one server of etcd: HTTP/2 over TCP, with TLS if the settings have it.
//!
//! Invariant: a connection whose other side is gone ends within seconds while a call uses it, also
//! if nothing is sent: etcd is asked for a sign of life.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::grpc::{ActiveCalls, CallFailure, GrpcCall, lost};
use super::settings::EtcdServer;

/// Time for TCP, TLS and HTTP/2 together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two signs of life. etcd ends connections that ask more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
/// Time for a sign of life.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes that may be on the way before they are read.
const WINDOW: u32 = 4 << 20;

/// An open connection.
pub(super) struct EtcdConnection {
    sender: SendRequest<Bytes>,
    base: String,
    calls: ActiveCalls,
    driver: AbortHandle,
}

impl std::fmt::Debug for EtcdConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base)
    }
}

impl EtcdConnection {
    /// Connects to a server.
    pub async fn open(
        server: &EtcdServer,
        tls: Option<&TlsConnector>,
    ) -> Result<Self, CallFailure> {
        match timeout(CONNECT_TIMEOUT, Self::connect(server, tls)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(reason)) => Err(CallFailure::NotSent(format!("{server}: {reason}"))),
            Err(_) => {
                let seconds = CONNECT_TIMEOUT.as_secs();
                Err(CallFailure::NotSent(format!("{server}: no connection within {seconds} s")))
            }
        }
    }

    async fn connect(server: &EtcdServer, tls: Option<&TlsConnector>) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let tcp = TcpStream::connect((&*server.host, server.port)).await.map_err(text)?;
        tcp.set_nodelay(true).map_err(text)?;
        let Some(tls) = tls else {
            return Self::over(tcp, format!("http://{server}")).await;
        };
        let name = server.host.clone().try_into();
        let name = name.map_err(|_| format!("`{}` is no name of a host", server.host))?;
        let stream = tls.connect(name, tcp).await.map_err(text)?;
        Self::over(stream, format!("https://{server}")).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        base: String,
    ) -> Result<Self, String> {
        let mut client = h2::client::Builder::new();
        client.initial_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
        let (sender, mut connection) =
            client.handshake(stream).await.map_err(|error: h2::Error| error.to_string())?;
        let pings = connection.ping_pong();
        let calls = ActiveCalls::default();
        let active = calls.clone();
        let driver = tokio::spawn(async move {
            // Dropped at the end of either, which ends all its calls.
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to etcd ended");
                    }
                }
                () = silent(pings, active) => tracing::debug!("etcd gives no sign of life"),
            }
        });
        Ok(Self { sender, base, calls, driver: driver.abort_handle() })
    }

    /// Whether calls can begin.
    pub fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Begins a call of a method. etcd refuses it while it has no leader.
    pub async fn begin<A: Message + Default>(
        &self,
        method: &str,
        token: Option<&str>,
    ) -> Result<GrpcCall<A>, CallFailure> {
        let not_sent = |reason: String| CallFailure::NotSent(format!("{}: {reason}", self.base));
        let mut request = Request::post(format!("{}/etcdserverpb.{method}", self.base))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("hasleader", "true");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(()).map_err(|error| not_sent(error.to_string()))?;
        let ready = self.sender.clone().ready().await;
        let mut ready = ready.map_err(|error| not_sent(error.to_string()))?;
        let sent = ready.send_request(request, false);
        let (answer, requests) = sent.map_err(|error| not_sent(error.to_string()))?;
        Ok(GrpcCall::new(requests, answer, self.calls.begin()))
    }

    /// Calls a method with one request and one answer.
    pub async fn unary<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        token: Option<&str>,
        within: Duration,
    ) -> Result<A, CallFailure> {
        let call = async {
            let mut call = self.begin(method, token).await?;
            call.send(request, true)?;
            call.only().await
        };
        timeout(within, call).await.unwrap_or_else(|_| {
            Err(lost(format!("{} does not answer within {within:.1?}", self.base)))
        })
    }
}

/// Ends when etcd gives no sign of life during a call.
async fn silent(pings: Option<h2::PingPong>, calls: ActiveCalls) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(PING_EVERY).await;
        // etcd ends connections that ask without a call.
        if calls.are_none() {
            continue;
        }
        match timeout(PING_TIMEOUT, pings.ping(h2::Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
