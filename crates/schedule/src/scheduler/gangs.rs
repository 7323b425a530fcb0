//! The scheduling of gangs, which wait in the queue of calls.
//!
//! Invariant: the memory of a gang that was placed is counted on its hosts until it has ended, also
//! on a host that was removed and has come back meanwhile. The room that is kept for a waiting gang
//! is no more than the gang needs, and only running calls and tasks are in its way there.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{Digest, HostName};

use super::Scheduler;
use super::shares::{Spare, shares};
use crate::hosts::{HostDirectory, HostUsage};
use crate::requests::{
    Decision, GangDemand, GangRanks, GangRoom, HeldGang, RoomReservations, SchedulerPolicy, Ticket,
};

impl Scheduler {
    /// Adds a gang, which waits until `deadline` at the longest.
    pub fn ask_gang(&mut self, gang: Arc<GangDemand>, now: Duration, deadline: Duration) -> Ticket {
        let ticket = self.ticket();
        self.queue.push(&gang.tenant, &line(ticket), ticket);
        self.deadlines.insert((deadline, ticket));
        self.gangs.insert(ticket, HeldGang { gang, since: now, deadline, parts: None });
        self.new.push(ticket);
        ticket
    }

    /// Counts a gang that runs already. Its hosts may be added later.
    pub fn runs_gang(&mut self, gang: Arc<GangDemand>, parts: GangRanks, now: Duration) -> Ticket {
        let ticket = self.ticket();
        let held = HeldGang { gang, since: now, deadline: now, parts: None };
        self.gangs.insert(ticket, held);
        self.begin_gang(ticket, parts, now);
        ticket
    }

    /// The memory on the hosts that a gang could have. If the number of its hosts is limited, the
    /// hosts with the most memory count. Memory of a host beyond whole ranks is left out where that
    /// memory would make the sum look sufficient.
    pub fn gang_room(&self, gang: &GangDemand) -> GangRoom {
        let most_hosts = gang.most_hosts.map_or(usize::MAX, |most| most.max(1) as usize);
        let sum = |of: fn(&HostUsage) -> u64| {
            let open = self.hosts.iter().filter(|(name, host)| is_open(gang, name, host));
            let mut each: Vec<_> = open.map(|(_, host)| of(host)).collect();
            each.sort_unstable_by_key(|bytes| Reverse(*bytes));
            each.truncate(most_hosts);
            let whole = |bytes: &u64| bytes - bytes % gang.memory.max(1);
            let hosts = each.len();
            let bytes = each.iter().sum();
            if bytes < gang.bytes() {
                (hosts, bytes)
            } else {
                (hosts, each.iter().map(whole).sum())
            }
        };
        let (hosts, free) = sum(HostUsage::left_for_ranks);
        let (_, most) = sum(|host| host.most_of_ranks);
        GangRoom { hosts: u32::try_from(hosts).unwrap_or(u32::MAX), free, most }
    }

    /// Whether ranks of gangs were placed on a host.
    pub fn has_ranks(&self, host: &HostName) -> bool {
        self.hosts.get(host).is_some_and(|host| host.ranks > 0)
    }

    /// Returns the decision on a gang that is possible now. `None` if the gang goes on waiting, or
    /// is not known.
    pub(crate) fn look_at_gang(&self, ticket: Ticket, kept: RoomReservations) -> Option<Decision> {
        let held = self.gangs.get(&ticket).filter(|held| held.parts.is_none())?;
        let gang = &held.gang;
        if !self.may_ever_run_gang(gang) {
            // One that names a host is told at once that it is drained.
            let may_come = self.may_grow || self.may_run_gang_undrained(gang);
            return (!may_come || gang.only.is_some()).then_some(Decision::Refused(ticket));
        }
        // A gang that could start now would take the room piece by piece for which the first one
        // waits.
        if self.comes_after(ticket, gang, kept.first_gang) {
            return None;
        }
        let is_kept = kept.ticket == Some(ticket);
        let other = kept.ticket.filter(|_| !is_kept).and_then(|kept| self.calls.get(&kept));
        let free = |name: &HostName, host: &HostUsage| {
            let is_for_call = other.is_some_and(|held| self.could_start_on(&held.call, name, host));
            let reserved = if is_kept { 0 } else { host.reserved };
            if host.is_full || is_for_call {
                0
            } else {
                host.left_for_ranks().saturating_sub(reserved)
            }
        };
        place(gang, &self.hosts, &self.policy, free).map(|parts| Decision::Start(ticket, parts))
    }

    /// Keeps room for the request that has waited for the longest, if it has waited for as long as
    /// the policy says. For a call, that is the next room. For a gang, that is the share of each
    /// host that it would get if no calls and tasks ran. If other gangs are in its way, no room is
    /// kept, as calls and tasks are not the obstacle: gangs that come later wait behind this one,
    /// unless their tenants have less memory than its tenant. If no call or gang has waited for
    /// long, room is kept for a task.
    pub(crate) fn keep_room(&mut self, now: Duration) -> RoomReservations {
        let call = self.starved(now);
        let has_waited = |held: &HeldGang| {
            held.parts.is_none()
                && now.saturating_sub(held.since) >= self.policy.starved_after
                && self.may_ever_run_gang(&held.gang)
        };
        let gang = self.gangs.iter().find(|(_, held)| has_waited(held)).map(|(ticket, _)| *ticket);
        if std::mem::take(&mut self.has_reserved) {
            self.hosts.change_all(|host| host.reserved > 0, |host| host.reserved = 0);
        }
        let Some((ticket, held)) = gang.and_then(|gang| self.gangs.get_key_value(&gang)) else {
            return self.kept_beside(None, call, now);
        };
        let without_calls = |_: &HostName, host: &HostUsage| host.left_without_calls();
        // What calls and tasks use may be missing in what a host reports now.
        let ever = |_: &HostName, host: &HostUsage| host.most_of_ranks.saturating_sub(host.ranks);
        let share = place(&held.gang, &self.hosts, &self.policy, without_calls);
        let share = share.or_else(|| place(&held.gang, &self.hosts, &self.policy, ever));
        let Some(parts) = share else {
            let ticket = *ticket;
            return self.kept_beside(Some(ticket), call, now);
        };
        // The call came first; its room is small and soon free, and the gang gets its share after
        // it.
        if call.is_some_and(|call| call < *ticket) {
            return RoomReservations { ticket: call, first_gang: Some(*ticket) };
        }
        let ticket = *ticket;
        let memory = held.gang.memory;
        for (name, ranks) in parts {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.reserved = u64::from(ranks) * memory;
            }
        }
        self.has_reserved = true;
        RoomReservations { ticket: Some(ticket), first_gang: None }
    }

    /// Returns the requests to keep room for while no gang has a share. A task comes after calls
    /// and gangs, because these expire and a query does not: it goes on in its own room.
    fn kept_beside(
        &mut self,
        gang: Option<Ticket>,
        call: Option<Ticket>,
        now: Duration,
    ) -> RoomReservations {
        RoomReservations { ticket: call.or_else(|| self.keep_room_for_task(now)), first_gang: gang }
    }

    /// Counts a gang that starts, or has started before.
    pub(crate) fn begin_gang(&mut self, ticket: Ticket, parts: GangRanks, now: Duration) {
        let Some(held) = self.gangs.get_mut(&ticket) else { return };
        let gang = Arc::clone(&held.gang);
        held.parts = Some(parts.clone());
        // A gang that runs does not expire; calls have time limits of their own.
        self.deadlines.remove(&(held.deadline, ticket));
        self.queue.remove(&gang.tenant, &line(ticket), ticket);
        for (name, ranks) in &parts {
            if let Some(host) = self.hosts.get_mut(name) {
                host.add_ranks(&gang, *ranks);
                if let Some(image) = &gang.image {
                    host.uses(image, now);
                }
            }
        }
        *self.taken.entry(gang.tenant.clone()).or_default() += gang.bytes();
    }

    /// Removes a gang that has ended, or for which nobody waits any more. Returns false if the
    /// ticket is not of a gang.
    pub(crate) fn end_gang(&mut self, ticket: Ticket) -> bool {
        let Some(HeldGang { gang, parts, deadline, .. }) = self.gangs.remove(&ticket) else {
            return false;
        };
        self.is_changed = true;
        let Some(parts) = parts else {
            self.queue.remove(&gang.tenant, &line(ticket), ticket);
            self.deadlines.remove(&(deadline, ticket));
            return true;
        };
        for (name, ranks) in parts {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.remove_ranks(&gang, ranks);
            }
        }
        self.gives_back(&gang.tenant, gang.bytes());
        true
    }

    /// The gangs that have ranks on a host, with the number of those ranks.
    pub(crate) fn gang_parts_on(
        &self,
        host: &HostName,
    ) -> impl Iterator<Item = (&GangDemand, u32)> {
        let parts = self.gangs.values().flat_map(|held| {
            held.parts.iter().flatten().map(|(name, ranks)| (&*held.gang, name, *ranks))
        });
        parts.filter(move |(_, name, _)| *name == host).map(|(gang, _, ranks)| (gang, ranks))
    }

    /// Returns how many further hosts the gangs need that have waited since `since` or longer. The
    /// further hosts are assumed to be as large as the largest known one.
    pub(crate) fn lacking_for_gangs(&self, since: Duration) -> u32 {
        let waits = |held: &&HeldGang| {
            held.parts.is_none() && held.gang.only.is_none() && held.since <= since
        };
        let most = self.hosts.values().map(|host| host.most_of_ranks).max().unwrap_or_default();
        let mut free: Vec<u64> = self.hosts.values().map(HostUsage::left_for_new_ranks).collect();
        let mut lacking = 0_u32;
        for gang in self.gangs.values().filter(waits).map(|held| &held.gang) {
            let each = gang.memory.max(1);
            let mut ranks = u64::from(gang.ranks);
            for free in &mut free {
                let fits = (*free / each).min(ranks);
                ranks -= fits;
                *free -= fits * each;
            }
            let hosts = ranks.div_ceil((most / each).max(1));
            // None is that large: one may come that is larger.
            let hosts = if most < each { hosts.min(1) } else { hosts };
            let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
            lacking = lacking.saturating_add(hosts.min(gang.most_hosts.unwrap_or(u32::MAX)));
        }
        lacking
    }

    /// Whether the hosts that get new work have room for a gang if nothing else runs.
    fn may_ever_run_gang(&self, gang: &GangDemand) -> bool {
        place(gang, &self.hosts, &self.policy, |_, host| host.most_of_ranks).is_some()
    }

    /// Whether all hosts, drained ones included, have room for a gang if nothing else runs: an
    /// operator may end the drain.
    fn may_run_gang_undrained(&self, gang: &GangDemand) -> bool {
        let ranks = self.hosts.values().map(|host| host.most_of_ranks / gang.memory.max(1));
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable_by_key(|ranks| Reverse(*ranks));
        let most = gang.most_hosts.map_or(usize::MAX, |most| most.max(1) as usize);
        ranks.into_iter().take(most).sum::<u64>() >= gang.ranks.into()
    }

    /// Whether a gang has to wait behind the gang `first`, because its tenant has at least as much
    /// memory.
    fn comes_after(&self, ticket: Ticket, gang: &GangDemand, first: Option<Ticket>) -> bool {
        let first = first.filter(|first| *first != ticket).and_then(|first| self.gangs.get(&first));
        first.is_some_and(|first| self.taken(&gang.tenant) >= self.taken(&first.gang.tenant))
    }
}

/// Returns the line of the queue for a gang or task. Each has a line of its own: a request with
/// enough room may pass an earlier one without.
pub(crate) fn line(ticket: Ticket) -> Digest {
    Digest::of(format!("line {ticket}"))
}

/// Whether a host may get ranks of a gang.
fn is_open(gang: &GangDemand, name: &HostName, host: &HostUsage) -> bool {
    !host.is_drained && gang.only.as_ref().is_none_or(|only| only == name)
}

/// Returns the number of ranks for each host, with control's own host first, or `None` if there is
/// no room for all ranks. A gang whose number of hosts is limited gets the hosts that hold its
/// image, or the hosts with the most room if the former are too few.
fn place(
    gang: &GangDemand,
    hosts: &HostDirectory,
    policy: &SchedulerPolicy,
    free: impl Fn(&HostName, &HostUsage) -> u64,
) -> Option<GangRanks> {
    let is_far = |name: &HostName| policy.near.as_ref() != Some(name);
    let open = hosts.iter().filter(|(name, host)| is_open(gang, name, host));
    let open = open.map(|(name, host)| (name, host, free(name, host)));
    let mut open: Vec<_> = open.filter(|(.., free)| *free >= gang.memory).collect();
    let ranks: u64 = open.iter().map(|(.., free)| free / gang.memory.max(1)).sum();
    if ranks < gang.ranks.into() {
        return None;
    }
    let most = gang.most_hosts.map_or(usize::MAX, |most| most.max(1) as usize);
    let share = |mut open: Vec<(&HostName, &HostUsage, u64)>| {
        open.truncate(most);
        open.sort_by_key(|(name, ..)| (is_far(name), *name));
        let spare = |(_, host, free): &(_, &HostUsage, u64)| Spare {
            memory: *free,
            cores: u32::try_from(host.room.cpu_millis / 1000).unwrap_or(u32::MAX),
        };
        let rooms: Vec<_> = open.iter().map(spare).collect();
        let shares = shares(gang.ranks, gang.memory, &rooms)?;
        let parts = open.iter().zip(shares).filter(|(_, ranks)| *ranks > 0);
        Some(parts.map(|((name, ..), ranks)| ((*name).clone(), ranks)).collect())
    };
    if open.len() <= most {
        return share(open);
    }
    let depth = |host: &HostUsage| {
        let held = gang.image.as_ref().and_then(|image| host.images.get(image));
        (held.is_none(), held.and_then(|held| held.depth).unwrap_or(u32::MAX))
    };
    open.sort_by_key(|(name, host, _)| (is_far(name), depth(host), *name));
    share(open.clone()).or_else(|| {
        open.sort_by_key(|(name, _, free)| (Reverse(*free), *name));
        share(open)
    })
}
