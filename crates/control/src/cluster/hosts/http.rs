//! HTTP to another process of the cluster: to an agent, or from a host to control.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use hyper::body::Body;
use serde::{Deserialize, Serialize};
use snowmelt_api::{HostFacts, HostJoin, PartNetwork};
use snowmelt_node::{MAX_ANSWER, TreePlace};
use snowmelt_rpc::client::{self, NO_BODY};
use snowmelt_rpc::membership::Removed;
use snowmelt_rpc::membership::authority::SigningRequest;
use snowmelt_rpc::{Client, Credential, HostStream, HostTarget, Meant, check_protocol, upgrade};
use snowmelt_tasks::agent::api::{
    CodePresence, EndsFrom, FunctionCall, FunctionEnd, HeldImage, JobPart, PartCalls, PartEnds,
    PartOpen, PartReady, PrepareFunction, ReadyWithin, RouteFound, RouteTo, UploadCode,
};
use snowmelt_types::{Code, Digest, ErrorReport, HostName, JobId, Report};

use super::{AnswerRoom, HostApi, NotCalled};
use crate::cluster::authority::{Certified, JoinAsk};

/// The most time for an answer that takes no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Another host, by its address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Remote {
    http: Client,
    target: Arc<HostTarget>,
}

impl Remote {
    /// Makes the remote that listens at an address.
    pub fn new(address: SocketAddr, meant: Meant, credential: impl Into<Credential>) -> Self {
        let target = Arc::new(HostTarget { address, meant, credential: credential.into() });
        Self { http: Client::host(Arc::clone(&target)), target }
    }

    /// Tells control that this host is up.
    pub async fn join(&self, join: &HostJoin) -> Result<ReportTaken, ErrorReport> {
        // A control that vanished in between would never answer, not even when it is back.
        let asked = self.http.json(Method::POST, "/v1/hosts", Some(join));
        let taken: ReportTaken = self.within(ANSWER_TIMEOUT, asked).await?;
        check_protocol("control", taken.protocol)?;
        Ok(taken)
    }

    /// Asks control for the first certificate of this host.
    pub(crate) async fn first_certificate(&self, ask: &JoinAsk) -> Result<Certified, ErrorReport> {
        self.within(ANSWER_TIMEOUT, self.http.json(Method::POST, "/v1/join", Some(ask))).await
    }

    /// Asks control for the next certificate of this host.
    pub(crate) async fn renew(
        &self,
        name: &HostName,
        request: &SigningRequest,
    ) -> Result<Certified, ErrorReport> {
        let path = format!("/v1/hosts/{name}/certificate");
        self.within(ANSWER_TIMEOUT, self.http.json(Method::POST, &path, Some(request))).await
    }

    /// Asks the control that leads for its clock.
    pub(crate) async fn clock(&self) -> Result<ControlClock, ErrorReport> {
        self.within(ANSWER_TIMEOUT, self.http.json(Method::GET, "/v1/clock", NO_BODY)).await
    }

    /// Tells control that this host leaves.
    pub async fn leave(&self, name: &HostName) -> Result<(), ErrorReport> {
        let path = format!("/v1/hosts/{name}");
        self.within(ANSWER_TIMEOUT, self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    async fn within<T>(
        &self,
        time: Duration,
        asked: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let answered = tokio::time::timeout(time, asked).await;
        answered.unwrap_or_else(|_| {
            let message = format!("{} does not answer", self.http.endpoint());
            Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message))
        })
    }
}

/// The clock of the control that leads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControlClock {
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// The answer of control to the report of a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportTaken {
    /// The hosts that were removed.
    pub removed: Removed,
    /// Whether it is sure that this control leads. If not, another one may.
    pub is_sure: bool,
    /// The version of the protocol that control speaks; 0 if it says none.
    #[serde(default)]
    pub protocol: u32,
}

#[async_trait]
impl HostApi for Remote {
    async fn facts(&self, within: Duration) -> Result<HostFacts, ErrorReport> {
        self.within(within, self.http.json(Method::GET, "/v1/host", NO_BODY)).await
    }

    async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport> {
        self.http.json(Method::POST, "/v1/code", Some(code)).await
    }

    async fn place(&self, place: &TreePlace) -> Result<(), ErrorReport> {
        let asked = self.http.no_content(Method::POST, "/v1/images/places", Some(place));
        self.within(ANSWER_TIMEOUT, asked).await
    }

    async fn image_bytes(&self) -> Result<Vec<HeldImage>, ErrorReport> {
        self.within(ANSWER_TIMEOUT, self.http.json(Method::GET, "/v1/images/bytes", NO_BODY)).await
    }

    async fn prepared_functions(&self) -> Result<Vec<Digest>, ErrorReport> {
        self.within(ANSWER_TIMEOUT, self.http.json(Method::GET, "/v1/functions", NO_BODY)).await
    }

    async fn prepare_function(
        &self,
        function: &Digest,
        order: &PrepareFunction,
    ) -> Result<(), ErrorReport> {
        let path = format!("/v1/functions/{function}");
        self.http.no_content(Method::PUT, &path, Some(order)).await
    }

    async fn call_function(
        &self,
        function: &Digest,
        call: &FunctionCall,
        room: AnswerRoom<'_>,
    ) -> Result<FunctionEnd, NotCalled> {
        let path = format!("/v1/functions/{function}/calls");
        let sent = self.http.exchange_once(Method::POST, &path, Some(call)).await;
        let response = sent.map_err(|unanswered| match unanswered.report.known_code() {
            _ if unanswered.may_have_arrived => NotCalled::Unknown(unanswered.report),
            Code::HOST_STOPPED | Code::SERVER_UNREACHABLE | Code::CERTIFICATE => {
                NotCalled::NotRun(unanswered.report)
            }
            // No host can be sent this, as it is too long.
            _ => NotCalled::Failed(unanswered.report),
        })?;
        let status = response.status();
        if !status.is_success() {
            let body = self.http.whole(response).await.map_err(NotCalled::Unknown)?;
            return Err(NotCalled::answered(self.http.problem(status, &body)));
        }
        // The log beside the answer is small.
        let length = response.body().size_hint().lower().min(MAX_ANSWER.bytes());
        let held = room.node.room_for_answer(room.tenant, length).await;
        let held = held.map_err(|error| NotCalled::Failed(error.report()))?;
        let body = self.http.whole(response).await.map_err(NotCalled::Unknown)?;
        let end: FunctionEnd = client::decode(&body).map_err(NotCalled::Failed)?;
        let result = end.result.map(|result| result.held_by(held));
        Ok(FunctionEnd { result, ..end })
    }

    async fn forget_function(&self, function: &Digest) -> Result<(), ErrorReport> {
        let path = format!("/v1/functions/{function}");
        self.within(ANSWER_TIMEOUT, self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    async fn open(&self, part: JobPart) -> Result<PartOpen, ErrorReport> {
        self.http.json(Method::POST, "/v1/jobs", Some(&part)).await
    }

    async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport> {
        let path = format!("/v1/jobs/{job}/ready");
        let asked = ReadyWithin { within_ms: milliseconds(within) };
        self.http.json(Method::POST, &path, Some(&asked)).await
    }

    async fn call(&self, job: &JobId, calls: &PartCalls) -> Result<(), ErrorReport> {
        let path = format!("/v1/jobs/{job}/calls");
        self.http.no_content(Method::POST, &path, Some(calls)).await
    }

    async fn ends(
        &self,
        job: &JobId,
        from: usize,
        within: Duration,
    ) -> Result<PartEnds, ErrorReport> {
        let path = format!("/v1/jobs/{job}/ends");
        let asked = EndsFrom { from, within_ms: milliseconds(within) };
        let asking = self.http.json(Method::POST, &path, Some(&asked));
        self.within(within + ANSWER_TIMEOUT, asking).await
    }

    async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        self.http.no_content(Method::POST, &format!("/v1/jobs/{job}/end"), Some(error)).await
    }

    async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        self.http.json(Method::GET, &format!("/v1/jobs/{job}/network"), NO_BODY).await
    }

    async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport> {
        self.http.json(Method::POST, &format!("/v1/jobs/{job}/route"), Some(&asked)).await
    }

    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport> {
        upgrade::connect(&self.target, path).await
    }

    async fn close(&self, job: &JobId) -> Result<(), ErrorReport> {
        let path = format!("/v1/jobs/{job}");
        self.within(ANSWER_TIMEOUT, self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
