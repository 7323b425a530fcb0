//! Takes functions and images back from hosts that have not used them for long, and tells the pool
//! of hosts what it has to know.
//!
//! Invariant: a host that could not be told to forget a function is told again later. What an
//! earlier control had it prepare is known from the host itself.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{HostState, HostSummary};
use snowmelt_schedule::Reclaimed;
use snowmelt_types::{Digest, HostName};

use super::{Placements, State};
use crate::cluster::hosts::ClusterHost;

impl Placements {
    /// Takes back functions and images whose time is up.
    pub(super) fn reclaim(&self, state: &mut State, now: Duration) {
        for reclaimed in state.scheduler.reclaim(now) {
            match reclaimed {
                Reclaimed::Function(host, function) => {
                    if let Some(host) = state.hosts.get(&host) {
                        self.take_back(Arc::clone(host), function);
                    }
                }
                Reclaimed::Image(host, image) => {
                    self.inner.trees.leave(&image, &host, &self.inner.hosts);
                }
            }
        }
    }

    /// Returns the number of further hosts that the waiting calls, bursts and tasks need.
    pub fn lacking(&self) -> u32 {
        self.lock().scheduler.lacking(self.now())
    }

    /// Returns whether a host has functions.
    pub fn has_functions(&self, host: &HostName) -> bool {
        self.lock().scheduler.has_functions(host)
    }

    fn take_back(&self, host: Arc<ClusterHost>, function: Digest) {
        let cell = self.inner.prepared.renew(&host.name, &function);
        let placements = self.clone();
        tokio::spawn(async move {
            let taken = placements.inner.prepared.take_back(&host, &function, &cell).await;
            if let Err(error) = taken {
                tracing::debug!(host = %host.name, %error, "a host keeps a function");
                let now = placements.now();
                placements.lock().scheduler.found(&host.name, &function, now);
            }
        });
    }

    /// Asks a host that was not known before what it has of an earlier control.
    pub(super) fn ask_what_it_has(&self, host: Arc<ClusterHost>) {
        let placements = self.clone();
        tokio::spawn(async move {
            let had = host.agent.prepared_functions().await;
            let now = placements.now();
            let mut state = placements.lock();
            match had {
                Ok(functions) => functions
                    .iter()
                    .for_each(|function| state.scheduler.found(&host.name, function, now)),
                // It is asked again.
                Err(_) => {
                    state.asked.remove(&host.name);
                }
            }
        });
    }
}

impl State {
    /// Returns whether a host is there that was not asked yet.
    pub(super) fn is_to_be_asked(&mut self, host: &ClusterHost) -> bool {
        !host.is_local() && self.asked.insert(host.name.clone())
    }

    /// Returns the state of a host for display.
    pub(super) fn state_of(&self, host: &HostSummary, own: &HostName) -> HostState {
        let is_placed = host.calls > 0
            || self.scheduler.has_ranks(&host.name)
            || self.scheduler.has_tasks(&host.name);
        let works = is_placed || host.facts.works();
        match host.state {
            HostState::Drained if works => HostState::Draining,
            // Control's own host has all functions.
            HostState::Active if host.name == *own || works => HostState::Active,
            HostState::Active if !self.scheduler.has_functions(&host.name) => HostState::Free,
            state => state,
        }
    }
}
