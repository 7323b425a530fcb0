//! The functions of each host, and how much each function is used.
//!
//! Invariant: the number of a function's calls here is the number of calls that were placed on the
//! host and have not ended.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use crate::requests::CallDemand;

/// The functions of each host: those that were called there, or that the host has reported.
#[derive(Debug, Default)]
pub(crate) struct Uses(pub BTreeMap<HostName, HashMap<Digest, Use>>);

/// The use of a function on a host.
#[derive(Debug, Default)]
pub(crate) struct Use {
    pub image: Option<Digest>,
    /// The number of calls that were placed on the host and have not ended.
    pub calls: u32,
    /// The time at which the last call began or ended.
    pub last: Duration,
    /// Whether the host keeps prewarmed instances of the function, so that it stays without calls.
    pub is_kept: bool,
}

impl Uses {
    pub fn begin(&mut self, host: &HostName, call: &CallDemand, now: Duration) {
        let function = self.function(host, &call.function);
        function.image.clone_from(&call.image);
        function.calls += 1;
        function.last = now;
    }

    pub fn end(&mut self, host: &HostName, function: &Digest, now: Duration) {
        if let Some(on_host) = self.0.get_mut(host)
            && let Some(function) = on_host.get_mut(function)
        {
            function.calls = function.calls.saturating_sub(1);
            function.last = now;
        }
    }

    pub fn remove(&mut self, host: &HostName) {
        self.0.remove(host);
    }

    pub fn function(&mut self, host: &HostName, function: &Digest) -> &mut Use {
        self.0.entry(host.clone()).or_default().entry(function.clone()).or_default()
    }

    /// Whether some function of a host needs an image.
    pub fn need(&self, host: &HostName, image: &Digest) -> bool {
        let mut on_host = self.0.get(host).into_iter().flatten();
        on_host.any(|(_, function)| function.image.as_ref() == Some(image))
    }
}
