//! A host's agent, wherever it is.

use std::time::Duration;

use snowmelt_api::PartNetwork;
use snowmelt_node::agent::Agent;
use snowmelt_node::agent::api::{
    CodePresence, JobPart, PartCalls, PartOpen, PartReady, RankEnd, RouteFound, RouteTo, UploadCode,
};
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
    /// Whether a host has the files of a program; uploads them if they are given.
    pub async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport> {
        match self {
            Self::Local(agent) => agent.upload(code.clone()).await,
            Self::Remote(remote) => remote.upload(code).await,
        }
    }

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

    /// Ends the calls of a part that still run, each with this error, and its wait for what they
    /// sent.
    pub async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        match self {
            Self::Local(agent) => {
                agent.end(job, error.clone());
                Ok(())
            }
            Self::Remote(remote) => remote.end(job, error).await,
        }
    }

    /// The network of a job on that host.
    pub async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        match self {
            Self::Local(agent) => agent.network(job).await,
            Self::Remote(remote) => remote.network(job).await,
        }
    }

    /// The route of a packet from that host.
    pub async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport> {
        match self {
            Self::Local(agent) => agent.route(job, asked).await,
            Self::Remote(remote) => remote.route(job, &asked).await,
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
