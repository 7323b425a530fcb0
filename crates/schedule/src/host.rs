//! What is known of a host.

use std::collections::HashMap;
use std::time::Duration;

use snowmelt_types::Digest;

/// How long a host is preferred for an image or packages after the last call that needed them.
const IMAGES_KNOWN: Duration = Duration::from_secs(15 * 60);

/// What a host has for functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes of memory limits that its instances may have together, without what others than
    /// functions have taken.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u64,
}

/// A host, and what of it is taken by calls that were placed there.
#[derive(Debug)]
pub(crate) struct Host {
    pub room: HostRoom,
    /// Bytes of instances that run calls.
    pub memory: u64,
    /// Thousandths of cores of the same.
    pub cpu_millis: u64,
    /// It refused a call since its last report.
    pub is_full: bool,
    /// It gets no new instances.
    pub is_drained: bool,
    /// The most room that it has reported: what it has while others than functions take nothing.
    pub most: u64,
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
            cpu_millis: 0,
            is_full: false,
            is_drained: false,
            most: room.memory,
            images: HashMap::new(),
            inner: 0,
            busy: Duration::ZERO,
        }
    }

    /// Takes its next report.
    pub fn report(&mut self, room: HostRoom) {
        self.room = room;
        self.most = self.most.max(room.memory);
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

    /// Memory that is not taken.
    pub fn left(&self) -> u64 {
        self.room.memory.saturating_sub(self.memory)
    }

    /// Whether it has room for a new instance.
    pub fn fits(&self, memory: u64) -> bool {
        !self.is_full && !self.is_drained && self.left() >= memory
    }
}
