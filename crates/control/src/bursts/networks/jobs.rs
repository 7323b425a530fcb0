//! The running jobs with a network: which ranks are on which host, and which rank has which
//! address. The state of their networks in the kernel is asked of the hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::{NetworkDetail, NetworkPart, NetworkSummary, TracePoint};
use snowmelt_network::{JobSpec, RESERVED};
use snowmelt_types::{Code, ErrorReport, FunctionName, JobId, Tenant};

use crate::bursts::RankRange;
use crate::now_ms;

type NetworkMap = BTreeMap<JobId, Arc<BurstNetwork>>;

/// Every job that has a network now. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobNetworks {
    // Held for a lookup only.
    running: Arc<Mutex<NetworkMap>>,
}

/// A burst with a network.
#[derive(Debug)]
pub(in crate::bursts) struct BurstNetwork {
    pub id: JobId,
    pub tenant: Tenant,
    pub function: FunctionName,
    pub since_ms: u64,
    /// The parts of the job, in the order of ranks.
    pub parts: Vec<RankRange>,
    /// The network of each part.
    pub specs: Vec<JobSpec>,
}

/// A guard: the job is listed until it is dropped.
#[derive(Debug)]
pub(in crate::bursts) struct JobListing {
    job: JobId,
    jobs: JobNetworks,
}

impl JobNetworks {
    /// Lists a job that was placed now.
    pub(in crate::bursts) fn list(
        &self,
        id: &JobId,
        tenant: &Tenant,
        function: &FunctionName,
        parts: &[RankRange],
        specs: Vec<JobSpec>,
    ) -> JobListing {
        let job = BurstNetwork {
            id: id.clone(),
            tenant: tenant.clone(),
            function: function.clone(),
            since_ms: now_ms(),
            parts: parts.to_vec(),
            specs,
        };
        self.lock().insert(id.clone(), Arc::new(job));
        JobListing { job: id.clone(), jobs: self.clone() }
    }

    /// Returns a summary of each job with a network, the oldest first.
    pub fn networks(&self) -> Vec<NetworkSummary> {
        self.lock().values().map(|job| job.summary()).collect()
    }

    /// Refuses a job whose tenant or function the caller may not see, as if the job did not exist.
    pub fn check(
        &self,
        id: &JobId,
        sees: impl Fn(&Tenant, &FunctionName) -> bool,
    ) -> Result<(), ErrorReport> {
        let job = self.find(id)?;
        if sees(&job.tenant, &job.function) { Ok(()) } else { Err(missing(id)) }
    }

    /// Returns a job with the state of its network on each host. Hosts that do not answer are shown
    /// with their error.
    pub async fn network(&self, id: &JobId) -> Result<NetworkDetail, ErrorReport> {
        let job = self.find(id)?;
        let asked = job.parts.iter().map(|part| async {
            let (network, error) = match part.host.agent.network(id).await {
                Ok(network) => (Some(network), None),
                Err(error) => (None, Some(error)),
            };
            let RankRange { host, first, count } = part;
            NetworkPart { host: host.name.clone(), first: *first, count: *count, network, error }
        });
        let parts = futures::future::join_all(asked).await;
        Ok(NetworkDetail { summary: job.summary(), parts })
    }

    pub(in crate::bursts) fn find(&self, id: &JobId) -> Result<Arc<BurstNetwork>, ErrorReport> {
        self.lock().get(id).cloned().ok_or_else(|| missing(id))
    }

    fn lock(&self) -> MutexGuard<'_, NetworkMap> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing(id: &JobId) -> ErrorReport {
    let message = format!("no job `{id}` with a network runs");
    ErrorReport::new(Code::NETWORK_MISSING, message)
        .hint("`snowmelt net ls` lists those that are there now")
}

impl Drop for JobListing {
    fn drop(&mut self) {
        self.jobs.lock().remove(&self.job);
    }
}

impl BurstNetwork {
    fn summary(&self) -> NetworkSummary {
        let spec = &self.specs[0];
        NetworkSummary {
            job: self.id.clone(),
            tenant: self.tenant.clone(),
            function: self.function.clone(),
            hosts: self.parts.iter().map(|part| part.host.name.clone()).collect(),
            functions: self.size(),
            overlay: spec.vni,
            range4: spec.range4,
            range6: spec.range6,
            since_ms: self.since_ms,
        }
    }

    fn size(&self) -> u32 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// Returns the host and the address of a rank, and the index of the part that it is in.
    pub fn rank(&self, rank: u32, ipv6: bool) -> Result<(TracePoint, usize), ErrorReport> {
        let is_in = |part: &RankRange| (part.first..part.first + part.count).contains(&rank);
        let missing = || {
            let message = format!("{} has no rank {rank}", self.id);
            ErrorReport::new(Code::NETWORK_MISSING, message)
                .hint(format!("its ranks are 0 to {}", self.size().saturating_sub(1)))
        };
        let place = self.parts.iter().position(is_in).ok_or_else(missing)?;
        let part = &self.parts[place];
        let spec = &self.specs[place];
        let address = spec.address(rank - part.first).map_err(|_| missing())?;
        let address = if ipv6 { IpAddr::V6(address.v6) } else { IpAddr::V4(address.v4) };
        let host = Some(part.host.name.clone());
        Ok((TracePoint { rank: Some(rank), host, address }, place))
    }

    /// Returns the owner of an address, and the index of its part if it is an address of the job.
    pub fn address(&self, address: IpAddr) -> (TracePoint, Option<usize>) {
        let own = |spec: &JobSpec| spec.own4.contains(address) || spec.own6.contains(address);
        let Some(place) = self.specs.iter().position(own) else {
            return (TracePoint { rank: None, host: None, address }, None);
        };
        let part = &self.parts[place];
        let spec = &self.specs[place];
        let slot = match (address, spec.own4.base(), spec.own6.base()) {
            (IpAddr::V4(one), IpAddr::V4(base), _) => u128::from(one.to_bits() - base.to_bits()),
            (IpAddr::V6(one), _, IpAddr::V6(base)) => one.to_bits() - base.to_bits(),
            _ => 0,
        };
        let slot = slot.checked_sub(u128::from(RESERVED)).and_then(|slot| slot.try_into().ok());
        let rank = slot.filter(|slot: &u32| *slot < part.count).map(|slot| part.first + slot);
        (TracePoint { rank, host: Some(part.host.name.clone()), address }, Some(place))
    }
}
