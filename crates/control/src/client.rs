//! The client of the gateway: HTTP over a unix socket, one connection for each request.

use std::path::PathBuf;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_api::{
    BurstAnswer, BurstCalls, BurstRequest, Event, Figures, FunctionSpec, FunctionSummary,
    HostSummary, Invocation, InvokeRequest, LogEntry, MOST_REQUEST_BYTES, NetworkDetail,
    NetworkSummary, PackRequest, Packed, Profile, QueryRequest, ShutdownRequest, Status,
    TENANT_HEADER, Trace, TraceRequest,
};
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, JobId, Report, Tenant};
use snowmelt_wire::{BatchDecoder, Frame, HEADER_BYTES, Kind};
use tokio::net::UnixStream;

use crate::answers::too_long;

/// How long a server may take for what it knows. One that is busy answers; one that is stopped does
/// not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often a server that takes long is asked whether it is there.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// How long to wait for a place among its connections.
const CONNECTS_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A failure of a call that was begun.
#[derive(Deserialize)]
struct Begun {
    invocation: Invocation,
}

/// Talks to a platform. Cheap to make; it holds no connection.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    tenant: Option<Tenant>,
}

/// What comes of a query, in order.
#[derive(Debug)]
pub enum QueryFrame {
    /// For the progress display.
    Event(Event),
    /// The answer's schema; comes once, before the first batch.
    Schema(SchemaRef),
    /// Rows of the answer.
    Batch(RecordBatch),
    /// Comes once, after the last batch.
    Profile(Box<Profile>),
}

/// The answer of a query as it comes. Dropping it cancels the query.
pub struct QueryStream {
    body: Incoming,
    buffer: BytesMut,
    decoder: BatchDecoder,
    ready: std::collections::VecDeque<QueryFrame>,
    ended: bool,
}

impl Client {
    /// A client of the platform that serves this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), tenant: None }
    }

    /// A client that acts for a tenant; by default for that of its user.
    pub fn for_tenant(self, tenant: Option<Tenant>) -> Self {
        Self { tenant, ..self }
    }

    /// What runs there.
    pub async fn status(&self) -> Result<Status, ErrorReport> {
        self.get("/v1/status").await
    }

    /// Runs a query.
    pub async fn query(&self, request: &QueryRequest) -> Result<QueryStream, ErrorReport> {
        let response = self.send(Method::POST, "/v1/queries", Some(request)).await?;
        Ok(QueryStream {
            body: response.into_body(),
            buffer: BytesMut::new(),
            decoder: BatchDecoder::default(),
            ready: std::collections::VecDeque::new(),
            ended: false,
        })
    }

    /// Makes a code package.
    pub async fn pack(&self, request: &PackRequest) -> Result<Packed, ErrorReport> {
        parse(self.send(Method::POST, "/v1/packages", Some(request)).await?).await
    }

    /// Deploys a function, or replaces it.
    pub async fn deploy(&self, spec: &FunctionSpec) -> Result<FunctionSummary, ErrorReport> {
        parse(self.send(Method::POST, "/v1/functions", Some(spec)).await?).await
    }

    /// Every deployed function.
    pub async fn functions(&self) -> Result<Vec<FunctionSummary>, ErrorReport> {
        self.get("/v1/functions").await
    }

    /// Removes a function.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ErrorReport> {
        let path = format!("/v1/functions/{name}");
        self.soon(self.send::<()>(Method::DELETE, &path, None)).await?;
        Ok(())
    }

    /// A deployed function.
    pub async fn function(&self, name: &FunctionName) -> Result<FunctionSummary, ErrorReport> {
        self.get(&format!("/v1/functions/{name}")).await
    }

    /// Calls a function.
    pub async fn invoke(
        &self,
        name: &FunctionName,
        request: &InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        let path = format!("/v1/functions/{name}/invocations");
        let response = self.request(Method::POST, &path, Some(request)).await?;
        if response.status().is_success() {
            return parse(response).await;
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|_| cut_short())?.to_bytes();
        let report: ErrorReport = serde_json::from_slice(&body).map_err(|_| unexplained(status))?;
        // A call that was begun is told with its failure.
        match serde_json::from_slice(&body) {
            Ok(Begun { invocation }) => Ok(Invocation { error: Some(report), ..invocation }),
            Err(_) => Err(report),
        }
    }

    /// An asynchronous call.
    pub async fn invocation(&self, id: &InvocationId) -> Result<Invocation, ErrorReport> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !id.as_str().chars().all(plain) {
            let message = format!("`{id}` is not the id of an invocation");
            return Err(ErrorReport::new(Code::INVOCATION_MISSING, message));
        }
        self.get(&format!("/v1/invocations/{id}")).await
    }

    /// What invocations wrote.
    pub async fn logs(
        &self,
        name: &FunctionName,
        invocation: Option<&InvocationId>,
        tail: Option<u32>,
    ) -> Result<Vec<LogEntry>, ErrorReport> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        if let Some(id) = invocation {
            query.append_pair("invocation", id.as_str());
        }
        if let Some(tail) = tail {
            query.append_pair("tail", &tail.to_string());
        }
        self.get(&format!("/v1/functions/{name}/logs?{}", query.finish())).await
    }

    /// Every host that is there.
    pub async fn hosts(&self) -> Result<Vec<HostSummary>, ErrorReport> {
        self.get("/v1/hosts").await
    }

    /// The jobs whose functions talk.
    pub async fn networks(&self) -> Result<Vec<NetworkSummary>, ErrorReport> {
        self.get("/v1/networks").await
    }

    /// The network of a job on each of its hosts.
    pub async fn network(&self, job: &JobId) -> Result<NetworkDetail, ErrorReport> {
        // Its hosts are asked, and one that does not answer is waited for.
        let path = format!("/v1/networks/{}", segment(job.as_str()));
        parse(self.send::<()>(Method::GET, &path, None).await?).await
    }

    /// The way of a packet between functions of a job.
    pub async fn trace(&self, job: &JobId, asked: &TraceRequest) -> Result<Trace, ErrorReport> {
        let path = format!("/v1/networks/{}/trace", segment(job.as_str()));
        parse(self.send(Method::POST, &path, Some(asked)).await?).await
    }

    /// Runs a function once for each event, all at once.
    pub async fn burst(&self, request: &BurstRequest) -> Result<BurstAnswer, ErrorReport> {
        parse(self.send(Method::POST, "/v1/bursts", Some(request)).await?).await
    }

    /// Runs a deployed function once for each event, all at once.
    pub async fn burst_deployed(
        &self,
        name: &FunctionName,
        calls: &BurstCalls,
    ) -> Result<BurstAnswer, ErrorReport> {
        let path = format!("/v1/functions/{name}/bursts");
        parse(self.send(Method::POST, &path, Some(calls)).await?).await
    }

    /// What the platform counts.
    pub async fn figures(&self) -> Result<Figures, ErrorReport> {
        self.get("/v1/figures").await
    }

    /// Asks the server to end; it answers before it does.
    pub async fn shutdown(&self, request: &ShutdownRequest) -> Result<(), ErrorReport> {
        self.soon(self.send(Method::POST, "/v1/shutdown", Some(request))).await?;
        Ok(())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ErrorReport> {
        self.soon(async { parse(self.send::<()>(Method::GET, path, None).await?).await }).await
    }

    /// What a server that runs answers at once.
    async fn soon<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
        answer.unwrap_or_else(|_| Err(self.silent()))
    }

    /// What a server may take long for. Meanwhile it is asked whether it is there at all.
    async fn unless_silent<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let silent = async {
            loop {
                tokio::time::sleep(ASKED_EVERY).await;
                let asked = self.exchange(status_request()?);
                match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
                    Err(_) => return Err(self.silent()),
                    // Why a server does not take a further connection is of no interest here.
                    Ok(_) => continue,
                }
            }
        };
        tokio::select! {
            answer = asked => answer,
            silent = silent => silent,
        }
    }

    fn silent(&self) -> ErrorReport {
        let (socket, time) = (self.socket.display(), ANSWERS_WITHIN.as_secs());
        let message = format!("the server at {socket} does not answer within {time} s");
        ErrorReport::new(Code::SERVER_SILENT, message).hint(
            "it is stopped or hangs: `kill -CONT` lets a stopped one go on, `kill -9` ends it, and \
             `snowmelt up` starts another",
        )
    }

    async fn send<T: Serialize>(
        &self,
        method: Method,
        path: &str,
        message: Option<&T>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let response = self.request(method, path, message).await?;
        if response.status().is_success() { Ok(response) } else { Err(problem(response).await) }
    }

    async fn request<T: Serialize>(
        &self,
        method: Method,
        path: &str,
        message: Option<&T>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let body = message.map(serde_json::to_vec).transpose().map_err(internal)?;
        // The server would refuse it while it is being sent, and not be heard.
        if body.as_ref().is_some_and(|body| body.len() > MOST_REQUEST_BYTES) {
            return Err(too_long());
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "snowmelt")
            .header("content-type", "application/json");
        if let Some(tenant) = &self.tenant {
            request = request.header(TENANT_HEADER, tenant.as_str());
        }
        let request =
            request.body(Full::new(Bytes::from(body.unwrap_or_default()))).map_err(internal)?;
        self.unless_silent(self.exchange(request)).await
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ErrorReport> {
        let stream = self.connect().await.map_err(|error| self.lost(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(&error))?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| self.lost(&error))
    }

    /// A server that has all the connections that it may have takes this one later.
    async fn connect(&self) -> std::io::Result<UnixStream> {
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(CONNECTS_AGAIN_AFTER).await;
                }
                connected => return connected,
            }
        }
    }

    fn lost(&self, error: &dyn std::fmt::Display) -> ErrorReport {
        let socket = self.socket.display();
        ErrorReport::new(
            Code::SERVER_UNREACHABLE,
            format!("no platform answers at {socket}: {error}"),
        )
        .hint("start one with `snowmelt up`")
    }
}

impl QueryStream {
    /// What comes next; `None` once the answer is complete.
    pub async fn next(&mut self) -> Result<Option<QueryFrame>, ErrorReport> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            if self.ended {
                return Ok(None);
            }
            let frame = self.frame().await?;
            self.take(frame)?;
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), ErrorReport> {
        let broken = |error: snowmelt_wire::Error| error.report();
        match frame.kind {
            Kind::Event => self.ready.push_back(QueryFrame::Event(frame.parse().map_err(broken)?)),
            Kind::Profile => {
                let profile = frame.parse().map_err(broken)?;
                self.ready.push_back(QueryFrame::Profile(Box::new(profile)));
            }
            Kind::Schema => {
                self.decoder.push(&frame).map_err(broken)?;
                let schema = self.decoder.schema().map(QueryFrame::Schema);
                self.ready.extend(schema);
            }
            Kind::Batch => {
                let batches = self.decoder.push(&frame).map_err(broken)?;
                self.ready.extend(batches.into_iter().map(QueryFrame::Batch));
            }
            Kind::End => self.ended = true,
            Kind::Failure => return Err(frame.parse::<ErrorReport>().map_err(broken)?),
            found => {
                return Err(broken(snowmelt_wire::Error::Unexpected {
                    found,
                    expected: "an answer",
                }));
            }
        }
        Ok(())
    }

    async fn frame(&mut self) -> Result<Frame, ErrorReport> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            let data = self.body.frame().await.ok_or_else(cut_short)?.map_err(|_| cut_short())?;
            if let Ok(data) = data.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Frame>, ErrorReport> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (kind, length) =
            snowmelt_wire::decode_header(*header).map_err(|error| error.report())?;
        if self.buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(Frame::new(kind, self.buffer.split_to(length).freeze())))
    }
}

/// The least that a server can be asked.
fn status_request() -> Result<Request<Full<Bytes>>, ErrorReport> {
    let request = Request::get("/v1/figures").header("host", "snowmelt");
    request.body(Full::default()).map_err(internal)
}

/// What somebody typed, as part of a path.
fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn cut_short() -> ErrorReport {
    let message = "the platform went away before the answer was complete";
    ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("run the query again")
}

async fn parse<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ErrorReport> {
    let body = response.into_body().collect().await.map_err(|_| cut_short())?.to_bytes();
    serde_json::from_slice(&body).map_err(internal)
}

async fn problem(response: Response<Incoming>) -> ErrorReport {
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes());
    let report = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
    report.unwrap_or_else(|| unexplained(status))
}

fn unexplained(status: StatusCode) -> ErrorReport {
    ErrorReport::new(Code::PROTOCOL, format!("the platform answered {status} without a reason"))
}

fn internal(error: impl std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, error.to_string())
}
