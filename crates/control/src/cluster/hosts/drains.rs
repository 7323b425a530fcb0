//! Hosts that get no new work: what runs there goes on, and ends there.
//!
//! Invariant: a host is drained by its name, whether it is there or not, until somebody says
//! otherwise. The caller has stored it before.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use snowmelt_api::HostState;
use snowmelt_types::{Code, ErrorReport, HostName};

use super::{ClusterHost, Hosts};

/// The names of drained hosts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drained(Arc<RwLock<Names>>);

#[derive(Debug, Default)]
struct Names {
    /// Hosts that an operator has drained; they are stored.
    drained: BTreeSet<HostName>,
    /// Hosts that the pool is releasing.
    leaving: BTreeSet<HostName>,
}

impl Drained {
    fn has(&self, name: &HostName) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.drained.contains(name) || names.leaving.contains(name)
    }
}

impl Hosts {
    /// Drains a host from now on, or no longer drains it.
    pub fn set_drained(&self, name: &HostName, drained: bool) {
        let mut names = self.drained.0.write().unwrap_or_else(PoisonError::into_inner);
        let has_changed = match drained {
            true => names.drained.insert(name.clone()),
            false => names.drained.remove(name),
        };
        drop(names);
        match (has_changed, drained) {
            (false, _) => {}
            (true, true) => tracing::info!(host = %name, "a host gets no new work"),
            (true, false) => tracing::info!(host = %name, "a host gets new work again"),
        }
    }

    /// Gives a host no new work while it is being released.
    pub fn set_leaving(&self, name: &HostName, leaving: bool) {
        let mut names = self.drained.0.write().unwrap_or_else(PoisonError::into_inner);
        match leaving {
            true => names.leaving.insert(name.clone()),
            false => names.leaving.remove(name),
        };
    }

    /// Returns whether a host is drained, known or not.
    pub fn is_drained(&self, name: &HostName) -> bool {
        self.drained.has(name)
    }

    /// Returns the hosts that get new work, this one first unless it is drained.
    pub fn open(&self) -> Vec<Arc<ClusterHost>> {
        let mut hosts = self.all();
        hosts.retain(|host| !host.is_drained());
        hosts
    }

    /// Returns the hosts of a query: this one, which takes part in all queries, and the others of the
    /// same build that get new work, unless the query runs on one host.
    pub fn of_query(&self, is_alone: bool) -> Vec<Arc<ClusterHost>> {
        let others = self.open().into_iter().filter(|host| !is_alone && !host.is_local());
        let others = others.filter(|host| host.is_of_this_build());
        std::iter::once(self.local()).chain(others).collect()
    }

    /// Returns a known host.
    ///
    /// # Errors
    /// `SM-0713` if there is no host of this name.
    pub fn find(&self, name: &HostName) -> Result<Arc<ClusterHost>, ErrorReport> {
        let unknown = || {
            ErrorReport::new(Code::HOST_UNKNOWN, format!("there is no host `{name}`"))
                .hint("`snowmelt hosts` lists them")
        };
        self.all().into_iter().find(|host| host.name == *name).ok_or_else(unknown)
    }
}

impl ClusterHost {
    /// Returns whether the host gets no new work.
    pub fn is_drained(&self) -> bool {
        self.drained.has(&self.name)
    }

    /// Returns whether the host gets new work, and, if it does not, whether ranks still run there.
    pub(super) fn state(&self, ranks: u32) -> HostState {
        match (self.is_drained(), ranks) {
            (false, _) => HostState::Active,
            (true, 0) => HostState::Drained,
            (true, _) => HostState::Draining,
        }
    }
}
