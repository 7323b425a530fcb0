//! The hosts of a cluster: which hosts there are, and how they are reached.
//!
//! A host reports once a second, with the resources that it has. A host that is silent for
//! [`SILENT`] counts as lost; one that was late before is given twice its delay in addition, up to
//! 15 seconds in all. Silence is measured in the time in which control could have received a report
//! (`clock`), and a caller that waits for a host probes it once more. So nothing has to be stored: a
//! control that was restarted knows its hosts after a second. The control's own host is always
//! known.

mod agent;
mod clock;
mod drains;
#[cfg(test)]
pub(crate) mod fake;
mod http;
pub(crate) mod listener;
mod peers;
mod presence;
mod priority;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_api::{HostFacts, HostJoin, HostSummary};
pub use snowmelt_rpc::Token;
use snowmelt_rpc::membership::Removed;
use snowmelt_rpc::{Credential, Meant};
use snowmelt_tasks::agent::Agent;
use snowmelt_types::{Code, ErrorReport, HostName};

pub(crate) use agent::{AnswerRoom, HostApi, NotCalled};
use clock::ProcessClock;
use drains::Drained;
pub use http::{Remote, ReportTaken};
pub(crate) use priority::in_time;

/// How often a host reports.
pub const BEAT: Duration = Duration::from_secs(1);

/// After this long without a report a host counts as lost.
pub const SILENT: Duration = Duration::from_secs(5);

/// All known hosts. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    clock: Arc<ProcessClock>,
    local: Arc<ClusterHost>,
    credential: Option<Credential>,
    drained: Drained,
    // Held for a lookup only.
    remote: Arc<Mutex<BTreeMap<HostName, Arc<ClusterHost>>>>,
}

/// A host of the cluster, or control's own.
#[derive(Debug)]
pub(crate) struct ClusterHost {
    pub name: HostName,
    pub agent: Arc<dyn HostApi>,
    clock: Arc<ProcessClock>,
    drained: Drained,
    facts: Mutex<Facts>,
}

#[derive(Debug)]
struct Facts {
    join: HostJoin,
    /// When the host's last report came, by the clock.
    last_report: Duration,
    /// The longest delay of the host's reports; it decays with time.
    late: Duration,
}

impl Hosts {
    /// Starts with control's own host alone. Others may join that the credential knows, if there is
    /// one.
    pub fn new(
        name: HostName,
        agent: Agent,
        credential: Option<Credential>,
        address: Option<SocketAddr>,
    ) -> Result<Self, ErrorReport> {
        let failed = |error: std::io::Error| ErrorReport::new(Code::INTERNAL, error.to_string());
        let clock = match credential {
            Some(_) => ProcessClock::start().map_err(failed)?,
            // There are no others.
            None => Arc::default(),
        };
        let facts = agent.facts();
        let join = HostJoin { name: name.clone(), address, facts };
        let drained = Drained::default();
        let local = Arc::new(ClusterHost::new(Arc::new(agent), join, &clock, &drained));
        Ok(Self { clock, local, credential, drained, remote: Arc::default() })
    }

    /// Adds a host, or takes its next report.
    pub fn join(&self, join: HostJoin) -> Result<(), ErrorReport> {
        let (Some(credential), Some(address)) = (&self.credential, join.address) else {
            return Err(ErrorReport::new(Code::HOST_REFUSED, "this platform takes no hosts")
                .hint("start it with `snowmelt up --listen ADDRESS`"));
        };
        let whose = format!("{} of version {}", join.name, join.facts.version);
        // A host of a later version might say none.
        snowmelt_rpc::check_protocol(&whose, join.facts.protocol).inspect_err(|refused| {
            tracing::warn!(host = %join.name, %refused, "a host is not let in");
        })?;
        if join.name == self.local.name {
            return Err(self.taken(&join.name, "control itself"));
        }
        let mut hosts = self.lock();
        hosts.retain(|_, host| host.has_reported());
        match hosts.get(&join.name) {
            Some(host) if host.address() != Some(address) => {
                // One that it replaces may not count as lost yet.
                let taken = self.taken(&join.name, "another host");
                return Err(ErrorReport { retryable: true, ..taken });
            }
            Some(host) => host.take_report(join),
            None => {
                let version = &join.facts.version;
                tracing::info!(host = %join.name, %address, version, "a host joined");
                let meant = Meant::Host(join.name.clone());
                let agent = Arc::new(Remote::new(address, meant, credential.clone()));
                let host = ClusterHost::new(agent, join, &self.clock, &self.drained);
                hosts.insert(host.name.clone(), Arc::new(host));
            }
        }
        Ok(())
    }

    /// Forgets a host that leaves.
    pub fn leave(&self, name: &HostName) {
        if self.lock().remove(name).is_some() {
            tracing::info!(host = %name, "a host left");
        }
    }

    /// Returns the proof by which other hosts are known; `None` if none may join.
    pub fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Returns whether another host of this name is there.
    pub fn has(&self, name: &HostName) -> bool {
        self.lock().get(name).is_some_and(|host| host.has_reported())
    }

    /// Returns the hosts that were removed, and whose certificates have not ended.
    pub fn removed(&self) -> Removed {
        self.credential.as_ref().map(Credential::removed).unwrap_or_default()
    }

    /// Returns all known hosts, this one first.
    pub fn all(&self) -> Vec<Arc<ClusterHost>> {
        let mut hosts = self.lock();
        hosts.retain(|name, host| {
            let is_known = host.has_reported();
            if !is_known {
                tracing::warn!(host = %name, "a host was silent for too long");
            }
            is_known
        });
        std::iter::once(Arc::clone(&self.local)).chain(hosts.values().cloned()).collect()
    }

    /// Returns the number of known hosts, some of which may be silent.
    pub fn count(&self) -> usize {
        1 + self.lock().len()
    }

    /// Returns whether other hosts may join.
    pub fn may_grow(&self) -> bool {
        self.credential.is_some()
    }

    /// Returns control's own host.
    pub fn local(&self) -> Arc<ClusterHost> {
        Arc::clone(&self.local)
    }

    /// Returns a host that has parts of a job of an earlier control, known or not.
    pub fn at(&self, name: HostName, address: SocketAddr) -> Arc<ClusterHost> {
        if let Some(known) = self.lock().get(&name).filter(|host| host.address() == Some(address)) {
            return Arc::clone(known);
        }
        // A control that had hosts has one.
        let Some(credential) = self.credential.clone() else { return self.local() };
        let facts = HostFacts { overcommit: 1, ..HostFacts::default() };
        let meant = Meant::Host(name.clone());
        let join = HostJoin { name, address: Some(address), facts };
        let agent = Arc::new(Remote::new(address, meant, credential));
        Arc::new(ClusterHost::new(agent, join, &self.clock, &self.drained))
    }

    /// Returns the number of connections between hosts that were given up because data on them were
    /// damaged, by the name of the host that sent the data, or its address where that is not of one
    /// host alone.
    pub fn damaged(&self) -> BTreeMap<String, u64> {
        let hosts = self.all();
        let name = |address: &String| {
            let has_it = |host: &&Arc<ClusterHost>| {
                host.underlay().is_some_and(|own| own.to_string() == *address)
            };
            let mut named = hosts.iter().filter(has_it).map(|host| host.name.to_string());
            named.next().filter(|_| named.next().is_none()).unwrap_or_else(|| address.clone())
        };
        let mut damaged = BTreeMap::new();
        for (address, count) in hosts.iter().flat_map(|host| host.facts().damaged) {
            *damaged.entry(name(&address)).or_default() += count;
        }
        damaged
    }

    /// Returns all known hosts for display.
    pub fn list(&self) -> Vec<HostSummary> {
        self.all().iter().map(|host| host.summary()).collect()
    }

    fn taken(&self, name: &HostName, by: &str) -> ErrorReport {
        ErrorReport::new(Code::HOST_REFUSED, format!("{by} is named `{name}` already"))
            .hint("give each host a name of its own with --name")
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostName, Arc<ClusterHost>>> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterHost {
    /// Returns the memory limits that instances of functions may have together on the host, in
    /// bytes.
    pub fn memory_of_functions(&self) -> u64 {
        self.facts().functions
    }

    /// Returns the number of the host's cores.
    pub fn cores(&self) -> u32 {
        self.lock().join.facts.cores
    }

    /// Returns the hosts that sent this one wrong blocks of images.
    pub fn expelled(&self) -> Vec<HostName> {
        self.agent
            .local_facts()
            .map_or_else(|| self.lock().join.facts.expelled.clone(), |state| state.expelled)
    }

    /// Returns whether the host runs the program of control, of the same build. Only such hosts
    /// take part in queries, whose plans are those of one build.
    pub fn is_of_this_build(&self) -> bool {
        self.is_local() || self.lock().join.facts.version == snowmelt_rpc::version()
    }

    /// Returns whether the host is the one of this process.
    pub fn is_local(&self) -> bool {
        self.agent.is_local()
    }

    /// Returns the facts that the host reported last; for this machine the facts of now.
    pub fn facts(&self) -> HostFacts {
        self.agent.local_facts().unwrap_or_else(|| self.lock().join.facts.clone())
    }

    fn new(
        agent: Arc<dyn HostApi>,
        join: HostJoin,
        clock: &Arc<ProcessClock>,
        drained: &Drained,
    ) -> Self {
        let name = join.name.clone();
        let last_report = clock.now();
        let facts = Mutex::new(Facts { join, last_report, late: Duration::ZERO });
        Self { name, agent, clock: Arc::clone(clock), drained: drained.clone(), facts }
    }

    /// Returns the address at which other hosts reach this one; the loopback where there are no
    /// others.
    pub fn underlay(&self) -> Option<IpAddr> {
        let address = self.lock().join.address.map(|address| address.ip());
        let alone = || IpAddr::V4(Ipv4Addr::LOCALHOST);
        Some(address.unwrap_or_else(alone)).filter(|address| !address.is_unspecified())
    }

    /// Returns the address at which the host's agent listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.lock().join.address
    }

    fn summary(&self) -> HostSummary {
        let is_local = self.is_local();
        let silent_for = if is_local { Duration::ZERO } else { self.silence() };
        let facts = self.facts();
        HostSummary {
            name: self.name.clone(),
            address: self.address().filter(|_| !is_local),
            state: self.state(facts.ranks),
            facts,
            heard_ms: u64::try_from(silent_for.as_millis()).unwrap_or(u64::MAX),
            calls: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
