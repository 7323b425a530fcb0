//! The hosts of a cluster: who is there, and how they are reached.
//!
//! A host says once a second that it is there and what it has to give; one that was silent for
//! [`SILENT`] is gone. So nothing has to be kept: a control that was started again knows its hosts
//! after a second. The control's own host is always there.

mod agent;
pub(crate) mod listen;
mod member;
mod remote;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_node::agent::Agent;
use snowmelt_types::{Code, ErrorReport, HostName};

use crate::api::{HostJoin, HostSummary};

pub(crate) use agent::HostAgent;
pub use member::{Member, Membership};
pub use remote::{Remote, Token};

/// How often a host says that it is there.
pub const BEAT: Duration = Duration::from_secs(1);

/// After this long without a word a host is taken for lost.
pub const SILENT: Duration = Duration::from_secs(5);

/// Every host that is there. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    local: Arc<Host>,
    token: Option<Token>,
    // Held for a look only.
    remote: Arc<Mutex<BTreeMap<HostName, Arc<Host>>>>,
}

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    pub name: HostName,
    pub agent: HostAgent,
    facts: Mutex<Facts>,
}

#[derive(Debug)]
struct Facts {
    join: HostJoin,
    heard: Instant,
}

impl Hosts {
    /// This host alone; others may join with the token, if there is one.
    pub fn new(
        name: HostName,
        agent: Agent,
        token: Option<Token>,
        address: Option<SocketAddr>,
    ) -> Self {
        let facts = agent.facts();
        let join = HostJoin { name: name.clone(), address, facts };
        let facts = Mutex::new(Facts { join, heard: Instant::now() });
        let local = Arc::new(Host { name, agent: HostAgent::Local(agent), facts });
        Self { local, token, remote: Arc::default() }
    }

    /// Takes in a host, or hears from it again.
    pub fn join(&self, join: HostJoin) -> Result<(), ErrorReport> {
        let (Some(token), Some(address)) = (&self.token, join.address) else {
            return Err(ErrorReport::new(Code::HOST_REFUSED, "this platform takes no hosts")
                .hint("start it with `snowmelt up --listen ADDRESS --token-file FILE`"));
        };
        let ours = env!("CARGO_PKG_VERSION");
        if join.facts.version != ours {
            let theirs = &join.facts.version;
            let message = format!("{} is of version {theirs}, control of {ours}", join.name);
            return Err(ErrorReport::new(Code::HOST_REFUSED, message)
                .hint("run the same build of snowmelt on all hosts"));
        }
        if join.name == self.local.name {
            return Err(self.taken(&join.name, "control itself"));
        }
        let mut hosts = self.lock();
        hosts.retain(|_, host| host.is_heard());
        match hosts.get(&join.name) {
            Some(host) if host.address() != Some(address) => {
                return Err(self.taken(&join.name, "another host"));
            }
            Some(host) => host.hear(join),
            None => {
                tracing::info!(host = %join.name, %address, "a host joined");
                let agent = HostAgent::Remote(Remote::new(address, token.clone()));
                let (name, heard) = (join.name.clone(), Instant::now());
                let facts = Mutex::new(Facts { join, heard });
                hosts.insert(name.clone(), Arc::new(Host { name, agent, facts }));
            }
        }
        Ok(())
    }

    /// Forgets a host that says that it goes.
    pub fn leave(&self, name: &HostName) {
        if self.lock().remove(name).is_some() {
            tracing::info!(host = %name, "a host left");
        }
    }

    /// Every host that is there, this one first.
    pub fn all(&self) -> Vec<Arc<Host>> {
        let mut hosts = self.lock();
        hosts.retain(|name, host| {
            let heard = host.is_heard();
            if !heard {
                tracing::warn!(host = %name, "a host was silent for too long");
            }
            heard
        });
        std::iter::once(Arc::clone(&self.local)).chain(hosts.values().cloned()).collect()
    }

    /// The same for people.
    pub fn list(&self) -> Vec<HostSummary> {
        self.all().iter().map(|host| host.summary()).collect()
    }

    fn taken(&self, name: &HostName, by: &str) -> ErrorReport {
        ErrorReport::new(Code::HOST_REFUSED, format!("{by} is named `{name}` already"))
            .hint("give each host a name of its own with --name")
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostName, Arc<Host>>> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Memory that it has to give, in bytes: what it said last, or what this machine has now.
    pub fn memory(&self) -> u64 {
        match &self.agent {
            HostAgent::Local(agent) => agent.facts().memory,
            HostAgent::Remote(_) => self.lock().join.facts.memory,
        }
    }

    /// Its cores.
    pub fn cores(&self) -> u32 {
        self.lock().join.facts.cores
    }

    /// Whether it was heard of lately.
    pub fn is_heard(&self) -> bool {
        matches!(self.agent, HostAgent::Local(_)) || self.lock().heard.elapsed() < SILENT
    }

    /// Waits until it is silent for too long.
    pub async fn lost(&self) {
        while self.is_heard() {
            tokio::time::sleep(BEAT / 4).await;
        }
    }

    fn hear(&self, join: HostJoin) {
        *self.lock() = Facts { join, heard: Instant::now() };
    }

    /// By which address other hosts reach it; the loopback where there are no others.
    pub fn underlay(&self) -> Option<IpAddr> {
        let address = self.lock().join.address.map(|address| address.ip());
        let alone = || IpAddr::V4(Ipv4Addr::LOCALHOST);
        Some(address.unwrap_or_else(alone)).filter(|address| !address.is_unspecified())
    }

    fn address(&self) -> Option<SocketAddr> {
        self.lock().join.address
    }

    fn summary(&self) -> HostSummary {
        let facts = match &self.agent {
            HostAgent::Local(agent) => agent.facts(),
            HostAgent::Remote(_) => self.lock().join.facts.clone(),
        };
        let facts_heard = self.lock().heard.elapsed();
        let heard = match self.agent {
            HostAgent::Local(_) => Duration::ZERO,
            HostAgent::Remote(_) => facts_heard,
        };
        HostSummary {
            name: self.name.clone(),
            address: match self.agent {
                HostAgent::Local(_) => None,
                HostAgent::Remote(_) => self.address(),
            },
            facts,
            heard_ms: u64::try_from(heard.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
