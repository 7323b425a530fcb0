//! The client of the gateway: HTTP over a unix socket, or over TLS from another host.

mod bursts;
mod files;
mod images;
mod keys;
pub mod login;
mod query_stream;
mod quotas;

use crate::times::PROBED_EVERY;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_api::{
    Backup, Figures, FunctionSpec, FunctionSummary, HostSummary, ImageTree, Invocation,
    InvokeRequest, JoinTokenMade, JoinTokenRequest, LogEntry, NetworkDetail, NetworkSummary,
    PackRequest, Packed, PlatformPruneRequest, PrunedPart, QueryRequest, RegisterRequest,
    ShutdownRequest, Status, TENANT_HEADER, Trace, TraceRequest, UdfLogEntry, UdfSummary,
};
pub use snowmelt_rpc::Token;
pub use snowmelt_rpc::client::TlsServer;
use snowmelt_rpc::client::{NO_BODY, decode};
use snowmelt_types::{Code, ErrorReport, FunctionName, HostName, InvocationId, JobId, Tenant};

pub use files::LocalFile;
pub use images::{LocalImage, OnProgress};
pub use query_stream::{QueryFrame, QueryStream};

/// How long a server may take for a request that needs no work. A busy server answers; a stopped
/// one does not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A failure of a call that was begun, and may have run.
#[derive(Deserialize)]
struct InvocationFailure {
    invocation: Invocation,
}

/// Sends requests to a platform. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApiClient {
    http: snowmelt_rpc::Client,
}

impl ApiClient {
    /// A client of the platform that serves this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { http: snowmelt_rpc::Client::unix(socket) }
    }

    /// A client of the platform at a URL, with the token of a tenant.
    pub fn remote(server: TlsServer, token: Token) -> Self {
        Self { http: snowmelt_rpc::Client::tls(server, token) }
    }

    /// Acts for this tenant; without one, for the tenant of the user of this process.
    pub fn for_tenant(self, tenant: Option<&Tenant>) -> Self {
        Self { http: self.http.with_header(TENANT_HEADER, tenant.map(Tenant::as_str)) }
    }

    /// Returns the status of the platform.
    pub async fn status(&self) -> Result<Status, ErrorReport> {
        self.get("/v1/status").await
    }

    /// Runs a query and returns its answer as a stream.
    pub async fn query(&self, request: &QueryRequest) -> Result<QueryStream, ErrorReport> {
        let asked = self.http.send(Method::POST, "/v1/queries", Some(request));
        let response = self.unless_silent(asked).await?;
        Ok(QueryStream::new(response.into_body()))
    }

    /// Registers the UDFs of some code.
    pub async fn register(
        &self,
        request: &RegisterRequest,
    ) -> Result<Vec<UdfSummary>, ErrorReport> {
        self.json(Method::POST, "/v1/udfs", Some(request)).await
    }

    /// Returns every registered UDF.
    pub async fn udfs(&self) -> Result<Vec<UdfSummary>, ErrorReport> {
        self.get("/v1/udfs").await
    }

    /// Returns a registered UDF.
    pub async fn udf(&self, name: &str) -> Result<UdfSummary, ErrorReport> {
        self.get(&format!("/v1/udfs/{}", segment(name))).await
    }

    /// Returns the last lines that instances of a registered UDF wrote.
    pub async fn udf_log(
        &self,
        name: &str,
        tail: Option<u32>,
    ) -> Result<Vec<UdfLogEntry>, ErrorReport> {
        let tail = tail.map(|lines| format!("?tail={lines}")).unwrap_or_default();
        self.get(&format!("/v1/udfs/{}/log{tail}", segment(name))).await
    }

    /// Removes a UDF with all its versions.
    pub async fn remove_udf(&self, name: &str) -> Result<(), ErrorReport> {
        let path = format!("/v1/udfs/{}", segment(name));
        self.soon(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    /// Makes a code package.
    pub async fn pack(&self, request: &PackRequest) -> Result<Packed, ErrorReport> {
        self.json(Method::POST, "/v1/packages", Some(request)).await
    }

    /// Deploys a function, or replaces it.
    pub async fn deploy(&self, spec: &FunctionSpec) -> Result<FunctionSummary, ErrorReport> {
        self.json(Method::POST, "/v1/functions", Some(spec)).await
    }

    /// Returns every deployed function.
    pub async fn functions(&self) -> Result<Vec<FunctionSummary>, ErrorReport> {
        self.get("/v1/functions").await
    }

    /// Removes a function.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ErrorReport> {
        let path = format!("/v1/functions/{name}");
        self.soon(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    /// Returns a deployed function.
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
            Ok(InvocationFailure { invocation }) => {
                Ok(Invocation { error: Some(report), ..invocation })
            }
            Err(_) => Err(report),
        }
    }

    /// Returns an asynchronous call.
    pub async fn invocation(&self, id: &InvocationId) -> Result<Invocation, ErrorReport> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !id.as_str().chars().all(plain) {
            let message = format!("`{id}` is not the id of an invocation");
            return Err(ErrorReport::new(Code::INVOCATION_MISSING, message));
        }
        self.get(&format!("/v1/invocations/{id}")).await
    }

    /// Returns the output of a function's invocations: of one invocation, or the last entries.
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

    /// Returns the trees of hosts through which images and files spread: all, or those of a
    /// function or of images that begin with a name.
    pub async fn trees(&self, of: Option<&str>) -> Result<Vec<ImageTree>, ErrorReport> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(of.map(|name| ("of", name)));
        self.get(&format!("/v1/trees?{}", query.finish())).await
    }

    /// Returns all hosts of the cluster.
    pub async fn hosts(&self) -> Result<Vec<HostSummary>, ErrorReport> {
        self.get("/v1/hosts").await
    }

    /// Makes a token with which one host joins the cluster.
    pub async fn join_token(&self, ask: &JoinTokenRequest) -> Result<JoinTokenMade, ErrorReport> {
        self.http.json(Method::POST, "/v1/join-tokens", Some(ask)).await
    }

    /// Removes a host from the cluster.
    pub async fn remove_host(&self, host: &HostName) -> Result<(), ErrorReport> {
        let path = format!("/v1/hosts/{}", segment(host.as_str()));
        self.http.no_content(Method::DELETE, &path, NO_BODY).await
    }

    /// Has a host get no new work, or has it get new work again.
    pub async fn drain(&self, host: &HostName, drained: bool) -> Result<(), ErrorReport> {
        let method = if drained { Method::POST } else { Method::DELETE };
        let path = format!("/v1/hosts/{}/drain", segment(host.as_str()));
        self.soon(self.http.no_content(method, &path, NO_BODY)).await
    }

    /// Returns the jobs that have a network.
    pub async fn networks(&self) -> Result<Vec<NetworkSummary>, ErrorReport> {
        self.get("/v1/networks").await
    }

    /// Returns the network of a job on each of its hosts.
    pub async fn network(&self, job: &JobId) -> Result<NetworkDetail, ErrorReport> {
        // Its hosts are asked, and one that does not answer is waited for.
        let path = format!("/v1/networks/{}", segment(job.as_str()));
        self.json(Method::GET, &path, NO_BODY).await
    }

    /// Traces the route of a packet between functions of a job.
    pub async fn trace(&self, job: &JobId, asked: &TraceRequest) -> Result<Trace, ErrorReport> {
        let path = format!("/v1/networks/{}/trace", segment(job.as_str()));
        self.json(Method::POST, &path, Some(asked)).await
    }

    /// Returns the counters of the platform.
    pub async fn figures(&self) -> Result<Figures, ErrorReport> {
        self.get("/v1/figures").await
    }

    /// Has the server copy its state.
    pub async fn back_up(&self) -> Result<Backup, ErrorReport> {
        self.json(Method::POST, "/v1/backups", NO_BODY).await
    }

    /// Removes data that nothing uses, or counts it.
    pub async fn prune(
        &self,
        request: &PlatformPruneRequest,
    ) -> Result<Vec<PrunedPart>, ErrorReport> {
        self.json(Method::POST, "/v1/prunings", Some(request)).await
    }

    /// Asks the server to end. The server answers before it ends.
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

    /// Sends a request that a running server answers without delay.
    async fn soon<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        answer.unwrap_or_else(|_| Err(self.silent()))
    }

    /// Sends a request that may take long. Meanwhile the server is probed.
    async fn unless_silent<T>(
        &self,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let silent = async {
            loop {
                tokio::time::sleep(PROBED_EVERY).await;
                let asked = self.http.no_content(Method::GET, "/v1/figures", NO_BODY);
                match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
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
        let socket = self.http.endpoint();
        let time = ANSWER_TIMEOUT.as_secs();
        let message = format!("the server at {socket} does not answer within {time} s");
        ErrorReport::new(Code::SERVER_SILENT, message).hint(
            "it is stopped or hangs: `kill -CONT` lets a stopped one go on, `kill -9` ends it, and \
             `snowmelt up` starts another",
        )
    }
}

/// Encodes user input as a segment of a path.
fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
