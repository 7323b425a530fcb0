//! What is known of a host.

use std::collections::HashMap;
use std::time::Duration;

use snowmelt_types::Digest;

use crate::gang::Gang;

/// How long a host is preferred for an image or packages after the last call that needed them.
const IMAGES_KNOWN: Duration = Duration::from_secs(15 * 60);

/// What a host has for functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes of memory limits that its instances may have together, without what others than
    /// functions and gangs have taken.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u64,
    /// Bytes that ranks of gangs may have together.
    pub ranks: u64,
    /// Bytes of limits of instances for which one byte is reserved, at least 1. Ranks reserve all of
    /// theirs.
    pub overcommit: u32,
}

/// A host, and what of it is taken by calls that were placed there.
#[derive(Debug)]
pub(crate) struct Host {
    pub room: HostRoom,
    /// Bytes of instances that run calls.
    pub memory: u64,
    /// Bytes of ranks of gangs.
    pub ranks: u64,
    /// Bytes that are kept for ranks of the gang that has waited for the longest.
    pub reserved: u64,
    /// Thousandths of cores of both.
    pub cpu_millis: u64,
    /// It refused a call since its last report.
    pub is_full: bool,
    /// It gets no new instances.
    pub is_drained: bool,
    /// The most room that it has reported: what it has while others than functions take nothing.
    pub most: u64,
    /// The same for ranks.
    pub most_of_ranks: u64,
    /// Images and packages that it holds.
    pub images: HashMap<Digest, Holding>,
    /// Trees in which other hosts are below it.
    pub inner: u32,
    /// When something else than calls ran on it last.
    pub busy: Duration,
}

/// An image or packages on a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// How many hosts are above it in the tree of the image; none if it is in none.
    pub depth: Option<u32>,
    /// When something began that needs it.
    pub used: Duration,
}

impl Host {
    pub fn new(room: HostRoom) -> Self {
        Self {
            room,
            memory: 0,
            ranks: 0,
            reserved: 0,
            cpu_millis: 0,
            is_full: false,
            is_drained: false,
            most: room.memory,
            most_of_ranks: room.ranks,
            images: HashMap::new(),
            inner: 0,
            busy: Duration::ZERO,
        }
    }

    /// Takes its next report.
    pub fn report(&mut self, room: HostRoom) {
        self.room = room;
        self.most = self.most.max(room.memory);
        self.most_of_ranks = self.most_of_ranks.max(room.ranks);
        self.is_full = false;
    }

    /// Something begins that needs an image.
    pub fn uses(&mut self, image: &Digest, now: Duration) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: now }).used = now;
    }

    /// It is in the tree of an image.
    pub fn is_in_tree(&mut self, image: &Digest, depth: u32) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: Duration::ZERO }).depth = Some(depth);
    }

    /// Forgets places in trees, which are told again.
    pub fn forget_trees(&mut self) {
        self.images.values_mut().for_each(|holding| holding.depth = None);
        self.inner = 0;
    }

    /// Forgets what it may have evicted since.
    pub fn sweep(&mut self, now: Duration) {
        let is_known = |holding: &Holding| {
            holding.depth.is_some() || now.saturating_sub(holding.used) < IMAGES_KNOWN
        };
        self.images.retain(|_, holding| is_known(holding));
    }

    /// Ranks of a gang are placed on it.
    pub fn add_ranks(&mut self, gang: &Gang, ranks: u32) {
        self.ranks += u64::from(ranks) * gang.memory;
        self.cpu_millis += u64::from(ranks) * u64::from(gang.cpu_millis);
    }

    /// They have ended.
    pub fn remove_ranks(&mut self, gang: &Gang, ranks: u32) {
        self.ranks = self.ranks.saturating_sub(u64::from(ranks) * gang.memory);
        let cpu_millis = u64::from(ranks) * u64::from(gang.cpu_millis);
        self.cpu_millis = self.cpu_millis.saturating_sub(cpu_millis);
    }

    /// Memory limits of instances that are not taken, nor kept for ranks.
    pub fn left(&self) -> u64 {
        let ranks = (self.ranks + self.reserved).saturating_mul(self.overcommit());
        self.room.memory.saturating_sub(self.memory.saturating_add(ranks))
    }

    /// Memory for ranks that nobody has. Idle instances make room, so they do not count.
    pub fn left_for_ranks(&self) -> u64 {
        let calls = self.memory.div_ceil(self.overcommit());
        self.left_without_calls().saturating_sub(calls)
    }

    /// The same once all calls have ended that run on it.
    pub fn left_without_calls(&self) -> u64 {
        self.room.ranks.saturating_sub(self.ranks)
    }

    /// Memory for ranks of which new gangs can have some.
    pub fn left_for_new_ranks(&self) -> u64 {
        if self.is_drained { 0 } else { self.left_for_ranks() }
    }

    fn overcommit(&self) -> u64 {
        self.room.overcommit.max(1).into()
    }

    /// Whether it has room for a new instance.
    pub fn fits(&self, memory: u64) -> bool {
        !self.is_full && !self.is_drained && self.left() >= memory
    }
}
