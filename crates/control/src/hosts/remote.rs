//! HTTP to another host, with the token of the cluster: to an agent, or from a host to control.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use snowmelt_api::{HostFacts, HostJoin, PartNetwork};
use snowmelt_node::agent::api::{
    CodePresence, JobPart, PartCalls, PartOpen, PartReady, RankEnd, ReadyWithin, RouteFound,
    RouteTo, UploadCode,
};
use snowmelt_rpc::client::{Lines, NO_BODY};
use snowmelt_rpc::{Client, Token};
use snowmelt_types::{Code, ErrorReport, HostName, JobId};
use tokio::sync::mpsc;

use super::HostApi;

/// How long an answer may take that takes no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends of ranks that are buffered for a slow reader.
const ENDS_BUFFERED: usize = 64;

/// Another host by its address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Remote {
    http: Client,
}

impl Remote {
    /// The one that listens there.
    pub fn new(address: SocketAddr, token: Token) -> Self {
        Self { http: Client::tcp(address, token) }
    }

    /// Tells control that this host is up.
    pub async fn join(&self, join: &HostJoin) -> Result<(), ErrorReport> {
        // A control that vanished in between would never answer, not even when it is back.
        self.within(ANSWER_TIMEOUT, self.http.no_content(Method::POST, "/v1/hosts", Some(join)))
            .await
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

#[async_trait]
impl HostApi for Remote {
    async fn facts(&self, within: Duration) -> Result<HostFacts, ErrorReport> {
        self.within(within, self.http.json(Method::GET, "/v1/host", NO_BODY)).await
    }

    async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport> {
        self.http.json(Method::POST, "/v1/code", Some(code)).await
    }

    async fn open(&self, part: JobPart) -> Result<PartOpen, ErrorReport> {
        self.http.json(Method::POST, "/v1/jobs", Some(&part)).await
    }

    async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport> {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let path = format!("/v1/jobs/{job}/ready");
        self.http.json(Method::POST, &path, Some(&ReadyWithin { within_ms })).await
    }

    async fn call(
        &self,
        job: &JobId,
        calls: PartCalls,
    ) -> Result<mpsc::Receiver<RankEnd>, ErrorReport> {
        let path = format!("/v1/jobs/{job}/calls");
        let response = self.http.send(Method::POST, &path, Some(&calls)).await?;
        let (sender, receiver) = mpsc::channel(ENDS_BUFFERED);
        tokio::spawn(async move {
            // When the receiver is dropped, the body is dropped, and the host ends the other ranks.
            tokio::select! {
                () = sender.closed() => {}
                () = forward(Lines::new(response), &sender) => {}
            }
        });
        Ok(receiver)
    }

    async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        self.http.no_content(Method::POST, &format!("/v1/jobs/{job}/end"), Some(error)).await
    }

    async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        self.http.json(Method::GET, &format!("/v1/jobs/{job}/network"), NO_BODY).await
    }

    async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport> {
        self.http.json(Method::POST, &format!("/v1/jobs/{job}/way"), Some(&asked)).await
    }

    async fn close(&self, job: &JobId) -> Result<(), ErrorReport> {
        let path = format!("/v1/jobs/{job}");
        self.within(ANSWER_TIMEOUT, self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }
}

/// Forwards each end as it arrives. A line that is not understood ends the stream; the ranks whose
/// ends are missing are then reported as lost.
async fn forward(mut ends: Lines<RankEnd>, to: &mpsc::Sender<RankEnd>) {
    while let Ok(Some(end)) = ends.next().await {
        if to.send(end).await.is_err() {
            return;
        }
    }
}
