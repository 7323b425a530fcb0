//! What hosts have: instances, and the processes that further ones are forked from.
//!
//! Invariant: the instances of a host have no more memory than it has. Idle ones are ended for new
//! ones, those that were used least lately first.

use std::collections::{HashMap, VecDeque};

/// A function on a host, from its first call there until the host is reclaimed from it.
pub(super) struct Member {
    pub function: u32,
    pub host: u32,
    /// When it joined the trees.
    pub joined: u64,
    /// Nothing has started yet.
    pub is_new: bool,
    /// Calls that were placed here: each has an instance, or waits for its start.
    pub calls: u32,
    /// Since when instances are idle, the last ones at the end.
    idle: VecDeque<u64>,
    pub server: Server,
    /// Calls that wait for the first start.
    pub waiting: Vec<u32>,
    /// When the last fork is done.
    pub forked: u64,
    /// Its host has failed.
    pub is_lost: bool,
}

/// The process that instances are forked from, which lives as long as one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    None,
    /// It waits for the image.
    Waits,
    /// It is known when it will have started.
    Starts,
    Runs,
}

#[derive(Clone, Default)]
struct Host {
    /// Bytes of all instances.
    memory: u64,
    /// Its functions.
    members: Vec<u32>,
    /// Those that start.
    starting: Vec<u32>,
}

pub(super) struct Hosts {
    /// Members are never forgotten: their numbers are those of the images' slots.
    pub members: Vec<Member>,
    by_place: HashMap<(u32, u32), u32>,
    hosts: Vec<Host>,
    /// Bytes of an instance of each function.
    memory: Vec<u64>,
    room: u64,
    keep_idle: u64,
    /// Hosts that have a function.
    pub active: u32,
}

impl Hosts {
    pub fn new(hosts: u32, room: u64, keep_idle: u64, memory: Vec<u64>) -> Self {
        let hosts = vec![Host::default(); hosts as usize];
        let (members, by_place) = (Vec::new(), HashMap::new());
        Self { members, by_place, hosts, memory, room, keep_idle, active: 0 }
    }

    pub fn member(&mut self, number: u32) -> &mut Member {
        &mut self.members[number as usize]
    }

    pub fn find(&self, function: u32, host: u32) -> Option<u32> {
        self.by_place.get(&(function, host)).copied()
    }

    /// A function comes to a host.
    pub fn join(&mut self, function: u32, host: u32, now: u64) -> u32 {
        let number = self.members.len() as u32;
        self.members.push(Member {
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

    /// The host is reclaimed from the function: its idle instances end.
    pub fn leave(&mut self, number: u32) {
        let member = &mut self.members[number as usize];
        let (function, host) = (member.function, &mut self.hosts[member.host as usize]);
        host.memory -= member.idle.len() as u64 * self.memory[function as usize];
        member.idle.clear();
        self.by_place.remove(&(function, member.host));
        host.members.retain(|&other| other != number);
        self.active -= u32::from(host.members.is_empty());
    }

    /// A new host, without anything.
    pub fn add(&mut self) {
        self.hosts.push(Host::default());
    }

    /// A host fails with all that it has: its functions, as members.
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

    /// A placed call gets a new instance that has started before.
    ///
    /// # Errors
    /// As [`Self::take_room`].
    pub fn take_new(&mut self, number: u32, now: u64) -> Result<(), String> {
        self.members[number as usize].calls += 1;
        self.take_room(number, now)
    }

    /// Makes room for a new instance, and takes it.
    ///
    /// # Errors
    /// There is none, although the scheduler has counted on it.
    pub fn take_room(&mut self, number: u32, now: u64) -> Result<(), String> {
        let Member { function, host, .. } = self.members[number as usize];
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

    /// A call has ended; its instance is kept. How many there are now.
    pub fn end(&mut self, number: u32, now: u64) -> u32 {
        let member = &mut self.members[number as usize];
        member.calls -= 1;
        member.idle.push_back(now);
        self.expire(number, now);
        let member = &self.members[number as usize];
        member.calls + member.idle.len() as u32
    }

    /// A function begins or ends its start on a host: those that start there, which share its cores.
    pub fn starting(&mut self, number: u32, begins: bool) -> &[u32] {
        let host = &mut self.hosts[self.members[number as usize].host as usize];
        match begins {
            true => host.starting.push(number),
            false => host.starting.retain(|&other| other != number),
        }
        &host.starting
    }

    /// Bytes of the instances of a host that have calls.
    pub fn busy_memory(&self, host: u32) -> u64 {
        let members = self.hosts[host as usize].members.iter();
        let member = |number: &u32| &self.members[*number as usize];
        members.map(member).map(|it| u64::from(it.calls) * self.memory[it.function as usize]).sum()
    }

    /// Ends the idle instance of a host that was used least lately.
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
