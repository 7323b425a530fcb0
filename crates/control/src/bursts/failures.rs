//! Ends the ranks of a job with a network when one of them fails: the others would wait for it
//! until their time is up. They get the failure as their reason.
//!
//! Invariant: at most one failure is reported, the first that was received.

use crate::times::RANKS_END_TIMEOUT;
use std::convert::Infallible;

use serde::Deserialize;
use snowmelt_api::{CallMode, FunctionSpec};
use snowmelt_tasks::agent::api::RankEnd;
use snowmelt_types::{Code, ErrorReport, HostName, JobId};
use tokio::sync::watch;

use super::RankRange;

/// The part of the answer of a pickled function that is read here.
#[derive(Deserialize)]
struct MapAnswer {
    /// The first exception of the function's items, if any.
    failed: Option<String>,
}

/// The first failure of a rank that was received.
#[derive(Debug)]
pub(super) struct First {
    /// The name of the function if it is pickled: its answers do not show the platform how it
    /// ended.
    pickled: Option<String>,
    told: watch::Sender<Option<RankFailure>>,
}

#[derive(Clone, Debug)]
struct RankFailure {
    rank: u32,
    host: HostName,
    why: String,
}

impl First {
    pub fn of(function: &FunctionSpec) -> Self {
        let pickled = (function.mode == CallMode::Map).then(|| function.handler.clone());
        Self { pickled, told: watch::channel(None).0 }
    }

    /// Takes the end of a rank; the first failure is remembered.
    pub fn take(&self, end: &RankEnd, host: &HostName) {
        let Some(why) = self.why(end) else { return };
        self.told.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(RankFailure { rank: end.rank, host: host.clone(), why });
            }
            is_first
        });
    }

    /// Returns why a rank failed, if it did. For a pickled function that is in the part of the
    /// answer that its runtime writes beside the pickle.
    fn why(&self, end: &RankEnd) -> Option<String> {
        if let Some(error) = &end.error {
            return Some(error.message.clone());
        }
        let function = self.pickled.as_ref()?;
        let answer: MapAnswer = serde_json::from_str(end.result.as_ref()?.json()).ok()?;
        let exception = answer.failed?;
        Some(format!("`{function}` raised {exception}"))
    }

    /// Waits for a failure and ends the ranks that still run some time later. It never returns:
    /// those who wait for the ends hear of them.
    pub async fn end_others(&self, job: &JobId, parts: &[RankRange]) -> Infallible {
        let mut told = self.told.subscribe();
        let failure = told.wait_for(Option::is_some).await.ok().and_then(|first| first.clone());
        if let Some(failure) = failure {
            let report = failure.report();
            // Again and again: a part may be called later than another one's rank fails.
            loop {
                tokio::time::sleep(RANKS_END_TIMEOUT).await;
                let ending = parts.iter().map(|part| part.host.agent.end(job, &report));
                for ended in futures::future::join_all(ending).await {
                    if let Err(error) = ended {
                        tracing::warn!(%job, %error, "a part could not be informed of a failed rank");
                    }
                }
            }
        }
        std::future::pending().await
    }
}

impl RankFailure {
    fn report(&self) -> ErrorReport {
        let Self { rank, host, why } = self;
        let message = format!("ended because rank {rank} on {host} failed first: {why}");
        ErrorReport::new(Code::RANK_ENDED, message).hint(format!(
            "functions that share a network wait for each other, so none goes on without all; mend \
             what rank {rank} says"
        ))
    }
}
