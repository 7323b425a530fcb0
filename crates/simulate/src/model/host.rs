//! The work of a host on the blocks that reach it: it reads the blocks of the start profile as they
//! come, and starts containers after the last of them.
//!
//! Invariant: the bytes of each stream are counted here once more, so that a host that got a byte
//! twice or not at all is found.

use super::engine::{ImageBlocks, Observe};

/// The part of a function on one host, or on each host of a group.
#[derive(Clone, Debug)]
pub(crate) struct HostSlot {
    /// The number of hosts in the group, 1 for a single host.
    pub(crate) hosts: u32,
    /// The number of hosts in the group that start one more container.
    pub(crate) fuller: u32,
    /// The number of containers on each host.
    pub(crate) each: u32,
    /// The time to read a byte of the start profile, in nanoseconds.
    pub(crate) per_byte: f64,
    missing_start: u32,
    missing: u32,
    /// The moment at which all blocks of the start profile that are here will have been read, in
    /// nanoseconds.
    pub(crate) read: u64,
    /// The moment at which the start profile arrived, in nanoseconds.
    pub(crate) arrived: u64,
    /// The moment at which the whole image had arrived, in nanoseconds.
    pub(crate) whole: u64,
}

impl HostSlot {
    pub(crate) fn new(each: u32, per_byte: f64) -> Self {
        let hosts = 0;
        let fuller = 0;
        let missing_start = 0;
        let missing = 0;
        let read = 0;
        let arrived = 0;
        let whole = 0;
        Self { hosts, fuller, each, per_byte, missing_start, missing, read, arrived, whole }
    }

    /// Whether all blocks of the start profile have arrived.
    pub(crate) fn has_profile(&self) -> bool {
        self.missing_start == 0
    }

    /// Whether all blocks of the image have arrived.
    pub(crate) fn has_all(&self) -> bool {
        self.missing == 0
    }

    pub(crate) fn add_host(&mut self, fuller: bool) {
        self.hosts += 1;
        self.fuller += u32::from(fuller);
    }
}

#[derive(Debug)]
pub(crate) struct Local {
    blocks: ImageBlocks,
    /// The number of blocks of each stream that a start reads.
    start: u32,
    pub(crate) slots: Vec<HostSlot>,
    /// The slots whose start profile or whole image has arrived since this list was emptied.
    pub(crate) news: Vec<u32>,
    /// The slot of each stream, and the bytes that it got.
    streams: Vec<(u32, u64)>,
}

impl Local {
    pub(crate) fn new(blocks: ImageBlocks, start_bytes: u64) -> Self {
        let start = start_bytes.div_ceil(blocks.size) as u32;
        let start = start.clamp(1, blocks.count);
        Self { blocks, start, slots: Vec::new(), news: Vec::new(), streams: Vec::new() }
    }

    /// Assigns the next stream to a slot.
    pub(crate) fn add_stream(&mut self, slot: u32) {
        self.streams.push((slot, 0));
        let entry = &mut self.slots[slot as usize];
        entry.missing_start += self.start;
        entry.missing += self.blocks.count;
    }

    /// Gives the receiver of a new stream all blocks.
    pub(crate) fn fill(&mut self, stream: u32) {
        let (slot, got) = &mut self.streams[stream as usize];
        *got = self.blocks.bytes();
        let slot = &mut self.slots[*slot as usize];
        slot.missing_start -= self.start;
        slot.missing -= self.blocks.count;
    }

    pub(crate) fn slot_of(&self, stream: u32) -> u32 {
        self.streams[stream as usize].0
    }

    /// The number of bytes that a stream has brought.
    pub(crate) fn got(&self, stream: u32) -> u64 {
        self.streams[stream as usize].1
    }

    /// Checks that a stream has brought each byte once.
    ///
    /// # Errors
    /// The stream has brought another number of bytes.
    pub(crate) fn check(&self, stream: u32) -> Result<(), String> {
        let got = self.got(stream);
        let expected = self.blocks.bytes();
        match got == expected {
            true => Ok(()),
            false => Err(format!("stream {stream} brought {got} of {expected} bytes")),
        }
    }
}

impl Observe for Local {
    fn block(&mut self, stream: u32, index: u32, bytes: u64, now: u64) {
        let (slot, got) = &mut self.streams[stream as usize];
        *got += bytes;
        let number = *slot;
        let slot = &mut self.slots[*slot as usize];
        slot.missing = slot.missing.saturating_sub(1);
        if slot.missing == 0 {
            slot.whole = now;
            self.news.push(number);
        }
        if index < self.start {
            slot.missing_start = slot.missing_start.saturating_sub(1);
            slot.read = slot.read.max(now) + (bytes as f64 * slot.per_byte) as u64;
            if slot.missing_start == 0 {
                slot.arrived = now;
                self.news.push(number);
            }
        }
    }
}
