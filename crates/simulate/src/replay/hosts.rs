//! The instances on hosts, and the processes from which further instances are forked.
//!
//! Invariant: the instances of a host have no more memory than the host. Idle instances are ended
//! to make room for new ones, the least recently used first.

use std::collections::{HashMap, VecDeque};

/// A function on a host, from its first call there until it is taken back from the host.
pub(super) struct HostedFunction {
    pub function: u32,
    pub host: u32,
    /// The moment at which the member joined the trees, in nanoseconds.
    pub joined: u64,
    /// Whether no instance has started yet.
    pub is_new: bool,
    /// The number of calls that were placed here: each has an instance, or waits for its start.
    pub calls: u32,
    /// The moments since which instances are idle, the latest at the end.
    idle: VecDeque<u64>,
    pub server: Server,
    /// The calls that wait for the first start.
    pub waiting: Vec<u32>,
    /// The moment at which the last fork is done, in nanoseconds.
    pub forked: u64,
    /// Whether the host has failed.
    pub is_lost: bool,
}

/// The process that instances are forked from, which lives as long as one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    None,
    /// The process waits for the image.
    Waits,
    /// The process starts, and the end of its start is known.
    Starts,
    Runs,
}

#[derive(Clone, Default)]
struct ReplayHost {
    /// The memory of all instances in bytes.
    memory: u64,
    /// The numbers of the members (functions) on the host.
    members: Vec<u32>,
    /// The members on the host that are starting.
    starting: Vec<u32>,
}

pub(super) struct ReplayHosts {
    /// All members. Members are never forgotten: their numbers are those of the images' slots.
    pub members: Vec<HostedFunction>,
    by_place: HashMap<(u32, u32), u32>,
    hosts: Vec<ReplayHost>,
    /// The memory of an instance of each function, in bytes.
    memory: Vec<u64>,
    room: u64,
    keep_idle: u64,
    /// The number of hosts that have a function.
    pub active: u32,
}

impl ReplayHosts {
    pub fn new(hosts: u32, room: u64, keep_idle: u64, memory: Vec<u64>) -> Self {
        let hosts = vec![ReplayHost::default(); hosts as usize];
        let members = Vec::new();
        let by_place = HashMap::new();
        Self { members, by_place, hosts, memory, room, keep_idle, active: 0 }
    }

    pub fn member(&mut self, number: u32) -> &mut HostedFunction {
        &mut self.members[number as usize]
    }

    pub fn find(&self, function: u32, host: u32) -> Option<u32> {
        self.by_place.get(&(function, host)).copied()
    }

    /// Adds a function to a host. Returns the number of the new member.
    pub fn join(&mut self, function: u32, host: u32, now: u64) -> u32 {
        let number = self.members.len() as u32;
        self.members.push(HostedFunction {
            function,
            host,
            joined: now,
            is_new: true,
            calls: 0,
            idle: VecDeque::new(),
            server: Server::None,
            waiting: Vec::new(),
            forked: 0,
            is_lost: false,
        });
        self.by_place.insert((function, host), number);
        let members = &mut self.hosts[host as usize].members;
        self.active += u32::from(members.is_empty());
        members.push(number);
        number
    }

    /// Takes a function back from a host: its idle instances end.
    pub fn leave(&mut self, number: u32) {
        let member = &mut self.members[number as usize];
        let function = member.function;
        let host = &mut self.hosts[member.host as usize];
        host.memory -= member.idle.len() as u64 * self.memory[function as usize];
        member.idle.clear();
        self.by_place.remove(&(function, member.host));
        host.members.retain(|&other| other != number);
        self.active -= u32::from(host.members.is_empty());
    }

    /// Adds a new, empty host.
    pub fn add(&mut self) {
        self.hosts.push(ReplayHost::default());
    }

    /// Makes a host fail with everything on it. Returns the functions that it had, as members.
    pub fn fail(&mut self, host: u32) -> Vec<u32> {
        let lost = std::mem::take(&mut self.hosts[host as usize]).members;
        self.active -= u32::from(!lost.is_empty());
        for &number in &lost {
            let member = &mut self.members[number as usize];
            (member.is_lost, member.calls, member.server) = (true, 0, Server::None);
            member.idle.clear();
            member.waiting.clear();
            self.by_place.remove(&(member.function, host));
        }
        lost
    }

    /// Gives a placed call an idle instance, if there is one.
    pub fn take_idle(&mut self, number: u32, now: u64) -> bool {
        self.expire(number, now);
        let member = &mut self.members[number as usize];
        if member.calls == 0 && member.idle.is_empty() {
            member.server = Server::None;
        }
        member.calls += 1;
        member.idle.pop_back().is_some()
    }

    /// Gives a placed call a new instance that counts as started before.
    ///
    /// # Errors
    /// Fails as [`Self::take_room`].
    pub fn take_new(&mut self, number: u32, now: u64) -> Result<(), String> {
        self.members[number as usize].calls += 1;
        self.take_room(number, now)
    }

    /// Makes room for a new instance, and takes it.
    ///
    /// # Errors
    /// The host has no room, although the scheduler has counted on it.
    pub fn take_room(&mut self, number: u32, now: u64) -> Result<(), String> {
        let HostedFunction { function, host, .. } = self.members[number as usize];
        let needed = self.memory[function as usize];
        let lacks = |hosts: &Self| hosts.hosts[host as usize].memory + needed > hosts.room;
        if lacks(self) {
            let members = self.hosts[host as usize].members.clone();
            members.into_iter().for_each(|number| self.expire(number, now));
        }
        while lacks(self) {
            if !self.evict(host) {
                return Err(format!("host {host} has no room for an instance of {needed} bytes"));
            }
        }
        self.hosts[host as usize].memory += needed;
        Ok(())
    }

    /// Ends a call, and keeps its instance. Returns how many instances there are now.
    pub fn end(&mut self, number: u32, now: u64) -> u32 {
        let member = &mut self.members[number as usize];
        member.calls -= 1;
        member.idle.push_back(now);
        self.expire(number, now);
        let member = &self.members[number as usize];
        member.calls + member.idle.len() as u32
    }

    /// Notes that a function begins or ends its start on a host. Returns the members that are
    /// starting there, which share its cores.
    pub fn starting(&mut self, number: u32, begins: bool) -> &[u32] {
        let host = &mut self.hosts[self.members[number as usize].host as usize];
        match begins {
            true => host.starting.push(number),
            false => host.starting.retain(|&other| other != number),
        }
        &host.starting
    }

    /// The memory of the instances of a host that have calls, in bytes.
    pub fn busy_memory(&self, host: u32) -> u64 {
        let members = self.hosts[host as usize].members.iter();
        let member = |number: &u32| &self.members[*number as usize];
        members
            .map(member)
            .map(|member| u64::from(member.calls) * self.memory[member.function as usize])
            .sum()
    }

    /// Ends the least recently used idle instance of a host. Returns false if there is none.
    fn evict(&mut self, host: u32) -> bool {
        let members = &self.hosts[host as usize].members;
        let idle = |&number: &u32| {
            let since = self.members[number as usize].idle.front()?;
            Some((*since, number))
        };
        let Some((_, number)) = members.iter().filter_map(idle).min() else { return false };
        let member = &mut self.members[number as usize];
        member.idle.pop_front();
        self.hosts[host as usize].memory -= self.memory[member.function as usize];
        true
    }

    /// Ends instances that were idle for too long.
    fn expire(&mut self, number: u32, now: u64) {
        let member = &mut self.members[number as usize];
        let memory = self.memory[member.function as usize];
        while member.idle.front().is_some_and(|&since| now - since >= self.keep_idle) {
            member.idle.pop_front();
            self.hosts[member.host as usize].memory -= memory;
        }
    }
}
