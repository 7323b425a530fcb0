//! The client of the gateway: HTTP over a unix socket.

use std::path::PathBuf;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::{Buf, BytesMut};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_api::{
    BurstAnswer, BurstCalls, BurstStatus, Event, Figures, FunctionSpec, FunctionSummary,
    HostSummary, Invocation, InvokeRequest, LogEntry, NetworkDetail, NetworkSummary, PackRequest,
    Packed, Profile, QueryRequest, ShutdownRequest, Status, TENANT_HEADER, Trace, TraceRequest,
};
use snowmelt_rpc::client::{NO_BODY, decode};
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, JobId, Report, Tenant};
use snowmelt_wire::{BatchDecoder, Frame, HEADER_BYTES, Kind};

/// How long a server may take for a request that needs no work. A busy server answers; a stopped
/// one does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often a server that takes long is probed.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// How long to wait for a server that is being started again, and how often it is tried.
const RETURNS_WITHIN: Duration = Duration::from_secs(30);
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A failure of a call that was begun.
#[derive(Deserialize)]
struct Begun {
    invocation: Invocation,
}

/// Sends requests to a platform. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: snowmelt_rpc::Client,
}

/// The parts of the answer of a query, in order.
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

/// The answer of a query as a stream. Dropping it cancels the query.
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
        Self { http: snowmelt_rpc::Client::unix(socket) }
    }

    /// Acts for this tenant; without one, for the tenant of the user of this process.
    pub fn for_tenant(self, tenant: Option<&Tenant>) -> Self {
        Self { http: self.http.with_header(TENANT_HEADER, tenant.map(Tenant::as_str)) }
    }

    /// What runs there.
    pub async fn status(&self) -> Result<Status, ErrorReport> {
        self.get("/v1/status").await
    }

    /// Runs a query.
    pub async fn query(&self, request: &QueryRequest) -> Result<QueryStream, ErrorReport> {
        let asked = self.http.send(Method::POST, "/v1/queries", Some(request));
        let response = self.unless_silent(asked).await?;
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
        self.json(Method::POST, "/v1/packages", Some(request)).await
    }

    /// Deploys a function, or replaces it.
    pub async fn deploy(&self, spec: &FunctionSpec) -> Result<FunctionSummary, ErrorReport> {
        self.json(Method::POST, "/v1/functions", Some(spec)).await
    }

    /// Every deployed function.
    pub async fn functions(&self) -> Result<Vec<FunctionSummary>, ErrorReport> {
        self.get("/v1/functions").await
    }

    /// Removes a function.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ErrorReport> {
        let path = format!("/v1/functions/{name}");
        self.soon(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
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
        let asked = self.http.exchange(Method::POST, &path, Some(request));
        let response = self.unless_silent(asked).await?;
        let status = response.status();
        let body = self.http.whole(response).await?;
        if status.is_success() {
            return decode(&body);
        }
        let report = self.http.problem(status, &body);
        // The failure of a call that was begun contains the call.
        match decode(&body) {
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

    /// All hosts of the cluster.
    pub async fn hosts(&self) -> Result<Vec<HostSummary>, ErrorReport> {
        self.get("/v1/hosts").await
    }

    /// The jobs that have a network.
    pub async fn networks(&self) -> Result<Vec<NetworkSummary>, ErrorReport> {
        self.get("/v1/networks").await
    }

    /// The network of a job on each of its hosts.
    pub async fn network(&self, job: &JobId) -> Result<NetworkDetail, ErrorReport> {
        // Its hosts are asked, and one that does not answer is waited for.
        let path = format!("/v1/networks/{}", segment(job.as_str()));
        self.json(Method::GET, &path, NO_BODY).await
    }

    /// The route of a packet between functions of a job.
    pub async fn trace(&self, job: &JobId, asked: &TraceRequest) -> Result<Trace, ErrorReport> {
        let path = format!("/v1/networks/{}/trace", segment(job.as_str()));
        self.json(Method::POST, &path, Some(asked)).await
    }

    /// Runs a deployed function once for each event, all at once. A connection that breaks is opened
    /// again: the burst goes on without it.
    pub async fn burst_deployed(
        &self,
        name: &FunctionName,
        job: &JobId,
        calls: BurstCalls,
    ) -> Result<BurstAnswer, ErrorReport> {
        let path = format!("/v1/functions/{name}/bursts");
        let calls = BurstCalls { job: Some(job.clone()), ..calls };
        let lost = match self.json(Method::POST, &path, Some(&calls)).await {
            Err(error) if error.known_code() == Code::SERVER_UNREACHABLE => error,
            answer => return answer,
        };
        self.wait_again(job, lost).await
    }

    /// Begins such a burst, which goes on by itself.
    pub async fn start_burst(
        &self,
        name: &FunctionName,
        calls: BurstCalls,
    ) -> Result<BurstStatus, ErrorReport> {
        let path = format!("/v1/functions/{name}/bursts");
        let calls = BurstCalls { asynchronous: true, ..calls };
        self.json(Method::POST, &path, Some(&calls)).await
    }

    /// The bursts that run, and those whose outcomes are kept.
    pub async fn bursts(&self) -> Result<Vec<BurstStatus>, ErrorReport> {
        self.get("/v1/bursts").await
    }

    /// Waits for the answer of a burst. A connection that breaks is opened again.
    pub async fn wait_for_burst(&self, job: &JobId) -> Result<BurstAnswer, ErrorReport> {
        match self.burst_answer(job).await {
            Err(error) if error.known_code() == Code::SERVER_UNREACHABLE => {
                self.wait_again(job, error).await
            }
            answer => answer,
        }
    }

    /// Ends a burst, or forgets its outcome.
    pub async fn remove_burst(&self, job: &JobId) -> Result<(), ErrorReport> {
        let path = format!("/v1/bursts/{}", segment(job.as_str()));
        self.soon(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    async fn burst_answer(&self, job: &JobId) -> Result<BurstAnswer, ErrorReport> {
        let path = format!("/v1/bursts/{}/answer", segment(job.as_str()));
        self.json(Method::GET, &path, NO_BODY).await
    }

    /// Waits for a burst whose connection was lost, as long as the server may come back.
    async fn wait_again(&self, job: &JobId, lost: ErrorReport) -> Result<BurstAnswer, ErrorReport> {
        let begun = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(TRIED_AGAIN_AFTER).await;
            match self.burst_answer(job).await {
                Err(error) if error.known_code() == Code::SERVER_UNREACHABLE => {
                    if begun.elapsed() > RETURNS_WITHIN {
                        return Err(error);
                    }
                }
                // It had not begun, or ended with the server.
                Err(error) if error.known_code() == Code::JOB_MISSING => return Err(lost),
                answer => return answer,
            }
        }
    }

    /// What the platform counts.
    pub async fn figures(&self) -> Result<Figures, ErrorReport> {
        self.get("/v1/figures").await
    }

    /// Asks the server to end; it answers before it does.
    pub async fn shutdown(&self, request: &ShutdownRequest) -> Result<(), ErrorReport> {
        self.soon(self.http.no_content(Method::POST, "/v1/shutdown", Some(request))).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ErrorReport> {
        self.soon(self.http.json(Method::GET, path, NO_BODY)).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ErrorReport> {
        self.unless_silent(self.http.json(method, path, body)).await
    }

    /// A request that a running server answers without delay.
    async fn soon<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
        answer.unwrap_or_else(|_| Err(self.silent()))
    }

    /// A request that may take long. Meanwhile the server is probed.
    async fn unless_silent<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let silent = async {
            loop {
                tokio::time::sleep(ASKED_EVERY).await;
                let asked = self.http.no_content(Method::GET, "/v1/figures", NO_BODY);
                match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
                    Err(_) => return Err(self.silent()),
                    // A server that refuses a further connection is not silent.
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
        let (socket, time) = (self.http.endpoint(), ANSWERS_WITHIN.as_secs());
        let message = format!("the server at {socket} does not answer within {time} s");
        ErrorReport::new(Code::SERVER_SILENT, message).hint(
            "it is stopped or hangs: `kill -CONT` lets a stopped one go on, `kill -9` ends it, and \
             `snowmelt up` starts another",
        )
    }
}

impl QueryStream {
    /// The next part; `None` once the answer is complete.
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

/// User input as a segment of a path.
fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn cut_short() -> ErrorReport {
    let message = "the platform went away before the answer was complete";
    ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("run the query again")
}
