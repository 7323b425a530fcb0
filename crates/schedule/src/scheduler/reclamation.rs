//! The decision when hosts give up functions and images (FaaSNet 3.2). A function is taken back
//! from a host on which it was not called for the time of the policy. A host leaves the tree of an
//! image that nothing on it has used for as long.
//!
//! Invariant: nothing that runs is taken back, and nothing is taken from control's own host.

use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use super::Scheduler;
use crate::hosts::Use;
use crate::requests::Reclaimed;

impl Scheduler {
    /// Notes that something else than calls runs on a host. It may use the images there.
    pub fn is_busy(&mut self, host: &HostName, now: Duration) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.busy = now;
        }
    }

    /// Notes that something on a host is about to use an image.
    pub fn uses(&mut self, host: &HostName, image: &Digest, now: Duration) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.uses(image, now);
        }
    }

    /// Notes that a host reports a function, which this scheduler may not have placed there.
    pub fn found(&mut self, host: &HostName, function: &Digest, now: Duration) {
        if self.hosts.contains(host) {
            let function = self.uses.function(host, function);
            function.last = function.last.max(now);
        }
    }

    /// Notes that a host keeps instances of a function without calls. The note holds until the
    /// function is forgotten.
    pub fn keep(&mut self, host: &HostName, function: &Digest) {
        if self.hosts.contains(host) {
            self.uses.function(host, function).is_kept = true;
        }
    }

    /// Forgets a function that was removed or replaced: hosts have it only as long as its calls
    /// run.
    pub fn forget(&mut self, function: &Digest) {
        for on_host in self.uses.0.values_mut() {
            if let Some(known) = on_host.get_mut(function) {
                known.is_kept = false;
            }
            if on_host.get(function).is_some_and(|known| known.calls == 0) {
                on_host.remove(function);
            }
        }
    }

    /// Whether a host has functions.
    pub fn has_functions(&self, host: &HostName) -> bool {
        self.uses.0.get(host).is_some_and(|on_host| !on_host.is_empty())
    }

    /// Returns the functions and images that hosts have to give up now. They count as given up from
    /// then on.
    pub fn reclaim(&mut self, now: Duration) -> Vec<Reclaimed> {
        let near = self.policy.near.as_ref();
        let after = self.policy.reclaim_after;
        let is_over = |last: Duration| now.saturating_sub(last) >= after;
        let mut reclaimed = Vec::new();
        for (host, on_host) in self.uses.0.iter_mut().filter(|(host, _)| near != Some(*host)) {
            let is_unused = |it: &Use| it.calls == 0 && !it.is_kept && is_over(it.last);
            for (function, _) in on_host.extract_if(|_, it| is_unused(it)) {
                // Its idle instances end.
                let on = self.functions.get_mut(&function);
                if let (Some(on), Some(id)) = (on, self.hosts.id(host)) {
                    on.remove(id);
                }
                reclaimed.push(Reclaimed::Function(host.clone(), function));
            }
        }
        self.uses.0.retain(|_, on_host| !on_host.is_empty());
        self.functions.retain(|_, on| !on.is_empty());
        let mut left = Vec::new();
        for (name, host) in self.hosts.iter().filter(|(name, _)| near != Some(*name)) {
            let in_trees = host.images.iter().filter(|(_, holding)| holding.depth.is_some());
            let unused = in_trees.filter(|(image, holding)| {
                is_over(holding.used.max(host.busy)) && !self.uses.need(name, image)
            });
            left.extend(unused.map(|(image, _)| (name.clone(), image.clone())));
        }
        for (name, image) in left {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.leaves_tree(&image);
            }
            reclaimed.push(Reclaimed::Image(name, image));
        }
        reclaimed
    }
}
