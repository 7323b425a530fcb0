//! One job's network on this host.
//!
//! Invariant: it is whole or not there. Everything of it hangs on [`Prepared`], which takes it
//! away when it is dropped, whatever step it came to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::hold::{Groups, Guard};
use crate::host::lock;
use crate::lease::Lease;
use crate::link::{self, Overlay};
use crate::netlink::Batch;
use crate::networks::Shared;
use crate::prepare::Prepared;
use crate::remains::{self, Remains, Unsent};
use crate::{
    Address, Error, JobSpec, Listener, Peer, Result, Way, egress, listen, ready, route, trace,
};

/// The network of a job on this host; gone when dropped.
#[derive(Debug)]
pub struct JobNetwork {
    spec: JobSpec,
    prepared: Prepared,
    counters: Counters,
    lease: Lease,
    /// The addresses of the pair, if the job may reach anything outside.
    pair: Option<egress::Pair>,
    /// Answers functions that are not held by their control groups, if there are any.
    guard: Mutex<Option<Guard>>,
    shared: Arc<Shared>,
}

/// What holds functions to their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Programs on their control groups.
    Groups,
    /// The node, which answers their system calls.
    Guard,
}

impl JobNetwork {
    /// Makes it out of a prepared namespace: one message for the overlay, then one batch for all
    /// addresses and hosts.
    pub(crate) fn make(spec: JobSpec, prepared: Prepared, shared: Arc<Shared>) -> Result<Self> {
        let counters = prepared.counters;
        let lease = Lease::new(&spec, &prepared.device);
        let mut network =
            Self { spec, prepared, counters, lease, pair: None, guard: Mutex::default(), shared };
        let namespace = network.prepared.namespace.cookie;
        network.shared.hold(&network.lease, namespace)?;
        if let Some(groups) = &network.shared.groups {
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
        if let Err(error) = network.serve_both_families() {
            tracing::debug!(%error, "sockets of both families are reached by IPv4 alone");
        }
        if !network.spec.egress.is_nothing() {
            network.open_gate()?;
        }
        Ok(network)
    }

    /// Has sockets that listen at the wildcard of both families reached by both.
    fn serve_both_families(&mut self) -> std::io::Result<()> {
        // The kernel keeps the program once it has it.
        let (batch, _program) = self.shared.dual.attach(&self.spec)?;
        self.counters.add(&batch);
        self.prepared.namespace.route.run(batch).map_err(|failed| failed.source)
    }

    /// Lets the job out to what its policy names.
    fn open_gate(&mut self) -> Result<()> {
        let (job, shared) = (&self.spec.job, &self.shared);
        let pair = shared.gate.open(&shared.host, &self.spec, &self.prepared.device)?;
        self.pair = Some(pair);
        let (addresses, rules) = egress::grant(&self.spec.egress, pair, shared.gate.overlays());
        self.counters.add(&rules);
        let none = || std::io::Error::other("this kernel has no nftables");
        let socket = self.prepared.namespace.rules.as_mut();
        let socket = socket.ok_or_else(|| Error::step(job, "make rules about packets", none()))?;
        socket.run(rules).map_err(|failed| Error::failed(job, failed))?;
        // Only behind its rules is there a way out.
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
        let made = self.shared.host.run(batch);
        made.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    fn run(&mut self, batch: Batch) -> Result<()> {
        self.counters.add(&batch);
        let done = self.prepared.namespace.route.run(batch);
        done.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// What was asked for, with the hosts that are known now.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The namespace that sandboxes of the job join.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.prepared.namespace.as_fd()
    }

    /// The device in the host's namespace that is there as long as anything of the network is.
    pub fn device(&self) -> &str {
        &self.prepared.device
    }

    /// What holds its functions to their addresses.
    pub fn hold(&self) -> Hold {
        if self.shared.groups.is_some() { Hold::Groups } else { Hold::Guard }
    }

    /// The addresses of the function at a place on this host, from 0. They are there already.
    pub fn address(&self, slot: u32) -> Result<Address> {
        self.spec.address(slot)
    }

    /// The most bytes of a packet between functions on two hosts.
    pub fn mtu(&self) -> Result<u32> {
        Ok(link::inner_mtu(self.shared.underlay_mtu(&self.spec)?, self.spec.host))
    }

    /// Gives the function at a place on this host, from 0, its addresses: what is in this control
    /// group (version 2, a folder) uses these and no others. One write to a table of the kernel's.
    ///
    /// # Errors
    /// [`Error::Hold`] if [`crate::Options::group`] is not set or the group is not there.
    pub fn attach(&self, group: &Path, slot: u32) -> Result<Address> {
        let address = self.spec.address(slot)?;
        self.groups()?.add(self.prepared.namespace.cookie, group, address)?;
        Ok(address)
    }

    /// Gives the function at a place on this host, from 0, its addresses where there are no control
    /// groups: who has installed [`snowmelt_kernel::notify::address_filter`] and is heard by this
    /// listener uses these and no others, until it ends. It must not have the listener itself.
    ///
    /// # Errors
    /// [`Error::Hold`] if it is no listener, or nobody can hear it.
    pub fn guard(&self, listener: OwnedFd, slot: u32) -> Result<Address> {
        let address = self.spec.address(slot)?;
        let hold = |step: &str, source| Error::Hold { step: step.to_owned(), source };
        let mut guard = lock(&self.guard);
        if guard.is_none() {
            let started = Guard::start(self.prepared.namespace.as_fd());
            *guard = Some(started.map_err(|error| hold("start a thread", error))?);
        }
        if let Some(guard) = &*guard {
            guard.add(listener.into(), address).map_err(|error| hold("hear a function", error))?;
        }
        Ok(address)
    }

    /// Takes a function's addresses back; its group may be given to another one.
    pub fn detach(&self, group: &Path) -> Result<()> {
        self.groups()?.remove(self.prepared.namespace.cookie, group)
    }

    fn groups(&self) -> Result<&Groups> {
        let step = || "find the control group of functions".to_owned();
        let missing = std::io::ErrorKind::NotFound;
        let groups = self.shared.groups.as_ref();
        groups.ok_or_else(|| Error::Hold { step: step(), source: missing.into() })
    }

    /// Tells of a host that joins the job; other hosts' entries are not touched.
    pub fn add_peer(&mut self, peer: Peer) -> Result<()> {
        let mut wanted = self.spec.clone();
        wanted.peers.push(peer);
        wanted.check()?;
        let mut batch = Batch::new();
        route::add_peer(&mut batch, &peer, self.spec.own_address());
        let added = self.run(batch);
        match added {
            Ok(()) => self.spec = wanted,
            Err(_) => self.forget(&peer),
        }
        added
    }

    /// Tells of a host that left the job or vanished; others' entries are not touched. Packets to
    /// it are refused from now on.
    pub fn remove_peer(&mut self, host: IpAddr) -> Result<()> {
        let Some(place) = self.spec.peers.iter().position(|peer| peer.host == host) else {
            return Ok(());
        };
        let peer = self.spec.peers.remove(place);
        let mut batch = Batch::new();
        route::remove_peer(&mut batch, &peer, self.spec.own_address());
        self.run(batch)
    }

    /// Undoes what was added of a host, each entry by itself: some may not be there.
    fn forget(&mut self, peer: &Peer) {
        let mut batch = Batch::new();
        route::remove_peer(&mut batch, peer, self.spec.own_address());
        drop(self.run(batch));
    }

    /// Waits until every other host answers over the job's network.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the hosts that did not, when the time is up.
    pub fn ready(&mut self, within: Duration) -> Result<BTreeMap<IpAddr, Duration>> {
        let step = |error| Error::step(&self.spec.job, "ask the other hosts", error);
        let begun = Instant::now();
        let echo = self.prepared.namespace.echo.as_fd();
        let answered = ready::ask(echo, &self.spec.peers, within).map_err(step)?;
        let hosts = self.spec.peers.iter().map(|peer| peer.host);
        let missing: Vec<_> = hosts.filter(|host| !answered.contains_key(host)).collect();
        if missing.is_empty() {
            tracing::debug!(job = self.spec.job, took = ?begun.elapsed(), "the network is ready");
            return Ok(answered);
        }
        Err(Error::Unreachable { job: self.spec.job.clone(), within, missing })
    }

    /// The way of a packet to an address, asked of the kernel; to another host with the time of an
    /// echo, for which it waits at most so long.
    pub fn trace(&mut self, to: IpAddr, within: Duration) -> Result<Way> {
        let found = trace::of(&mut self.prepared.namespace.route, to);
        let mut way = found.map_err(|failed| Error::failed(&self.spec.job, failed))?;
        if let Way::Host { host, round_trip, .. } = &mut way {
            let known = self.spec.peers.iter().filter(|peer| peer.host == *host);
            let peers: Vec<Peer> = known.copied().collect();
            let echo = self.prepared.namespace.echo.as_fd();
            let asked = ready::ask(echo, &peers, within);
            let asked = asked.map_err(|e| Error::step(&self.spec.job, "ask the other host", e))?;
            *round_trip = asked.get(host).copied();
        }
        Ok(way)
    }

    /// Who takes what comes in on this host at an address and a port.
    pub fn listeners(&mut self, at: IpAddr, port: u16) -> Result<Vec<Listener>> {
        let other = self.spec.other_family(at);
        let found = listen::at(&mut self.prepared.namespace.diagnosis, (at, other), port);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// What was asked of the kernel so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What there is in the namespace now.
    pub fn remains(&mut self) -> Result<Remains> {
        let found = remains::of(&mut self.prepared.namespace);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// What functions have still to tell others. Once the network is gone nobody will hear it.
    ///
    /// # Errors
    /// [`Error::Step`] when the kernel does not tell.
    pub fn unsent(&mut self) -> Result<Unsent> {
        let found = remains::unsent(&mut self.prepared.namespace);
        found.map_err(|failed| Error::failed(&self.spec.job, failed))
    }

    /// Takes the network away and waits until nothing of it is left. Functions must have ended: a
    /// process that is left in the namespace keeps the lease.
    ///
    /// # Errors
    /// [`Error::Step`] when something is left after that time. It reaches nobody any more, and
    /// its overlay's number is not given to another job while it is there.
    pub fn close(self, within: Duration) -> Result<()> {
        let (shared, vni, job) = (self.shared.clone(), self.spec.vni, self.spec.job.clone());
        drop(self);
        let deadline = Instant::now() + within;
        while !shared.release_if_gone(vni)? {
            if Instant::now() >= deadline {
                let left = std::io::Error::other("a process or socket is left in it");
                return Err(Error::step(&job, "end the network", left));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for JobNetwork {
    fn drop(&mut self) {
        self.prepared.cut();
        // Its thread is in the namespace.
        drop(lock(&self.guard).take());
        if let Some(groups) = &self.shared.groups {
            groups.remove_functions(self.prepared.namespace.cookie);
        }
        if let Some(pair) = self.pair {
            self.shared.gate.give_back(pair);
        }
        self.shared.end(&mut self.lease);
    }
}
