//! The failures of hosts during a replay, and their effect on calls.
//!
//! A host fails at one moment, with everything on it: it answers nobody from then on. Control
//! notices that after a time and takes the host out of trees and scheduler; it may have placed
//! calls there meanwhile. A call that was sent to the host may have run: it fails, or is run again
//! if it is asynchronous. A call whose function was not even prepared there has not run: it is
//! placed again.
//!
//! Invariant: which hosts fail follows from the seed, the settings and the trace.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::Kill;
use super::calls::State;
use super::failures::Silent;
use super::run::{ReplayEvent, ReplayResult, ReplayRun, nanoseconds};

/// The time until an asynchronous call is tried again for the first time. It doubles with each try,
/// up to `LAST_PAUSE`, as in control.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);

impl ReplayRun<'_> {
    pub(super) fn plan_failures(&mut self) {
        for (number, kill) in (0..).zip(&self.policy.kills) {
            self.events.push(Reverse((nanoseconds(kill.at), ReplayEvent::Fail(number))));
        }
    }

    /// Makes random hosts fail.
    pub(super) fn fail(&mut self, kill: u32) -> ReplayResult {
        let Kill { hosts, .. } = self.policy.kills[kill as usize];
        let mut members = HashSet::new();
        for _ in 0..hosts {
            let host = self.failures.pick()?;
            members.extend(self.lose(host));
        }
        for call in self.calls.on(&members, self.next) {
            let host = self.hosts.members[self.calls.member(call) as usize].host;
            self.calls.is_lost(call)?;
            self.silent(host)?.sent.push(call);
        }
        self.figures.hosts(self.hosts.active, self.now);
        Ok(())
    }

    /// Makes a host fail. Returns the functions that it had, as members.
    fn lose(&mut self, host: u32) -> Vec<u32> {
        let lost = self.hosts.fail(host);
        let function = |member: &u32| self.hosts.members[*member as usize].function;
        let functions: BTreeSet<u32> = lost.iter().map(function).collect();
        functions.iter().for_each(|function| self.images.fail(*function, host));
        let silent = Silent { functions, ..Silent::default() };
        self.failures.unnoticed.insert(host, silent);
        self.failures.losses.hosts += 1;
        let noticed = self.now + nanoseconds(self.setting.detect);
        self.events.push(Reverse((noticed, ReplayEvent::Noticed(host))));
        if let Some(absent) = self.policy.absent {
            self.events.push(Reverse((self.now + nanoseconds(absent), ReplayEvent::Joins)));
        }
        lost
    }

    /// Places a call on a host that has failed.
    pub(super) fn place_in_vain(&mut self, call: u32, host: u32) -> ReplayResult {
        let function = self.calls.arrival(call).function;
        let silent = self.silent(host)?;
        if !silent.functions.contains(&function) {
            silent.unsent.push(call);
            return Ok(());
        }
        silent.sent.push(call);
        self.calls.is_lost(call)
    }

    /// The memory of the calls that control has placed on a host that has failed, in bytes. `None`
    /// if the host has not failed or control has noticed it.
    pub(super) fn memory_in_vain(&self, host: u32) -> Option<u64> {
        let Silent { sent, unsent, .. } = self.failures.unnoticed.get(&host)?;
        let memory = |call: &u32| self.needs[self.calls.arrival(*call).function as usize].memory;
        Some(sent.iter().chain(unsent).map(memory).sum())
    }

    /// Handles that control notices the failure of a host.
    pub(super) fn noticed(&mut self, host: u32) -> ReplayResult {
        let silent = self.failures.unnoticed.remove(&host);
        let silent = silent.ok_or_else(|| format!("host {host} was noticed before it failed"))?;
        self.scheduler.remove(&self.names[host as usize], self.clock());
        for function in silent.functions {
            self.images.leave(function, host)?;
        }
        self.tell_roles_soon();
        for call in silent.sent {
            self.scheduler.ended(self.calls.ticket(call), None, self.clock());
            match self.calls.is_asynchronous(call) {
                true => {
                    self.failures.losses.run_again += 1;
                    self.pause(call, State::Lost)?;
                }
                false => {
                    self.failures.losses.failed += 1;
                    self.figures.fails(self.now);
                    self.calls.fails(call)?;
                }
            }
        }
        for call in silent.unsent {
            self.failures.losses.placed_again += 1;
            self.calls.is_back(call)?;
            self.scheduler.refused(self.calls.ticket(call), self.clock());
            let deadline = self.calls.deadline(call)?.max(self.now);
            self.events.push(Reverse((deadline, ReplayEvent::Wake)));
        }
        self.decide()
    }

    /// Plans the next request for an asynchronous call, after a pause that is longer each time.
    pub(super) fn pause(&mut self, call: u32, was: State) -> ReplayResult {
        let before = self.calls.pauses(call, was)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LAST_PAUSE);
        self.events.push(Reverse((self.now + nanoseconds(pause), ReplayEvent::Again(call))));
        Ok(())
    }

    /// Adds a host in place of a failed one, with a name of its own.
    pub(super) fn joins(&mut self) -> ReplayResult {
        let host = self.names.len() as u32;
        self.hosts.add();
        self.images.add_host();
        self.failures.alive.push(host);
        self.failures.losses.joined += 1;
        self.report_host(host)?;
        self.decide()
    }

    /// Handles, after the last call, the failures that control has not noticed yet.
    ///
    /// # Errors
    /// Fails as [`Self::noticed`].
    pub(super) fn notice_all(&mut self) -> ReplayResult {
        while let Some(Reverse((time, event))) = self.events.pop() {
            if let ReplayEvent::Noticed(host) = event {
                self.images.engine.run(Some(time), &mut self.images.local)?;
                self.now = time;
                self.noticed(host)?;
            }
        }
        Ok(())
    }

    /// Checks that no host has calls left, and that no failed host is known as alive.
    pub(super) fn check_hosts(&self) -> ReplayResult {
        let alive: HashSet<&u32> = self.failures.alive.iter().collect();
        for (host, name) in (0..).zip(&self.names) {
            let known = self.scheduler.memory(name).map(|(taken, _)| taken);
            let expected = alive.contains(&host).then_some(0);
            if known != expected || self.hosts.busy_memory(host) > 0 {
                return Err(format!("host {host} has {known:?} bytes of calls after the last one"));
            }
        }
        Ok(())
    }

    fn silent(&mut self, host: u32) -> Result<&mut Silent, String> {
        let silent = self.failures.unnoticed.get_mut(&host);
        silent.ok_or_else(|| format!("host {host} has not failed"))
    }
}
