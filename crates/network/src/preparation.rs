//! Namespaces of jobs: the configuration that does not depend on the job, which is also made before
//! there is a job.
//!
//! Invariant: a namespace serves one job and is never reused, so it contains nothing of a former
//! tenant. Dropping one removes its devices; the kernel removes the rest.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::devices::{HostNamespace, Namespace, NamespaceFault, link};
use crate::inspection::{Counters, contents};
use crate::netlink::Batch;

/// The prefix of our devices' names in the host's namespace, which rules there match.
pub const PREFIX: &str = "snm";

/// A namespace with its loopback device up and its end of a veth pair.
#[derive(Debug)]
pub struct PreparedNetwork {
    /// The namespace.
    pub namespace: Namespace,
    /// The name of the pair's end on the host. Both ends are down until a policy grants egress.
    /// The namespace is not completely removed as long as this device exists.
    pub device: String,
    /// The kernel requests for the preparation.
    pub counters: Counters,
    host: Arc<HostNamespace>,
}

/// A caller's namespace, configured before there is a job for it. It has no device on the host, so
/// it is gone as soon as it is dropped and the caller has closed it.
#[derive(Debug)]
pub struct ConfiguredNamespace(Namespace);

impl ConfiguredNamespace {
    pub(crate) fn of(namespace: OwnedFd) -> Result<Self, NamespaceFault> {
        Namespace::enter(namespace).map(Self)
    }

    /// Whether the namespace is unused so far: it contains no socket, route or neighbour.
    pub fn is_unused(&mut self) -> bool {
        contents::of(&mut self.0).is_ok_and(|found| found.is_empty())
    }
}

impl PreparedNetwork {
    /// Creates a namespace.
    pub fn make(host: &Arc<HostNamespace>) -> Result<Self, NamespaceFault> {
        Self::configure(host, Namespace::make()?)
    }

    /// Uses a caller's namespace that was configured before.
    pub fn from_configured(
        host: &Arc<HostNamespace>,
        configured: ConfiguredNamespace,
    ) -> Result<Self, NamespaceFault> {
        Self::configure(host, configured.0)
    }

    fn configure(
        host: &Arc<HostNamespace>,
        mut namespace: Namespace,
    ) -> Result<Self, NamespaceFault> {
        let device = fresh_name(namespace.cookie);
        let mut counters = Counters { crossings: 1, ..Counters::default() };
        let mut batch = Batch::new();
        // While devices are made without IPv6: the pair gets none, whatever is made later.
        link::add_pair(&mut batch, &device, namespace.as_fd());
        counters.add(&batch);
        host.run(batch).map_err(|failed| (failed.step, failed.source))?;
        let mut batch = Batch::new();
        link::set_up(&mut batch, "set up the loopback device", link::LOOPBACK);
        link::without_localhost(&mut batch);
        counters.add(&batch);
        namespace.route.run(batch).map_err(|failed| (failed.step, failed.source))?;
        // After the pair: the overlay, which is made later, does have IPv6.
        namespace.allow_ipv6()?;
        Ok(Self { namespace, device, counters, host: host.clone() })
    }

    /// Removes the overlay and sets the pair down, so that no packet enters or leaves from now on,
    /// even if processes are left in the namespace.
    pub fn disconnect(&mut self) {
        let mut batch = Batch::new();
        link::remove(&mut batch, "remove the overlay's device", link::OVERLAY);
        // The device may never have been created, or be gone with the namespace.
        drop(self.namespace.route.run(batch));
        // Connections that wait for an answer which cannot come any more would keep the namespace
        // for minutes.
        contents::end_connections(&mut self.namespace);
        if let Ok(Some(found)) = self.host.link(&self.device) {
            let mut batch = Batch::new();
            link::set_down(&mut batch, "set the pair down", found.index);
            drop(self.host.run(batch));
        }
    }
}

impl Drop for PreparedNetwork {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Makes a random name for a device, because several nodes may share a host, and no name is ever
/// used twice. A device name has at most 15 characters.
fn fresh_name(cookie: u64) -> String {
    let random = RandomState::new().hash_one(cookie);
    format!("{PREFIX}{:012x}", random >> 16)
}
