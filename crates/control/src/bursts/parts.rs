//! Opens the parts of a job on all hosts, and closes them again.

use std::time::Duration;

use snowmelt_rpc::trace::SPANS;
use snowmelt_tasks::agent::api::{JobPart, PartOpen, PartReady};
use snowmelt_types::{ErrorReport, JobId};
use tracing::Instrument;

use super::RankRange;
use super::networks::reachability;

/// The most time that is kept for a host to say why it is not ready.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long hosts have to answer each other, once the network is made on all of them. Their kernels
/// answer, also on busy hosts.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The parts of a job that may have been opened.
pub(super) struct OpenParts<'a> {
    pub job: &'a JobId,
    pub parts: &'a [RankRange],
}

impl OpenParts<'_> {
    /// Opens all parts concurrently. The first failure is the failure of the job.
    pub async fn start(
        &self,
        orders: Vec<JobPart>,
        within: Duration,
    ) -> Result<(Vec<PartOpen>, Vec<PartReady>), ErrorReport> {
        let deadline = tokio::time::Instant::now() + within;
        let opening = self
            .parts
            .iter()
            .zip(orders)
            .map(|(part, order)| part.within(deadline, within, part.host.agent.open(order)));
        let span = tracing::debug_span!(target: SPANS, "burst.open");
        let open = futures::future::try_join_all(opening).instrument(span).await?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        // A host knows which others did not answer, and reports them before the time is up.
        let reached = (left - (left / 10).min(ANSWER_TIMEOUT)).min(REACH_TIMEOUT);
        let loading = self
            .parts
            .iter()
            .map(|part| part.within(deadline, within, part.host.agent.ready(self.job, reached)));
        let span = tracing::debug_span!(target: SPANS, "burst.ready");
        let ready = futures::future::try_join_all(loading).instrument(span).await?;
        let unreached: Vec<_> = ready.iter().map(|ready| ready.unreached.clone()).collect();
        reachability::check(self.parts, &unreached)?;
        Ok((open, ready))
    }

    /// Closes all parts. A host that does not answer closes its part by itself, when it is not
    /// called.
    pub async fn close(&self) {
        let closing = self.parts.iter().map(|part| part.host.agent.close(self.job));
        for closed in futures::future::join_all(closing).await {
            if let Err(error) = closed {
                tracing::debug!(%error, "a part could not be closed");
            }
        }
    }
}
