//! The scheduler's choice of a host: brings those orders of hosts up to date that the choice needs,
//! and takes the first host.
//!
//! Invariant: an order is read only after all hosts that have changed were put in their place.

use std::time::Duration;

use snowmelt_types::HostName;

use super::Scheduler;
use crate::hosts::{
    Follower, HostEntry, HostSearch, HostUsage, SearchReach, could_start, may_ever_run,
};
use crate::requests::CallDemand;

impl Scheduler {
    /// Returns the host that runs a call now, or `None` if no host has room. No room is taken on
    /// hosts that the call `kept` could start on.
    pub(crate) fn host_for(
        &mut self,
        call: &CallDemand,
        kept: Option<&CallDemand>,
        now: Duration,
    ) -> Option<HostName> {
        let mut found = self.choice(call, kept, now).own();
        if found.is_none() {
            found = self.slot_for(call, kept, true, now);
        }
        if found.is_none() {
            if !self.choice(call, kept, now).needs_no_orders() {
                self.settle_starts();
            }
            found = self.choice(call, kept, now).start(SearchReach::Here);
        }
        if found.is_none() {
            if !self.choice(call, kept, now).needs_no_orders() {
                self.settle_rooms();
            }
            found = self.choice(call, kept, now).start(SearchReach::Near);
        }
        if found.is_none() {
            found = self.slot_for(call, kept, false, now);
        }
        if found.is_none() {
            found = self.choice(call, kept, now).start(SearchReach::Any);
        }
        self.hosts.by_id(found?).map(|entry| entry.name.clone())
    }

    fn slot_for(
        &mut self,
        call: &CallDemand,
        kept: Option<&CallDemand>,
        needs_core: bool,
        now: Duration,
    ) -> Option<u32> {
        if let Some(found) = self.choice(call, kept, now).slot_of_few(needs_core) {
            return found;
        }
        self.settle_slots();
        self.choice(call, kept, now).slot(needs_core)
    }

    /// Whether some host has enough memory for a call if nothing else runs there.
    pub(crate) fn may_ever_run(&self, call: &CallDemand) -> bool {
        match &call.only {
            Some(only) => self.hosts.get(only).is_some_and(|host| may_ever_run(call, only, host)),
            None => self.hosts.with_most(call.memory).next().is_some(),
        }
    }

    /// Whether a call could have a new instance anywhere if enough memory became free there.
    pub(crate) fn could_ever_start(&self, call: &CallDemand) -> bool {
        match &call.only {
            Some(only) => {
                self.hosts.get(only).is_some_and(|host| self.could_start_on(call, only, host))
            }
            None => self
                .hosts
                .with_most(call.memory)
                .any(|entry| self.could_start_on(call, &entry.name, &entry.host)),
        }
    }

    /// Whether a call could have a new instance on one host if enough memory became free there.
    pub(crate) fn could_start_on(
        &self,
        call: &CallDemand,
        name: &HostName,
        host: &HostUsage,
    ) -> bool {
        let on = self.functions.get(&call.function);
        let instances = self.hosts.id(name).and_then(|id| on?.get(id));
        could_start(call, name, host, instances, &self.policy)
    }

    fn choice<'a>(
        &'a self,
        call: &'a CallDemand,
        kept: Option<&'a CallDemand>,
        now: Duration,
    ) -> HostSearch<'a> {
        let on = |call: &CallDemand| self.functions.get(&call.function);
        HostSearch {
            call,
            on: on(call),
            hosts: &self.hosts,
            rooms: &self.rooms,
            policy: &self.policy,
            kept: kept.map(|kept| (kept, on(kept))),
            now,
            few: self.few,
        }
    }

    fn settle_slots(&mut self) {
        let Self { hosts, functions, .. } = self;
        for id in hosts.changed(Follower::Slots) {
            let Some(HostEntry { host, order, functions: here, .. }) = hosts.entry_mut(id) else {
                continue;
            };
            here.retain(|function| {
                let on = functions.get_mut(function);
                on.is_some_and(|on| on.settle_slots(id, host, *order))
            });
        }
    }

    fn settle_starts(&mut self) {
        let Self { hosts, functions, .. } = self;
        for id in hosts.changed(Follower::Starts) {
            let Some(entry) = hosts.by_id(id) else { continue };
            for function in &entry.functions {
                if let Some(on) = functions.get_mut(function) {
                    on.settle_starts(id, entry);
                }
            }
        }
    }

    fn settle_rooms(&mut self) {
        let Self { hosts, rooms, .. } = self;
        for id in hosts.changed(Follower::Rooms) {
            rooms.settle(id, hosts.by_id(id));
        }
    }
}
