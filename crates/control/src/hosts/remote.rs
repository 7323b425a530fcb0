//! HTTP to another host, with the token of the cluster: to an agent, or from a host to control.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_api::{HostFacts, HostJoin, PartNetwork};
use snowmelt_node::agent::api::{
    CodePresence, JobPart, PartCalls, PartOpen, PartReady, RankEnd, ReadyWithin, RouteFound,
    RouteTo, UploadCode,
};
use snowmelt_types::{Code, ErrorReport, HostName, JobId};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

pub use snowmelt_node::agent::Token;

/// How long a host may take to accept a connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(3);

/// How long the answer to a request without work may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How many ends of ranks are buffered for their reader.
const ENDS_AHEAD: usize = 64;

/// Another host by its address. Holds no connection.
#[derive(Clone, Debug)]
pub struct Remote {
    address: SocketAddr,
    token: Token,
}

impl Remote {
    /// The one that listens there.
    pub fn new(address: SocketAddr, token: Token) -> Self {
        Self { address, token }
    }

    /// Reports this host to control.
    pub async fn join(&self, join: &HostJoin) -> Result<(), ErrorReport> {
        // A control that vanished in between would never answer, not even when it is back.
        let telling = self.send(Method::POST, "/v1/hosts", Some(join));
        let told = tokio::time::timeout(ANSWERS_WITHIN, telling).await;
        told.map_err(|_| self.lost(&"it does not answer"))?.map(drop)
    }

    /// Resources and load of a host, if it answers within this time.
    pub(super) async fn facts(&self, within: Duration) -> Result<HostFacts, ErrorReport> {
        let asking = async {
            parse(&self.whole(self.send::<()>(Method::GET, "/v1/host", None).await?).await?)
        };
        let answered = tokio::time::timeout(within, asking).await;
        answered.map_err(|_| self.lost(&"it does not answer"))?
    }

    /// Reports to control that this host leaves.
    pub async fn leave(&self, name: &HostName) -> Result<(), ErrorReport> {
        let path = format!("/v1/hosts/{name}");
        self.send::<()>(Method::DELETE, &path, None).await.map(drop)
    }

    pub(super) async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport> {
        let response = self.send(Method::POST, "/v1/code", Some(code)).await?;
        parse(&self.whole(response).await?)
    }

    pub(super) async fn open(&self, part: &JobPart) -> Result<PartOpen, ErrorReport> {
        let response = self.send(Method::POST, "/v1/jobs", Some(part)).await?;
        parse(&self.whole(response).await?)
    }

    pub(super) async fn ready(
        &self,
        job: &JobId,
        within: Duration,
    ) -> Result<PartReady, ErrorReport> {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let path = format!("/v1/jobs/{job}/ready");
        let response = self.send(Method::POST, &path, Some(&ReadyWithin { within_ms })).await?;
        parse(&self.whole(response).await?)
    }

    pub(super) async fn call(
        &self,
        job: &JobId,
        calls: &PartCalls,
    ) -> Result<mpsc::Receiver<RankEnd>, ErrorReport> {
        let path = format!("/v1/jobs/{job}/calls");
        let response = self.send(Method::POST, &path, Some(calls)).await?;
        let (sender, receiver) = mpsc::channel(ENDS_AHEAD);
        tokio::spawn(async move {
            // The receiver is gone: the body is dropped, and the host ends the remaining ranks.
            tokio::select! {
                () = sender.closed() => {}
                () = lines(response.into_body(), &sender) => {}
            }
        });
        Ok(receiver)
    }

    pub(super) async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        let path = format!("/v1/jobs/{job}/end");
        self.send(Method::POST, &path, Some(error)).await.map(drop)
    }

    pub(super) async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        let path = format!("/v1/jobs/{job}/network");
        parse(&self.whole(self.send::<()>(Method::GET, &path, None).await?).await?)
    }

    pub(super) async fn route(
        &self,
        job: &JobId,
        asked: &RouteTo,
    ) -> Result<RouteFound, ErrorReport> {
        let path = format!("/v1/jobs/{job}/way");
        parse(&self.whole(self.send(Method::POST, &path, Some(asked)).await?).await?)
    }

    pub(super) async fn close(&self, job: &JobId) -> Result<(), ErrorReport> {
        let path = format!("/v1/jobs/{job}");
        let closing = self.send::<()>(Method::DELETE, &path, None);
        let closed = tokio::time::timeout(ANSWERS_WITHIN, closing).await;
        closed.map_err(|_| self.lost(&"it does not answer"))?.map(drop)
    }

    async fn send<T: Serialize>(
        &self,
        method: Method,
        path: &str,
        message: Option<&T>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let body = message.map(serde_json::to_vec).transpose().map_err(internal)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("authorization", self.token.header())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(internal)?;
        let connecting = TcpStream::connect(self.address);
        let connected = tokio::time::timeout(CONNECTS_WITHIN, connecting).await;
        let stream = connected
            .map_err(|_| self.lost(&"it does not answer"))?
            .map_err(|error| self.lost(&error))?;
        stream.set_nodelay(true).map_err(|error| self.lost(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.lost(&error))?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let report = parse(&self.whole(response).await?);
        let unexplained = format!("{} answered {status} without a reason", self.address);
        Err(report.unwrap_or_else(|_: ErrorReport| ErrorReport::new(Code::PROTOCOL, unexplained)))
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ErrorReport> {
        let body = response.into_body().collect().await.map_err(|error| self.lost(&error))?;
        Ok(body.to_bytes())
    }

    fn lost(&self, error: &dyn std::fmt::Display) -> ErrorReport {
        let message = format!("{} cannot be reached: {error}", self.address);
        ErrorReport::new(Code::SERVER_UNREACHABLE, message)
    }
}

/// Forwards each line as it arrives; invalid data ends the stream, and the missing ranks show that.
async fn lines(mut body: Incoming, ends: &mpsc::Sender<RankEnd>) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end + 1);
            let Ok(end) = serde_json::from_slice(&line) else { return };
            if ends.send(end).await.is_err() {
                return;
            }
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReport> {
    serde_json::from_slice(body).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, error.to_string())
}
