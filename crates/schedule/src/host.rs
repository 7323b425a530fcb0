//! What is known of a host.

use std::collections::HashMap;

use snowmelt_types::Digest;

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
    /// How many hosts are above it in the tree of an image; for images that it holds.
    pub images: HashMap<Digest, u32>,
    /// Trees in which other hosts are below it.
    pub inner: u32,
}

impl Host {
    pub fn new(room: HostRoom) -> Self {
        Self {
            room,
            memory: 0,
            cpu_millis: 0,
            is_full: false,
            is_drained: false,
            images: HashMap::new(),
            inner: 0,
        }
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
