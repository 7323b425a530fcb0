//! Bursts: objects that go on without the connection of their client.

use std::time::Duration;

use http::Method;
use snowmelt_api::{BurstAnswer, BurstCalls, BurstStatus};
use snowmelt_rpc::client::NO_BODY;
use snowmelt_types::{Code, ErrorReport, FunctionName, JobId};

use super::{ApiClient, segment};

/// How long to wait for a server that is being started again.
const RETURN_TIMEOUT: Duration = Duration::from_secs(30);
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl ApiClient {
    /// Runs a deployed function once for each event, all at once. A connection that breaks is
    /// opened again: the burst goes on without it.
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

    /// Begins to run a deployed function as a burst, which goes on without this client.
    pub async fn start_burst(
        &self,
        name: &FunctionName,
        calls: BurstCalls,
    ) -> Result<BurstStatus, ErrorReport> {
        let path = format!("/v1/functions/{name}/bursts");
        let calls = BurstCalls { asynchronous: true, ..calls };
        self.json(Method::POST, &path, Some(&calls)).await
    }

    /// Returns the bursts that run, and those whose outcomes are kept.
    pub async fn bursts(&self) -> Result<Vec<BurstStatus>, ErrorReport> {
        self.get("/v1/bursts").await
    }

    /// Returns how far a burst is.
    pub async fn burst(&self, job: &JobId) -> Result<BurstStatus, ErrorReport> {
        self.get(&format!("/v1/bursts/{}", segment(job.as_str()))).await
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
                    if begun.elapsed() > RETURN_TIMEOUT {
                        return Err(error);
                    }
                }
                // It had not begun, or ended with the server.
                Err(error) if error.known_code() == Code::JOB_MISSING => return Err(lost),
                answer => return answer,
            }
        }
    }
}
