//! Bursts whose functions are called or that have failed: what a control that was restarted needs
//! to go on with them.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_api::FunctionSpec;
use snowmelt_network::JobSpec;
use snowmelt_store::Expect;
use snowmelt_tasks::agent::api::{PartOpen, PartReady};
use snowmelt_types::{ErrorReport, HostName, JobId, Report, Tenant};

use super::{PAGE, Records, collect, parse, written};

/// The prefix of the keys of bursts.
const PREFIX: &str = "jobs/";

/// A burst from its first call on, or one that was never called and has failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub job: JobId,
    pub tenant: Tenant,
    /// The function of the burst, without code and environment.
    pub function: FunctionSpec,
    pub since_ms: u64,
    pub claim_within_ms: u64,
    /// The number of the burst's functions. Records of earlier versions have only the ranks of
    /// `parts`.
    #[serde(default)]
    pub ranks: u32,
    /// The parts of the burst, in the order of ranks; empty if it was never called.
    pub parts: Vec<PartRecord>,
    /// The network of each part; empty without a network.
    pub networks: Vec<JobSpec>,
    /// Microseconds from the request until all parts were ready.
    pub started_us: u64,
    /// The end of the burst; absent while it runs.
    #[serde(default)]
    pub ended: Option<JobEnd>,
}

/// The part of a burst that one host runs, with how it started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    pub host: HostName,
    /// The address of the host's agent; absent for control's own host.
    pub address: Option<SocketAddr>,
    pub first: u32,
    pub count: u32,
    pub open: PartOpen,
    pub ready: PartReady,
}

/// The end of a burst.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobEnd {
    pub at_ms: u64,
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// A short answer as JSON. A long one is a file.
    #[serde(default)]
    pub answer: Option<Box<RawValue>>,
}

fn key(job: &JobId) -> String {
    format!("{PREFIX}{job}")
}

impl Records {
    /// Writes a burst; on return it survives a crash.
    pub async fn put_job(&self, record: &JobRecord) -> Result<(), ErrorReport> {
        let value = written(record)?;
        let put = self.store.put(&key(&record.job), value.into(), Expect::Any).await;
        put.map(drop).map_err(|error| error.report())
    }

    /// Returns all bursts, the oldest first.
    pub async fn jobs(&self) -> Result<Vec<JobRecord>, ErrorReport> {
        collect(&*self.store, PREFIX, PAGE, parse).await
    }

    /// Removes a burst.
    pub async fn remove_job(&self, job: &JobId) -> Result<(), ErrorReport> {
        let removed = self.store.delete(&key(job), Expect::Any).await;
        removed.map(drop).map_err(|error| error.report())
    }
}
