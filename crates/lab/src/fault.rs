//! What can happen to a host, on demand, and its healing.
//!
//! Invariant: what was done to a host is written down before it is done, so healing undoes at
//! least as much, and to undo what was not done is well.

use serde::{Deserialize, Serialize};
use snowmelt_network::netlink::Batch;

use crate::device::{self, ETH0, port};
use crate::host::{Host, Program};
use crate::lab::{Lab, process_of, set_shape, start};
use crate::namespace::{self, Namespace};
use crate::{Result, folder, shape};

/// What happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Its program is killed, without a word to anybody.
    Kill,
    /// Its cable is pulled.
    Unplug,
    /// Its link has a hundredth of its rate.
    Slow,
    /// It does not reach the other hosts, nor they it; control still does.
    Partition,
}

impl Lab {
    /// Has something happen to a host. What has happened to it already happens no second time.
    ///
    /// # Errors
    /// What the kernel refuses.
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
            Fault::Partition => set_cut(self, host, true),
        }
    }

    /// Undoes all that has happened to a host, and starts its program if it does not run.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn heal(&self, host: &Host, program: &impl Program) -> Result<()> {
        let _lock = self.lock()?;
        for fault in of(host)? {
            match fault {
                Fault::Kill => {}
                Fault::Unplug => set_plugged(self, host, true)?,
                Fault::Slow => reshape(self, host, false)?,
                Fault::Partition => set_cut(self, host, false)?,
            }
        }
        folder::write(&host.faults_file(), &Vec::<Fault>::new())?;
        match process_of(host)? {
            Some(process) if process.is_alive() => Ok(()),
            _ => start(host, &namespace::open(&host.namespace)?, program),
        }
    }
}

/// What has happened to a host and was not healed.
pub(crate) fn of(host: &Host) -> Result<Vec<Fault>> {
    Ok(folder::read(&host.faults_file())?.unwrap_or_default())
}

/// Cuts hosts that came later from those that are cut from the others.
pub(crate) fn cut_again(lab: &Lab) -> Result<()> {
    for host in lab.hosts() {
        if of(&host)?.contains(&Fault::Partition) {
            set_cut(lab, &host, true)?;
        }
    }
    Ok(())
}

/// The host's carrier goes with its port.
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

/// By routes on both sides: what is cut from whom is then seen by `ip route` on the host.
fn set_cut(lab: &Lab, host: &Host, cut: bool) -> Result<()> {
    let mut own = namespace::open(&host.namespace)?;
    for other in lab.hosts().iter().filter(|other| are_cut(host, other)) {
        // Another that is cut from all stays so.
        if !cut && of(other)?.contains(&Fault::Partition) {
            continue;
        }
        one_way(&mut own, other, cut)?;
        one_way(&mut namespace::open(&other.namespace)?, host, cut)?;
    }
    Ok(())
}

/// A host is cut from all but control, and control from all.
fn are_cut(host: &Host, other: &Host) -> bool {
    host.number != other.number && (host.is_control() || !other.is_control())
}

fn one_way(from: &mut Namespace, to: &Host, cut: bool) -> Result<()> {
    let mut batch = Batch::new();
    device::set_cut(&mut batch, to.ip(), cut);
    match from.route.run(batch) {
        // There was no such route.
        Err(failed)
            if !cut
                && failed.source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            Ok(())
        }
        done => Ok(done?),
    }
}
