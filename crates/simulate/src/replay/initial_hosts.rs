//! The beginning of a replay: empty hosts, or hosts with idle instances.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_schedule::{Decision, HostRoom};
use snowmelt_types::HostName;

use super::hosts::Server;
use super::run::{ReplayResult, ReplayRun, number};
use crate::error::Error;

/// The time for which a warm instance waits for its host when the trace begins. Any time would do.
const SECOND: Duration = Duration::from_secs(1);

impl ReplayRun<'_> {
    /// Reports all hosts to the scheduler as empty.
    pub(super) fn report_hosts(&mut self) -> ReplayResult {
        (0..self.setting.hosts).try_for_each(|host| self.report_host(host))
    }

    /// Reports the next host to the scheduler as empty.
    pub(super) fn report_host(&mut self, number: u32) -> ReplayResult {
        let room = HostRoom {
            memory: self.policy.host_memory,
            cpu_millis: u64::from(self.setting.cores) * 1000,
            ..HostRoom::default()
        };
        // The order of names is that of numbers.
        let name = HostName::try_from(format!("h{number:010}"))?;
        self.scheduler.report(&name, room);
        self.names.push(name);
        Ok(())
    }

    /// Gives each function its idle instances, on hosts that the scheduler chooses and that have
    /// its image.
    pub(super) fn warm_up(&mut self) -> Result<(), Error> {
        let mut placed = Vec::new();
        for (function, needs) in (0..).zip(&self.needs) {
            for _ in 0..self.policy.warm {
                let ticket = self.scheduler.ask(Arc::clone(needs), Duration::ZERO, SECOND);
                match self.scheduler.next(Duration::ZERO) {
                    Some(Decision::Run(run, host)) if run == ticket => {
                        placed.push((function, ticket, host));
                    }
                    _ => return Err(no_room(self.policy.warm, self.needs.len())),
                }
            }
        }
        self.calls.begin(placed.len() as u64);
        let begun = self.keep_warm(&placed);
        begun.map_err(|what| Error::Invariant { what, nanoseconds: 0, seed: self.setting.seed })
    }

    /// Places the instances on their hosts, and ends their calls at once.
    fn keep_warm(&mut self, placed: &[(u32, u64, HostName)]) -> ReplayResult {
        let mut members = Vec::new();
        for (function, _, host) in placed {
            let host = number(host)?;
            let member = match self.hosts.find(*function, host) {
                Some(member) => member,
                None => {
                    let member = self.join(*function, host)?;
                    self.images.fill(*function, host);
                    let on = self.hosts.member(member);
                    (on.server, on.is_new) = (Server::Runs, false);
                    member
                }
            };
            self.hosts.take_new(member, self.now)?;
            members.push(member);
        }
        for ((_, ticket, _), member) in placed.iter().zip(members) {
            let count = self.hosts.end(member, self.now);
            self.scheduler.ended(*ticket, Some(count), Duration::ZERO);
            self.watch(member);
        }
        Ok(())
    }
}

fn no_room(warm: u32, functions: usize) -> Error {
    Error::Setting(format!(
        "the hosts have no room for {warm} instances of each of {functions} functions at the beginning"
    ))
}
