//! The events of calls and hosts at one moment of a replay.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_schedule::{Decision, Reclaimed};

use super::calls::State;
use super::hosts::Server;
use super::run::{ReplayEvent, ReplayResult, ReplayRun, nanoseconds, number};
use crate::strategy::Strategy;

/// The time in nanoseconds after which control tells the scheduler the places of hosts in trees.
const BEAT: u64 = 1_000_000_000;

/// The time in nanoseconds after which the scheduler forgets what is over, and is compared with the
/// hosts.
const SWEEP: u64 = 60_000_000_000;

impl ReplayRun<'_> {
    pub(super) fn arrives(&mut self, call: u32) -> ReplayResult {
        self.figures.arrives(self.now);
        if !std::mem::replace(&mut self.has_sweep_due, true) {
            self.events.push(Reverse((self.now + SWEEP, ReplayEvent::Sweep)));
        }
        self.ask(call)
    }

    /// Asks the scheduler for a host.
    pub(super) fn ask(&mut self, call: u32) -> ReplayResult {
        let deadline = self.now + nanoseconds(self.policy.patience);
        let needs = Arc::clone(&self.needs[self.calls.arrival(call).function as usize]);
        let ticket = self.scheduler.ask(needs, self.clock(), Duration::from_nanos(deadline));
        self.calls.is_asked(call, ticket, deadline)?;
        self.decide()?;
        if self.calls.state(call) == State::Waits {
            self.events.push(Reverse((deadline, ReplayEvent::Wake)));
        }
        Ok(())
    }

    /// Carries out all decisions that the scheduler can make now.
    pub(super) fn decide(&mut self) -> ReplayResult {
        while let Some(decision) = self.scheduler.next(self.clock()) {
            match decision {
                Decision::Run(ticket, host) => {
                    let call = self.calls.of(ticket)?;
                    self.calls.is_placed(call)?;
                    let host = number(&host)?;
                    match self.failures.is_silent(host) {
                        true => self.place_in_vain(call, host)?,
                        false => self.place(call, host)?,
                    }
                }
                // A trace has calls only.
                Decision::Start(..) => {}
                Decision::Expired(ticket) => {
                    let call = self.calls.of(ticket)?;
                    match self.calls.is_asynchronous(call) {
                        true => self.pause(call, State::Waits)?,
                        false => {
                            self.figures.expired += 1;
                            self.calls.is_given_up(call, State::Expired)?;
                        }
                    }
                }
                Decision::Refused(ticket) => {
                    self.figures.refused += 1;
                    self.calls.is_given_up(self.calls.of(ticket)?, State::Refused)?;
                }
            }
        }
        Ok(())
    }

    /// Puts a call on a host, where it gets an idle instance or a new one.
    fn place(&mut self, call: u32, host: u32) -> ReplayResult {
        let function = self.calls.arrival(call).function;
        let member = match self.hosts.find(function, host) {
            Some(member) => member,
            None => {
                self.figures.provisioned += 1;
                self.join(function, host)?
            }
        };
        self.calls.is_on(call, member);
        let is_warm = self.hosts.take_idle(member, self.now);
        let placed = self.hosts.member(member).calls;
        if placed > self.setting.per_host {
            return Err(format!("host {host} has {placed} instances of function {function}"));
        }
        if is_warm {
            return self.start(call);
        }
        self.hosts.take_room(member, self.now)?;
        self.figures.is_cold(self.now);
        let fork = nanoseconds(self.setting.fork);
        let on = self.hosts.member(member);
        match on.server {
            Server::Runs => {
                on.forked = on.forked.max(self.now) + fork;
                let losses = self.calls.losses(call);
                self.events.push(Reverse((on.forked, ReplayEvent::Start(call, losses))));
            }
            Server::Waits | Server::Starts => on.waiting.push(call),
            Server::None => {
                on.waiting.push(call);
                on.server = Server::Waits;
                self.share_cores(member, true);
                self.plan_start(member);
            }
        }
        Ok(())
    }

    pub(super) fn join(&mut self, function: u32, host: u32) -> Result<u32, String> {
        let member = self.hosts.join(function, host, self.now);
        let slot = self.images.join(function, host)?;
        self.figures.hosts(self.hosts.active, self.now);
        self.tell_roles_soon();
        match slot == member {
            true => Ok(member),
            false => Err(format!("member {member} has slot {slot}")),
        }
    }

    /// Divides the cores of a host between the functions that start on it.
    fn share_cores(&mut self, member: u32, begins: bool) {
        let starting = self.hosts.starting(member, begins);
        let crowd = (starting.len() as f64 / f64::from(self.setting.cores)).max(1.0);
        for &slot in starting {
            let slot = &mut self.images.local.slots[slot as usize];
            slot.per_byte = crowd * 1e9 / self.setting.read_rate as f64;
        }
    }

    /// Plans the first start of a member, if the blocks that it reads have arrived.
    pub(super) fn plan_start(&mut self, member: u32) {
        let slot = &self.images.local.slots[member as usize];
        let is_pull = self.strategy == Strategy::Pull;
        let is_here = if is_pull { slot.has_all() } else { slot.has_profile() };
        let on = self.hosts.member(member);
        if on.server != Server::Waits || !is_here {
            return;
        }
        on.server = Server::Starts;
        let setting = self.setting;
        let late = self.images.hops(on.function, on.host) * nanoseconds(setting.delay);
        let came = if is_pull { slot.whole } else { slot.arrived };
        let read = match (is_pull, came < self.now) {
            // It was here before. The files of an unpacked image are in memory.
            (true, true) => self.now,
            (false, true) => self.now + (setting.start as f64 * slot.per_byte) as u64,
            (true, false) => {
                let crowd = slot.per_byte * setting.read_rate as f64;
                let unpacking = setting.image as f64 * crowd / setting.unpack_rate as f64;
                slot.whole + late + unpacking as u64
            }
            (false, false) => slot.read + late,
        };
        let ready = read.max(self.now) + nanoseconds(setting.tail);
        self.events.push(Reverse((ready, ReplayEvent::Ready(member))));
    }

    /// Handles the first start of a member: further instances are forked from it.
    pub(super) fn ready(&mut self, member: u32) -> ReplayResult {
        if self.hosts.member(member).is_lost {
            return Ok(());
        }
        self.share_cores(member, false);
        let fork = nanoseconds(self.setting.fork);
        let now = self.now;
        let on = self.hosts.member(member);
        on.server = Server::Runs;
        on.forked = now;
        if std::mem::replace(&mut on.is_new, false) {
            self.figures.provisioning.push(now - on.joined);
        }
        let waiting = std::mem::take(&mut on.waiting);
        let mut forked = now;
        for (number, &call) in waiting.iter().enumerate() {
            forked = now + number as u64 * fork;
            match number {
                0 => self.start(call)?,
                _ => {
                    let losses = self.calls.losses(call);
                    self.events.push(Reverse((forked, ReplayEvent::Start(call, losses))));
                }
            }
        }
        self.hosts.member(member).forked = forked;
        Ok(())
    }

    pub(super) fn start(&mut self, call: u32) -> ReplayResult {
        let arrival = self.calls.arrival(call);
        if let Some(wait) = self.calls.starts(call, self.now)? {
            self.figures.starts(arrival.at, wait);
        }
        let end = ReplayEvent::End(call, self.calls.losses(call));
        self.events.push(Reverse((self.now + arrival.duration, end)));
        Ok(())
    }

    pub(super) fn end(&mut self, call: u32) -> ReplayResult {
        self.calls.ends(call)?;
        self.figures.ran += 1;
        self.failures.answers(self.calls.arrival(call).at, self.now);
        let member = self.calls.member(call);
        let count = self.hosts.end(member, self.now);
        self.scheduler.ended(self.calls.ticket(call), Some(count), self.clock());
        self.watch(member);
        self.decide()
    }

    /// Plans a check of whether a member without calls is taken back: control checks once a second.
    pub(super) fn watch(&mut self, member: u32) {
        if self.hosts.member(member).calls > 0 {
            return;
        }
        let due = (self.now + nanoseconds(self.policy.reclaim)).div_ceil(BEAT) * BEAT;
        if self.reclaims_at.replace(due) != Some(due) {
            self.events.push(Reverse((due, ReplayEvent::Reclaim)));
        }
    }

    /// Takes back the functions and images that the scheduler names. A host leaves the trees of an
    /// image together with the only function of the image.
    pub(super) fn reclaim(&mut self) -> ReplayResult {
        let mut reclaimed = self.scheduler.reclaim(self.clock());
        // The scheduler says it in any order.
        reclaimed.sort_unstable();
        for reclaimed in reclaimed {
            let Reclaimed::Function(host, function) = reclaimed else { continue };
            let host = number(&host)?;
            if self.failures.is_silent(host) {
                continue;
            }
            let function = self.numbers.get(&function).copied();
            let member = function.and_then(|function| self.hosts.find(function, host));
            let (Some(function), Some(member)) = (function, member) else {
                return Err(format!("host {host} is reclaimed from what it does not have"));
            };
            if self.hosts.member(member).calls > 0 {
                return Err(format!("host {host} is reclaimed from a function with calls"));
            }
            self.hosts.leave(member);
            self.images.leave(function, host)?;
            self.figures.reclaimed += 1;
            self.tell_roles_soon();
        }
        self.figures.hosts(self.hosts.active, self.now);
        Ok(())
    }

    pub(super) fn tell_roles_soon(&mut self) {
        if self.images.has_trees() && !std::mem::replace(&mut self.has_roles_due, true) {
            let due = (self.now / BEAT + 1) * BEAT;
            self.events.push(Reverse((due, ReplayEvent::Roles)));
        }
    }

    /// Tells the scheduler the places of hosts in trees.
    pub(super) fn tell_roles(&mut self) {
        self.has_roles_due = false;
        self.scheduler.forget_trees();
        let mut inner = vec![0; self.names.len()];
        for (function, needs) in (0..).zip(&self.needs) {
            let Some(image) = &needs.image else { continue };
            for role in self.images.roles(function) {
                self.scheduler.holds(&self.names[role.host as usize], image, role.depth);
                inner[role.host as usize] += u32::from(role.is_inner);
            }
        }
        for (name, inner) in self.names.iter().zip(inner) {
            self.scheduler.sends_in(name, inner);
        }
    }

    pub(super) fn sweep(&mut self) -> ReplayResult {
        self.has_sweep_due = false;
        self.scheduler.sweep(self.clock());
        for (number, name) in (0..).zip(&self.names) {
            let known = self.scheduler.memory(name);
            let in_vain = self.memory_in_vain(number);
            let has = in_vain.unwrap_or_else(|| self.hosts.busy_memory(number));
            // One that is known to have failed is not there any more.
            if known.is_some_and(|(taken, _)| taken != has) || (known.is_none() && has > 0) {
                return Err(format!("host {number} has calls of {has} bytes, not {known:?}"));
            }
        }
        Ok(())
    }
}
