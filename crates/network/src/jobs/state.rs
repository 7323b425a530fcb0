//! The state of a node that all its networks share, and the leases of their VNIs.
//!
//! Invariant: a VNI is free only when no part of the network that had it is left on this host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::lease::{Lease, LeaseFolder};
use crate::devices::{HostNamespace, link, lock};
use crate::egress::Gate;
use crate::enforcement::{Cgroups, DualStack};
use crate::netlink::Batch;
use crate::{Error, JobSpec, Result};

/// The limit on the wait for the kernel to remove the namespace of a job that has just ended.
const TIMEOUT: Duration = Duration::from_secs(2);

/// State of the node that all its networks share.
#[derive(Debug)]
pub(crate) struct NetworkState {
    pub host: Arc<HostNamespace>,
    pub leases: LeaseFolder,
    pub port: u16,
    pub groups: Option<Cgroups>,
    pub gate: Gate,
    pub dual: DualStack,
    pub mtu: Option<u32>,
    /// Leases by VNI, of live networks and of those that are being removed.
    pub held: Mutex<BTreeMap<u32, HeldLease>>,
}

/// A lease, and the cookie of its namespace if this process made it.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub lease: Lease,
    namespace: Option<u64>,
}

impl HeldLease {
    /// The lease of a network that another process has made.
    pub fn of_another_node(lease: Lease) -> Self {
        Self { lease, namespace: None }
    }
}

impl NetworkState {
    /// The MTU of a job's underlay, in bytes.
    pub fn underlay_mtu(&self, spec: &JobSpec) -> Result<u32> {
        match self.mtu {
            Some(mtu) => Ok(mtu),
            None => self.host.mtu(&spec.job, spec.host),
        }
    }

    /// Reserves a VNI for a job, once no part of the network that had it is left.
    pub fn claim(&self, spec: &JobSpec) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let holder = {
                let mut held = lock(&self.held);
                match held.get(&spec.vni) {
                    None => {
                        let lease = Lease::new(spec, "");
                        held.insert(spec.vni, HeldLease { lease, namespace: None });
                        return Ok(());
                    }
                    Some(held) => held.lease.clone(),
                }
            };
            // A live job keeps its overlay whatever the wait; only a network that ends is waited
            // for.
            if !holder.ending || Instant::now() >= deadline {
                let what = format!("overlay {}", spec.vni);
                return Err(Error::Taken { job: spec.job.clone(), what, holder: holder.job });
            }
            if !self.release_if_gone(spec.vni)? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Records the lease of a network that is about to be created in this namespace.
    pub fn record_lease(&self, lease: &Lease, namespace: u64) -> Result<()> {
        // In place of the reservation of `claim`, which knew neither device nor namespace.
        let held = HeldLease { lease: lease.clone(), namespace: Some(namespace) };
        lock(&self.held).insert(lease.vni, held);
        self.leases.write(lease)
    }

    /// Releases a VNI; no part of its network may be left.
    pub fn forget(&self, vni: u32) -> Result<()> {
        // In memory first: if the file cannot be removed, the next node finds a lease whose device
        // is gone.
        let held = lock(&self.held).remove(&vni);
        if let (Some(groups), Some(namespace)) = (&self.groups, held.and_then(|h| h.namespace)) {
            groups.remove_job(namespace);
        }
        self.leases.remove(vni)
    }

    /// Marks a network as ending. The lease stays until no part of the network is left.
    pub fn end(&self, lease: &mut Lease) {
        lease.ending = true;
        // In memory too, where `claim` looks, whether or not the file can be written.
        if let Some(held) = lock(&self.held).get_mut(&lease.vni) {
            held.lease.ending = true;
        }
        if let Err(error) = self.leases.write(lease) {
            tracing::warn!(job = lease.job, %error, "cannot write the lease of an ending network");
        }
    }

    /// Removes the lease of an ending network if no part of it is left. Returns whether none is
    /// left.
    pub fn release_if_gone(&self, vni: u32) -> Result<bool> {
        let Some(held) = lock(&self.held).get(&vni).cloned() else { return Ok(true) };
        let lease = held.lease;
        // Without the lock, because it asks the kernel.
        let found = self.host.link(&lease.device);
        let found = found.map_err(|failed| Error::failed(&lease.job, failed))?;
        let gone = lease.ending && found.is_none();
        if gone {
            self.forget(vni)?;
        }
        Ok(gone)
    }

    /// Releases the leases of networks that have ended. Without this each network would leave one
    /// until its overlay is used again.
    pub fn release_ended(&self) {
        let ended: Vec<u32> = {
            let held = lock(&self.held);
            held.iter().filter(|(_, held)| held.lease.ending).map(|(vni, _)| *vni).collect()
        };
        for vni in ended {
            if let Err(error) = self.release_if_gone(vni) {
                tracing::warn!(vni, %error, "the lease of a network that has ended is kept");
            }
        }
    }

    /// Releases the leases of all networks of which no part is left.
    pub fn release_all_gone(&self) -> Result<()> {
        let all: Vec<u32> = lock(&self.held).keys().copied().collect();
        all.into_iter().try_for_each(|vni| self.release_if_gone(vni).map(drop))
    }

    /// A namespace exists as long as descriptors of its node or processes in it do. The node is
    /// dead; processes that are being killed may be left. They are disconnected.
    pub fn disconnect_leftovers(&self) -> Result<()> {
        for HeldLease { lease, .. } in lock(&self.held).values_mut() {
            lease.ending = true;
            let fail = |failed| Error::failed(&lease.job, failed);
            if let Some(found) = self.host.link(&lease.device).map_err(fail)? {
                let mut batch = Batch::new();
                link::set_down(&mut batch, "set down the device of an earlier node", found.index);
                self.host.run(batch).map_err(fail)?;
            }
        }
        self.release_all_gone()
    }
}
