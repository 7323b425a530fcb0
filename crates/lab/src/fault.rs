//! Faults of hosts on demand, and their healing.
//!
//! Invariant: a fault is recorded before it is caused, so healing undoes every fault; undoing a
//! recorded fault that was not caused is not an error.

use serde::{Deserialize, Serialize};
use snowmelt_network::netlink::Batch;

use crate::device::{self, ETH0, port};
use crate::host::{Host, Program};
use crate::lab::{Lab, process_of, set_shape, start};
use crate::namespace::{self, Namespace};
use crate::{Result, folder, shape};

/// A fault of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Its program is killed, without notice to other hosts.
    Kill,
    /// Its link is down.
    Unplug,
    /// Its link has a hundredth of its rate.
    Slow,
    /// It and the other hosts cannot reach each other; control is still reachable.
    Partition,
}

impl Lab {
    /// Causes a fault of a host. A fault that it already has is not caused again.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn fail(&self, host: &Host, fault: Fault) -> Result<()> {
        let _lock = self.lock()?;
        let mut faults = of(host)?;
        if fault == Fault::Kill {
            return process_of(host)?.map_or(Ok(()), |process| process.kill());
        }
        if faults.contains(&fault) {
            return Ok(());
        }
        faults.push(fault);
        folder::write(&host.faults_file(), &faults)?;
        match fault {
            Fault::Kill => Ok(()),
            Fault::Unplug => set_plugged(self, host, false),
            Fault::Slow => reshape(self, host, true),
            Fault::Partition => set_partitioned(self, host, true),
        }
    }

    /// Undoes all faults of a host, and starts its program if it does not run.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn heal(&self, host: &Host, program: &impl Program) -> Result<()> {
        let _lock = self.lock()?;
        for fault in of(host)? {
            match fault {
                Fault::Kill => {}
                Fault::Unplug => set_plugged(self, host, true)?,
                Fault::Slow => reshape(self, host, false)?,
                Fault::Partition => set_partitioned(self, host, false)?,
            }
        }
        folder::write(&host.faults_file(), &Vec::<Fault>::new())?;
        match process_of(host)? {
            Some(process) if process.is_alive() => Ok(()),
            _ => start(host, &namespace::open(&host.namespace)?, program),
        }
    }
}

/// The faults of a host that are not healed.
pub(crate) fn of(host: &Host) -> Result<Vec<Fault>> {
    Ok(folder::read(&host.faults_file())?.unwrap_or_default())
}

/// Partitions hosts that were added later from those that are partitioned already.
pub(crate) fn partition_new_hosts(lab: &Lab) -> Result<()> {
    for host in lab.hosts() {
        if of(&host)?.contains(&Fault::Partition) {
            set_partitioned(lab, &host, true)?;
        }
    }
    Ok(())
}

/// The host's device loses its carrier when its port of the bridge is down.
fn set_plugged(lab: &Lab, host: &Host, plugged: bool) -> Result<()> {
    let mut batch = Batch::new();
    let step = if plugged { "plug in a host" } else { "unplug a host" };
    device::set(&mut batch, step, port(host.number), plugged);
    Ok(lab.bridge()?.route.run(batch)?)
}

fn reshape(lab: &Lab, host: &Host, slow: bool) -> Result<()> {
    let (usual, slowed) = (lab.plan.link, lab.plan.link.slowed());
    let (from, to) = if slow { (usual, slowed) } else { (slowed, usual) };
    let mut bridge = lab.bridge()?;
    let mut own = namespace::open(&host.namespace)?;
    shape::remove(&mut own.route, ETH0, from)?;
    shape::remove(&mut bridge.route, port(host.number), crate::Link { delay: None, ..from })?;
    set_shape(&mut bridge, &mut own, host, to)
}

/// Adds or removes blackhole routes on both sides, which `ip route` on the host shows.
fn set_partitioned(lab: &Lab, host: &Host, partitioned: bool) -> Result<()> {
    let mut own = namespace::open(&host.namespace)?;
    for other in lab.hosts().iter().filter(|other| are_partitioned(host, other)) {
        // The routes of another partitioned host stay.
        if !partitioned && of(other)?.contains(&Fault::Partition) {
            continue;
        }
        set_direction(&mut own, other, partitioned)?;
        set_direction(&mut namespace::open(&other.namespace)?, host, partitioned)?;
    }
    Ok(())
}

/// A partitioned host is separated from all but control; control from all.
fn are_partitioned(host: &Host, other: &Host) -> bool {
    host.number != other.number && (host.is_control() || !other.is_control())
}

fn set_direction(from: &mut Namespace, to: &Host, partitioned: bool) -> Result<()> {
    let mut batch = Batch::new();
    device::set_blackhole(&mut batch, to.ip(), partitioned);
    match from.route.run(batch) {
        // There was no such route.
        Err(failed)
            if !partitioned
                && failed.source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            Ok(())
        }
        done => Ok(done?),
    }
}
