//! A host's agent, wherever it is.

use std::time::Duration;

use snowmelt_node::agent::Agent;
use snowmelt_node::agent::api::{JobPart, PartCalls, PartOpen, PartReady, RankEnd};
use snowmelt_types::{ErrorReport, JobId};
use tokio::sync::mpsc;

use super::Remote;

/// In this process, or behind HTTP.
#[derive(Clone, Debug)]
pub(crate) enum HostAgent {
    /// Of this host.
    Local(Agent),
    /// Of another one.
    Remote(Remote),
}

impl HostAgent {
    /// Starts a part of a job.
    pub async fn open(&self, part: JobPart) -> Result<PartOpen, ErrorReport> {
        match self {
            Self::Local(agent) => agent.open(part).await,
            Self::Remote(remote) => remote.open(&part).await,
        }
    }

    /// Waits until all hosts of a job answer each other, and has a part load its code.
    pub async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport> {
        match self {
            Self::Local(agent) => agent.ready(job, within).await,
            Self::Remote(remote) => remote.ready(job, within).await,
        }
    }

    /// Calls the ranks of a part; dropping the receiver ends what still runs.
    pub async fn call(
        &self,
        job: &JobId,
        calls: PartCalls,
    ) -> Result<mpsc::Receiver<RankEnd>, ErrorReport> {
        match self {
            Self::Local(agent) => agent.call(job, calls),
            Self::Remote(remote) => remote.call(job, &calls).await,
        }
    }

    /// Ends a part that was not called.
    pub async fn close(&self, job: &JobId) -> Result<(), ErrorReport> {
        match self {
            Self::Local(agent) => {
                agent.close(job);
                Ok(())
            }
            Self::Remote(remote) => remote.close(job).await,
        }
    }
}
