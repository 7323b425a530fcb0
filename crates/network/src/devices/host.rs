//! The host as the underlay of its jobs: a socket in the node's own namespace, and a cache of the
//! MTUs of devices there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::link;
use crate::netlink::{Batch, BatchFailure, Socket};
use crate::{Error, Result};

/// The network namespace of the node's process.
#[derive(Debug)]
pub struct HostNamespace {
    route: Mutex<Socket>,
    /// MTUs by the address of the device. They are assumed not to change.
    mtus: Mutex<HashMap<IpAddr, u32>>,
}

impl HostNamespace {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open() -> std::io::Result<Self> {
        Ok(Self { route: Mutex::new(Socket::open(None)?), mtus: Mutex::default() })
    }

    /// Sends a batch.
    pub fn run(&self, batch: Batch) -> std::result::Result<(), BatchFailure> {
        lock(&self.route).run(batch)
    }

    /// A device by its name.
    pub fn link(&self, name: &str) -> std::result::Result<Option<link::Link>, BatchFailure> {
        link::by_name(&mut lock(&self.route), name)
    }

    /// The index of the device through which an address is reached; `None` if there is no route.
    pub fn device_to(&self, target: IpAddr) -> std::result::Result<Option<u32>, BatchFailure> {
        super::route::device_to(&mut lock(&self.route), target)
    }

    /// The index of the device that has an address; `None` if it is not an address of this host.
    pub fn device_of(&self, address: IpAddr) -> std::result::Result<Option<u32>, BatchFailure> {
        let found = link::of_address(&mut lock(&self.route), address)?;
        Ok(found.map(|link| link.index))
    }

    /// The MTU of the device that has this address.
    pub fn mtu(&self, job: &str, address: IpAddr) -> Result<u32> {
        if let Some(mtu) = lock(&self.mtus).get(&address) {
            return Ok(*mtu);
        }
        let found = link::of_address(&mut lock(&self.route), address);
        let found = found.map_err(|failed| Error::failed(job, failed))?;
        let mtu = found.ok_or(Error::Underlay { address })?.mtu;
        lock(&self.mtus).insert(address, mtu);
        Ok(mtu)
    }
}

/// Locks a mutex and ignores poisoning: a panic cannot leave the protected data inconsistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
