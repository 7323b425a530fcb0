//! The hosts of a lab's pool, which are started and ended while the lab runs.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::lab::Lab;
use crate::members::{LabHost, LabMember, LabProgram, process_of};
use crate::process::Process;
use crate::{Error, Result};

/// The limit on the time in which a host ends before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Lab {
    /// Whether a member is started with the lab.
    pub(crate) fn is_to_start(&self, member: &LabMember) -> bool {
        let started = self.plan.pool.as_ref().map_or(u32::MAX, |pool| pool.started);
        member.host().is_none_or(|host| host.machine.number <= started)
    }

    /// The hosts other than control that run.
    ///
    /// # Errors
    /// A file of the lab cannot be read.
    pub fn running(&self) -> Result<Vec<LabHost>> {
        let mut running = Vec::new();
        for host in self.hosts().into_iter().filter(|host| !host.is_control()) {
            if process_of(&host.machine)?.is_some_and(Process::is_alive) {
                running.push(host);
            }
        }
        Ok(running)
    }

    /// Starts hosts until `count` of them run, control not counted, or all do.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(&self, count: u32, program: &impl LabProgram) -> Result<()> {
        let _lock = self.lock()?;
        let running = self.running()?;
        let missing = (count as usize).saturating_sub(running.len());
        let rest = self.hosts().into_iter().filter(|host| !host.is_control());
        let rest = rest.filter(|host| !running.contains(host));
        for host in rest.take(missing) {
            LabMember::Host(host).start_again(program)?;
        }
        Ok(())
    }

    /// Ends a host as its machine would be shut down; kills it if it does not end in time.
    ///
    /// # Errors
    /// The process cannot be signalled.
    pub fn stop(&self, host: &LabHost) -> Result<()> {
        let _lock = self.lock()?;
        let Some(process) = process_of(&host.machine)? else { return Ok(()) };
        process.signal(Signal::TERM)?;
        let deadline = Instant::now() + END_TIMEOUT;
        while process.is_alive() {
            if Instant::now() > deadline {
                process.kill()?;
                process.wait_for_end();
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Finds a host other than control by its name.
    ///
    /// # Errors
    /// Fails if no host other than control has that name.
    pub fn other_host(&self, name: &str) -> Result<LabHost> {
        let found = self.member_named(name)?.host().filter(|host| !host.is_control()).cloned();
        found.ok_or_else(|| Error::NoHost {
            lab: self.name().clone(),
            host: name.to_owned(),
            hosts: self.hosts().iter().skip(1).map(|host| host.name().to_owned()).collect(),
        })
    }
}
