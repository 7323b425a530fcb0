//! The parameters of a lab.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_types::ByteSize;

use super::kind::ServiceKind;
use super::rate::LabLink;

/// The maximum number of hosts, bounded by the addresses of their network.
pub const MAX_HOSTS: u32 = 250;

/// The parameters of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// The program of the service: a path, or a name on PATH.
    pub program: PathBuf,
    /// The link of the service.
    pub link: LabLink,
}

/// Hosts that control starts and ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPlan {
    /// The number of hosts that are started with the lab.
    pub started: u32,
    /// The text of the program with which control starts and ends the other hosts.
    pub program: String,
}

/// The parameters of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPlan {
    /// The number of hosts, including control.
    pub hosts: u32,
    /// The hosts that are started when control needs them. `None` if all are started with the lab.
    #[serde(default)]
    pub pool: Option<PoolPlan>,
    /// The link of each host.
    pub link: LabLink,
    /// The limit of memory for functions on each host.
    pub memory: ByteSize,
    /// Whether the first host is control alone, and runs no functions.
    #[serde(default)]
    pub control_only: bool,
    /// The size of a file system for each host's persistent data. `None` if hosts share the
    /// machine's.
    #[serde(default)]
    pub disk: Option<ByteSize>,
    /// A registry, if there is one.
    #[serde(default)]
    pub registry: Option<ServicePlan>,
    /// An S3 server, if there is one.
    #[serde(default)]
    pub store: Option<ServicePlan>,
}

impl LabPlan {
    /// The services of the lab.
    pub(crate) fn services(&self) -> impl Iterator<Item = (ServiceKind, &ServicePlan)> {
        let all = [(ServiceKind::Registry, &self.registry), (ServiceKind::Store, &self.store)];
        all.into_iter().filter_map(|(kind, plan)| Some((kind, plan.as_ref()?)))
    }
}
