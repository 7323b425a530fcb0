//! The network of one job on this host.
//!
//! Invariant: the network exists completely or not at all. All its parts belong to
//! [`PreparedNetwork`], whose drop removes them after any failed step.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::lease::Lease;
use super::state::NetworkState;
use crate::devices::link::{self, Overlay};
use crate::devices::{lock, route};
use crate::enforcement::{Cgroups, Notifier};
use crate::inspection::{
    Counters, NamespaceContents, Unsent, contents, listeners, reachability, trace,
};
use crate::netlink::Batch;
use crate::preparation::PreparedNetwork;
use crate::{Address, Error, JobPeer, JobSpec, Listener, Result, TracedRoute, egress};

/// The network of a job on this host; removed when dropped.
#[derive(Debug)]
pub struct JobNetwork {
    spec: JobSpec,
    prepared: PreparedNetwork,
    counters: Counters,
    lease: Lease,
    /// The addresses of the egress veth pair, if the job has an egress policy.
    pair: Option<egress::AddressPair>,
    /// The thread that answers the system calls of functions without a control group. `None`
    /// without such functions.
    notifier: Mutex<Option<Notifier>>,
    shared: Arc<NetworkState>,
}

/// The method by which functions are restricted to their own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressEnforcement {
    /// BPF programs on the functions' control groups.
    #[serde(rename = "groups")]
    Cgroup,
    /// Answers of the node to the functions' system calls (seccomp notifier).
    Notifier,
}

impl JobNetwork {
    /// Creates the network in a prepared namespace: one message for the overlay, then one batch for
    /// all addresses and hosts.
    pub(crate) fn make(
        spec: JobSpec,
        prepared: PreparedNetwork,
        shared: Arc<NetworkState>,
    ) -> Result<Self> {
        let counters = prepared.counters;
        let lease = Lease::new(&spec, &prepared.device);
        let mut network = Self {
            spec,
            prepared,
            counters,
            lease,
            pair: None,
            notifier: Mutex::default(),
            shared,
        };
        let namespace = network.prepared.namespace.cookie;
        // First of all: whatever fails or crashes after this, the next node knows what may be left.
        network.shared.record_lease(&network.lease, namespace)?;
        if let Some(groups) = &network.shared.groups {
            // Before the namespace has an address: it is closed to functions that are not
            // registered.
            groups.add_job(namespace)?;
        }
        network.add_overlay()?;
        let mut batch = Batch::new();
        route::add_own(&mut batch, network.spec.own4);
        route::add_own(&mut batch, network.spec.own6);
        for peer in &network.spec.peers {
            route::add_peer(&mut batch, peer, network.spec.own_address());
        }
        network.run(batch)?;
        if let Err(error) = network.attach_dual_stack() {
            tracing::debug!(%error, "dual-stack sockets are reachable over IPv4 only");
        }
        if !network.spec.egress.is_nothing() {
            network.open_egress()?;
        }
        Ok(network)
    }

    /// Makes sockets that listen at the IPv6 wildcard reachable over IPv4 and IPv6.
    fn attach_dual_stack(&mut self) -> std::io::Result<()> {
        // The kernel keeps the attached program.
        let (batch, _program) = self.shared.dual.attach(&self.spec)?;
        self.counters.add(&batch);
        self.prepared.namespace.route.run(batch).map_err(|failed| failed.source)
    }

    /// Opens egress to the destinations that the job's policy names.
    fn open_egress(&mut self) -> Result<()> {
        let job = &self.spec.job;
        let shared = &self.shared;
        for address in self.spec.egress.addresses() {
            // Its packets would be dropped, and the functions would wait in vain.
            if shared
                .host
                .device_of(address)
                .map_err(|failed| Error::failed(job, failed))?
                .is_some()
            {
                return Err(Error::Spec { job: job.clone(), reason: egress::to_host(address) });
            }
        }
        let pair = shared.gate.open(&shared.host, &self.spec, &self.prepared.device)?;
        self.pair = Some(pair);
        let (addresses, rules) = egress::grant(&self.spec.egress, pair, shared.gate.overlays());
        self.counters.add(&rules);
        let none = || std::io::Error::other("this kernel has no nftables");
        let socket = self.prepared.namespace.rules.as_mut();
        let socket = socket.ok_or_else(|| Error::step(job, "make rules about packets", none()))?;
        socket.run(rules).map_err(|failed| Error::failed(job, failed))?;
        // The addresses and routes are added only after the rules are in force.
        self.run(addresses)
    }

    fn add_overlay(&mut self) -> Result<()> {
        let underlay = self.shared.underlay_mtu(&self.spec)?;
        let overlay = Overlay {
            vni: self.spec.vni,
            local: self.spec.host,
            port: self.shared.port,
            mac: route::mac_of(self.spec.own4),
            mtu: link::inner_mtu(underlay, self.spec.host),
        };
        let mut batch = Batch::new();
        link::add_overlay(&mut batch, &overlay, self.prepared.namespace.as_fd());
        self.counters.add(&batch);
        // Over the host's socket: the underlay of an overlay is the namespace in which it is made.
        let made = self.shared.host.run(batch);
        made.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    fn run(&mut self, batch: Batch) -> Result<()> {
        self.counters.add(&batch);
        let done = self.prepared.namespace.route.run(batch);
        done.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// The specification, with the peers known now.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The namespace that the job's sandboxes join.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.prepared.namespace.as_fd()
    }

    /// The cookie of the namespace, which the entries of its functions have.
    pub(crate) fn cookie(&self) -> u64 {
        self.prepared.namespace.cookie
    }

    /// The device in the host's namespace that exists as long as any part of the network does.
    pub fn device(&self) -> &str {
        &self.prepared.device
    }

    /// The method by which functions are restricted to their addresses.
    pub fn enforcement(&self) -> AddressEnforcement {
        if self.shared.groups.is_some() {
            AddressEnforcement::Cgroup
        } else {
            AddressEnforcement::Notifier
        }
    }

    /// The addresses of the function in a slot on this host, from 0. They are usable already.
    pub fn address(&self, slot: u32) -> Result<Address> {
        self.spec.address(slot)
    }

    /// The MTU between functions on two hosts, in bytes.
    pub fn mtu(&self) -> Result<u32> {
        Ok(link::inner_mtu(self.shared.underlay_mtu(&self.spec)?, self.spec.host))
    }

    /// Assigns the addresses of a slot on this host, from 0, to a control group (version 2, given
    /// by its folder): its processes use these addresses and no others. One write to a BPF map.
    ///
    /// # Errors
    /// [`Error::Enforcement`] if [`crate::Options::group`] is not set or the group does not exist.
    pub fn attach(&self, group: &Path, slot: u32) -> Result<Address> {
        let address = self.spec.address(slot)?;
        self.groups()?.add(self.prepared.namespace.cookie, group, address)?;
        Ok(address)
    }

    /// The entry of a slot on this host, from 0, in [`crate::Networks::table`]: a function whose
    /// group has it before the function is executed can use its addresses at once. [`Self::attach`]
    /// writes the same entry, and removes it with the job. `None` where there are no control
    /// groups.
    ///
    /// # Errors
    /// Fails as [`Self::address`].
    pub fn entry(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        let address = self.spec.address(slot)?;
        let namespace = self.prepared.namespace.cookie;
        Ok(self.shared.groups.as_ref().map(|_| Cgroups::entry(namespace, address)))
    }

    /// Assigns the addresses of a slot on this host, from 0, where there are no control groups: the
    /// process that installed [`snowmelt_kernel::notify::address_filter`] and whose calls this
    /// listener receives uses these addresses and no others until it ends. The process must not
    /// have the listener itself.
    ///
    /// # Errors
    /// [`Error::Enforcement`] if the descriptor is not a listener or its calls cannot be received.
    pub fn attach_notifier(&self, listener: OwnedFd, slot: u32) -> Result<Address> {
        let address = self.spec.address(slot)?;
        let failed = |step: &str, source| Error::Enforcement { step: step.to_owned(), source };
        let mut notifier = lock(&self.notifier);
        if notifier.is_none() {
            let started = Notifier::start(self.prepared.namespace.as_fd());
            *notifier = Some(started.map_err(|error| failed("start a thread", error))?);
        }
        if let Some(notifier) = &*notifier {
            notifier
                .add(listener.into(), address)
                .map_err(|error| failed("add a listener", error))?;
        }
        Ok(address)
    }

    /// Withdraws a function's addresses; its group may be assigned others afterwards.
    pub fn detach(&self, group: &Path) -> Result<()> {
        self.groups()?.remove(self.prepared.namespace.cookie, group)
    }

    fn groups(&self) -> Result<&Cgroups> {
        let step = || "find the control group above all functions".to_owned();
        let missing = std::io::ErrorKind::NotFound;
        let groups = self.shared.groups.as_ref();
        groups.ok_or_else(|| Error::Enforcement { step: step(), source: missing.into() })
    }

    /// Adds a host that joins the job; entries of other hosts are not touched.
    pub fn add_peer(&mut self, peer: JobPeer) -> Result<()> {
        let mut wanted = self.spec.clone();
        wanted.peers.push(peer);
        wanted.check()?;
        let mut batch = Batch::new();
        route::add_peer(&mut batch, &peer, self.spec.own_address());
        let added = self.run(batch);
        match added {
            Ok(()) => self.spec = wanted,
            // The batch may have been executed in part, and a half entry would be in the way of the
            // next attempt.
            Err(_) => self.forget(&peer),
        }
        added
    }

    /// Removes a host that left the job or vanished; entries of other hosts are not touched.
    /// Packets to it are refused from now on.
    pub fn remove_peer(&mut self, host: IpAddr) -> Result<()> {
        let Some(index) = self.spec.peers.iter().position(|peer| peer.host == host) else {
            return Ok(());
        };
        let peer = self.spec.peers.remove(index);
        let mut batch = Batch::new();
        route::remove_peer(&mut batch, &peer, self.spec.own_address());
        self.run(batch)
    }

    /// Removes the entries of a host, each independently: some may not exist.
    fn forget(&mut self, peer: &JobPeer) {
        let mut batch = Batch::new();
        route::remove_peer(&mut batch, peer, self.spec.own_address());
        drop(self.run(batch));
    }

    /// Waits until every other host answers an echo request over the job's network.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the hosts that did not answer within the time limit.
    pub fn ready(&mut self, within: Duration) -> Result<BTreeMap<IpAddr, Duration>> {
        let step = |error| Error::step(&self.spec.job, "ask the other hosts", error);
        let begun = Instant::now();
        let echo = self.prepared.namespace.echo.as_fd();
        let answered = reachability::ask(echo, &self.spec.peers, within).map_err(step)?;
        let hosts = self.spec.peers.iter().map(|peer| peer.host);
        let missing: Vec<_> = hosts.filter(|host| !answered.contains_key(host)).collect();
        if missing.is_empty() {
            tracing::debug!(job = self.spec.job, took = ?begun.elapsed(), "the network is ready");
            return Ok(answered);
        }
        Err(Error::Unreachable { job: self.spec.job.clone(), within, missing })
    }

    /// Traces the route of a packet to an address, as the kernel resolves it. If it leads to
    /// another host, the round trip of an echo request is measured, which is awaited for at most
    /// `within`.
    pub fn trace(&mut self, to: IpAddr, within: Duration) -> Result<TracedRoute> {
        let found = trace::of(&mut self.prepared.namespace.route, to);
        let mut route = found.map_err(|failed| Error::failed(&self.spec.job, failed))?;
        if let TracedRoute::Host { host, round_trip, .. } = &mut route {
            let known = self.spec.peers.iter().filter(|peer| peer.host == *host);
            let peers: Vec<JobPeer> = known.copied().collect();
            let echo = self.prepared.namespace.echo.as_fd();
            let asked = reachability::ask(echo, &peers, within);
            let asked = asked.map_err(|e| Error::step(&self.spec.job, "ask the other host", e))?;
            *round_trip = asked.get(host).copied();
        }
        Ok(route)
    }

    /// The sockets that receive packets which arrive on this host at an address and a port.
    pub fn listeners(&mut self, at: IpAddr, port: u16) -> Result<Vec<Listener>> {
        let other = self.spec.other_family(at);
        let found = listeners::at(&mut self.prepared.namespace.diagnosis, at, other, port);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// The kernel requests of this network so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The sockets, routes and neighbours in the namespace now.
    pub fn contents(&mut self) -> Result<NamespaceContents> {
        let found = contents::of(&mut self.prepared.namespace);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// TCP data and closes that functions have sent and peers have not acknowledged. They are lost
    /// once the network is removed.
    ///
    /// # Errors
    /// [`Error::Step`] when the kernel does not list the sockets.
    pub fn unsent(&mut self) -> Result<Unsent> {
        let found = contents::unsent(&mut self.prepared.namespace);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// Removes the network and waits until no part of it is left. Functions must have ended: a
    /// process that is left in the namespace keeps the lease.
    ///
    /// # Errors
    /// [`Error::Step`] when something is left after that time. It cannot reach any other host, and
    /// its VNI is not given to another job as long as it exists.
    pub fn close(self, within: Duration) -> Result<()> {
        let shared = self.shared.clone();
        let vni = self.spec.vni;
        let job = self.spec.job.clone();
        drop(self);
        let deadline = Instant::now() + within;
        while !shared.release_if_gone(vni)? {
            if Instant::now() >= deadline {
                let left = std::io::Error::other("a process or socket is left in it");
                return Err(Error::step(&job, "remove the network", left));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for JobNetwork {
    fn drop(&mut self) {
        self.prepared.disconnect();
        // The notifier's thread is in the namespace.
        drop(lock(&self.notifier).take());
        if let Some(groups) = &self.shared.groups {
            groups.remove_functions(self.prepared.namespace.cookie);
        }
        if let Some(pair) = self.pair {
            // The pair is down by now, so its addresses may be given to another job.
            self.shared.gate.release(pair);
        }
        // Last: the lease says that the rest is the kernel's matter, and the VNI is free when the
        // device is gone.
        self.shared.end(&mut self.lease);
    }
}
