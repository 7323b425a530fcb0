//! Faults on demand, and their healing.
//!
//! Invariant: a fault is recorded before it is caused, so healing undoes every fault; undoing a
//! recorded fault that was not caused is not an error.

use snowmelt_network::netlink::Batch;

use super::{clock, corruption};
use crate::lab::Lab;
use crate::members::{
    Fault, LabHost, LabMember, LabProgram, Machine, disk, fault_kinds, process_of,
};
use crate::namespace::{self, Namespace};
use crate::network::{ETH0, device, port, set_shape, shape};
use crate::{Error, Result, process};

/// The number of seconds by which a wrong clock is ahead or behind.
const WRONG_BY: i64 = 3600;

impl Lab {
    /// Causes a fault. A fault that the member already has is not caused again.
    ///
    /// # Errors
    /// The kernel refuses a step, or this member cannot have the fault.
    pub fn fail(&self, member: &LabMember, fault: Fault) -> Result<()> {
        let _lock = self.lock()?;
        let machine = member.machine();
        check(self, member, fault)?;
        let mut faults = fault_kinds::of(machine)?;
        if fault == Fault::Kill {
            return kill(machine, faults);
        }
        if faults.contains(&fault) {
            return Ok(());
        }
        faults.retain(|other| !(fault.is_of_clock() && other.is_of_clock()));
        faults.push(fault);
        fault_kinds::record(machine, &faults)?;
        self.set(member, fault, true)
    }

    /// Undoes all faults, and starts the program if it does not run.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn heal(&self, member: &LabMember, program: &impl LabProgram) -> Result<()> {
        let _lock = self.lock()?;
        for fault in fault_kinds::of(member.machine())? {
            self.set(member, fault, false)?;
        }
        fault_kinds::record(member.machine(), &[])?;
        member.start_again(program)
    }

    /// Kills the program and starts it again. Other faults stay.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub fn restart(&self, member: &LabMember, program: &impl LabProgram) -> Result<()> {
        let _lock = self.lock()?;
        let machine = member.machine();
        kill(machine, fault_kinds::of(machine)?)?;
        member.start_again(program)
    }

    fn set(&self, member: &LabMember, fault: Fault, begins: bool) -> Result<()> {
        let machine = member.machine();
        match (fault, member.host()) {
            (Fault::Kill, _) => Ok(()),
            (Fault::Freeze, _) => freeze(machine, begins),
            (Fault::Unplug, _) => set_plugged(self, machine, !begins),
            (Fault::Slow, _) => reshape(self, machine, begins),
            (Fault::Partition, Some(host)) => set_partitioned(self, host, begins),
            (Fault::Corrupt, _) if begins => corruption::start(&mut self.bridge()?.route, machine),
            (Fault::Corrupt, _) => corruption::stop(&mut self.bridge()?.route, machine),
            (Fault::DiskFull, Some(host)) if begins => disk::fill(host),
            (Fault::DiskFull, Some(host)) => disk::empty(host),
            (Fault::Partition | Fault::DiskFull, None) => Ok(()),
            (Fault::ClockAhead, _) if begins => set_clock(machine, WRONG_BY),
            (Fault::ClockBehind, _) if begins => set_clock(machine, -WRONG_BY),
            (Fault::ClockAhead | Fault::ClockBehind, _) => set_clock(machine, 0),
        }
    }
}

/// Separates hosts that were added later from those that are partitioned already.
pub(crate) fn partition_new_hosts(lab: &Lab) -> Result<()> {
    for host in lab.hosts() {
        if fault_kinds::of(&host.machine)?.contains(&Fault::Partition) {
            set_partitioned(lab, &host, true)?;
        }
    }
    Ok(())
}

fn check(lab: &Lab, member: &LabMember, fault: Fault) -> Result<()> {
    if member.host().is_none() && !fault.is_of_services() {
        return Err(Error::NoHostFault { name: member.machine().name.clone() });
    }
    if fault == Fault::DiskFull && lab.plan.disk.is_none() {
        return Err(Error::NoDisk { lab: lab.name().clone() });
    }
    Ok(())
}

/// Kills the program of a machine, and returns when its process has ended: whoever heals the
/// machine then starts the next process, and does not take the dying one for one that runs. A
/// frozen process can be killed, but the processes below it cannot clean up while they are frozen.
/// The next process has the right time.
fn kill(machine: &Machine, mut faults: Vec<Fault>) -> Result<()> {
    let Some(process) = process_of(machine)? else { return Ok(()) };
    let below = process.below();
    process.kill()?;
    if faults.contains(&Fault::Freeze) {
        process::thaw(&below)?;
    }
    process.wait_for_end();
    faults.retain(|fault| !fault.is_of_processes());
    fault_kinds::record(machine, &faults)
}

fn freeze(machine: &Machine, frozen: bool) -> Result<()> {
    let Some(process) = process_of(machine)? else { return Ok(()) };
    match frozen {
        true => process.freeze(),
        false => process::thaw(&process.with_below()),
    }
}

fn set_clock(machine: &Machine, ahead: i64) -> Result<()> {
    let process = process_of(machine)?.filter(|process| process.is_alive());
    process.map_or(Ok(()), |process| clock::set(process, ahead))
}

/// Plugs or unplugs a machine: its device loses its carrier when its port of the bridge is down.
fn set_plugged(lab: &Lab, machine: &Machine, plugged: bool) -> Result<()> {
    let mut batch = Batch::new();
    let step = if plugged { "plug in a host" } else { "unplug a host" };
    device::set(&mut batch, step, port(machine.number), plugged);
    Ok(lab.bridge()?.route.run(batch)?)
}

fn reshape(lab: &Lab, machine: &Machine, slow: bool) -> Result<()> {
    let usual = machine.link;
    let slowed = machine.link.slowed();
    let (from, to) = if slow { (usual, slowed) } else { (slowed, usual) };
    let mut bridge = lab.bridge()?;
    let mut own = namespace::open(&machine.namespace)?;
    shape::remove(&mut own.route, ETH0, from)?;
    shape::remove(&mut bridge.route, port(machine.number), crate::LabLink { delay: None, ..from })?;
    set_shape(&mut bridge, &mut own, machine.number, to)
}

/// Adds or removes blackhole routes on both sides, which `ip route` on the host shows.
fn set_partitioned(lab: &Lab, host: &LabHost, partitioned: bool) -> Result<()> {
    let mut own = namespace::open(&host.machine.namespace)?;
    for other in lab.hosts().iter().filter(|other| are_partitioned(host, other)) {
        // The routes of another partitioned host stay.
        if !partitioned && fault_kinds::of(&other.machine)?.contains(&Fault::Partition) {
            continue;
        }
        set_direction(&mut own, other, partitioned)?;
        set_direction(&mut namespace::open(&other.machine.namespace)?, host, partitioned)?;
    }
    Ok(())
}

/// Whether a fault of `host` separates it from `other`: a host is separated from all hosts but
/// control, and control from all hosts.
fn are_partitioned(host: &LabHost, other: &LabHost) -> bool {
    host.machine.number != other.machine.number && (host.is_control() || !other.is_control())
}

fn set_direction(from: &mut Namespace, to: &LabHost, partitioned: bool) -> Result<()> {
    let mut batch = Batch::new();
    device::set_blackhole(&mut batch, to.machine.ip(), partitioned);
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::folder;
    use crate::parameters::LabLink;
    use crate::process::tests::ChildProcess;

    /// The killed process has so many threads that their end takes the kernel some time.
    #[test]
    fn a_machine_is_killed_when_its_process_has_ended() {
        let code = "import threading, time
for _ in range(400): threading.Thread(target=time.sleep, args=(3600,)).start()";
        let child = ChildProcess::by(Command::new("python3").args(["-c", code]));
        let process = child.process();
        let tasks = format!("/proc/{}/task", process.pid);
        while std::fs::read_dir(&tasks).unwrap().count() <= 400 {
            thread::sleep(Duration::from_millis(20));
        }
        let scratch = tempfile::tempdir().unwrap();
        let machine = Machine {
            number: 1,
            name: "host-1".to_owned(),
            log: PathBuf::new(),
            link: LabLink::default(),
            folder: scratch.path().to_owned(),
            namespace: PathBuf::new(),
        };
        folder::write(&machine.process_file(), &process).unwrap();
        kill(&machine, Vec::new()).unwrap();
        assert!(!process.is_alive(), "the next one would not be started");
    }
}
