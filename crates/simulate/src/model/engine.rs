//! Streams of blocks in simulated time.
//!
//! The next event is the end of a block. All events of one moment are handled before rates are
//! computed again: when a block is passed on as soon as it has come in, no rate changes.
//! Invariant: a stream sends a block only when its sender has all of it, and sends each block once,
//! unless the stream was interrupted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::links::Links;

/// The sender of streams without a parent.
pub(crate) const REGISTRY: u32 = u32::MAX;

const SECOND: f64 = 1e9;

#[derive(Clone, Debug)]
struct BlockStream {
    parent: u32,
    children: Vec<u32>,
    /// A stream into the same host that must have brought its first blocks before this one begins.
    /// `None` if this one begins at once.
    first: Option<u32>,
    /// The number of whole blocks that the receiver has.
    have: u32,
    /// The bytes of the next block that were still to come at the moment `since`.
    left: f64,
    rate: f64,
    since: u64,
    /// The number of the current plan for this stream. Events with another number are out of date.
    version: u32,
    alive: bool,
    touched: bool,
}

/// The blocks of an image, or of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageBlocks {
    pub(crate) count: u32,
    pub(crate) size: u64,
    pub(crate) last: u64,
}

impl ImageBlocks {
    pub(crate) fn new(bytes: u64, size: u64) -> Self {
        let count = bytes.div_ceil(size);
        Self { count: count as u32, size, last: bytes - (count - 1) * size }
    }

    pub(crate) fn size(&self, index: u32) -> u64 {
        if index + 1 == self.count { self.last } else { self.size }
    }

    /// The size of all blocks in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * self.size + self.last
    }
}

/// A listener that is told about each block that arrives.
pub(crate) trait Observe {
    /// Takes a whole block that the receiver of a stream has, at a moment `now` in nanoseconds.
    fn block(&mut self, stream: u32, index: u32, bytes: u64, now: u64);
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) links: Links,
    blocks: ImageBlocks,
    streams: Vec<BlockStream>,
    /// The number of blocks that a first stream brings before others into the same host begin. The
    /// streams that wait for each first stream are in `waiting`.
    on_demand: u32,
    waiting: HashMap<u32, Vec<u32>>,
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    now: u64,
    touched: Vec<u32>,
    changed: Vec<u32>,
    /// The number of blocks whose end was handled so far.
    pub(crate) handled: u64,
    /// The bytes that the registry has sent.
    pub(crate) from_registry: f64,
    /// The bytes of interrupted blocks, which were sent in vain.
    pub(crate) lost: f64,
}

impl Engine {
    pub(crate) fn new(blocks: ImageBlocks) -> Self {
        Self {
            links: Links::default(),
            blocks,
            streams: Vec::new(),
            on_demand: 0,
            waiting: HashMap::new(),
            events: BinaryHeap::new(),
            now: 0,
            touched: Vec::new(),
            changed: Vec::new(),
            handled: 0,
            from_registry: 0.0,
            lost: 0.0,
        }
    }

    /// Adds a stream over the links of its sender and its receiver. The stream stands for `copies`
    /// equal ones from the same sender.
    pub(crate) fn add(&mut self, parent: u32, up: u32, down: u32, copies: f64) -> u32 {
        let stream = self.links.flow(up, down, copies);
        self.streams.push(BlockStream {
            parent,
            children: Vec::new(),
            first: None,
            have: 0,
            left: self.blocks.size(0) as f64,
            rate: 0.0,
            since: self.now,
            version: 0,
            alive: true,
            touched: false,
        });
        if parent != REGISTRY {
            self.streams[parent as usize].children.push(stream);
        }
        self.touch(stream);
        stream
    }

    /// Makes a stream wait until its host has the first `blocks` blocks of the stream `first`. All
    /// streams wait for the same number of blocks.
    pub(crate) fn begin_after(&mut self, stream: u32, first: u32, blocks: u32) {
        self.on_demand = blocks.min(self.blocks.count);
        self.streams[stream as usize].first = Some(first);
        self.waiting.entry(first).or_default().push(stream);
        self.touch(stream);
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the moment of the next event, or an earlier one. `None` if no events are left.
    pub(crate) fn next(&self) -> Option<u64> {
        // What was started since the last run has no events yet.
        match self.touched.is_empty() {
            true => self.events.peek().map(|&Reverse((time, _, _))| time),
            false => Some(self.now),
        }
    }

    pub(crate) fn alive(&self, stream: u32) -> bool {
        self.streams[stream as usize].alive
    }

    /// Handles all events up to a moment. Without a moment, handles events until none are left.
    ///
    /// # Errors
    /// An invariant does not hold: the message says which.
    pub(crate) fn run(&mut self, until: Option<u64>, to: &mut dyn Observe) -> Result<(), String> {
        self.apply()?;
        while let Some(&Reverse((time, _, _))) = self.events.peek() {
            if until.is_some_and(|until| time > until) {
                break;
            }
            self.now = time;
            self.ends(to)?;
            self.apply()?;
        }
        self.now = until.map_or(self.now, |until| self.now.max(until));
        Ok(())
    }

    /// Handles the blocks that end now.
    fn ends(&mut self, to: &mut dyn Observe) -> Result<(), String> {
        while let Some(&Reverse((time, stream, version))) = self.events.peek() {
            if time > self.now {
                return Ok(());
            }
            self.events.pop();
            if self.streams[stream as usize].version == version {
                self.end(stream, to)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, stream: u32, to: &mut dyn Observe) -> Result<(), String> {
        let BlockStream { parent, have: index, .. } = self.streams[stream as usize];
        if parent != REGISTRY && self.streams[parent as usize].have <= index {
            return Err(format!("block {index} of stream {stream} came from a host without it"));
        }
        if index >= self.blocks.count {
            return Err(format!("stream {stream} sent more blocks than there are"));
        }
        self.settle(stream);
        let bytes = self.blocks.size(index);
        if parent == REGISTRY {
            self.from_registry += bytes as f64 * self.links.copies(stream);
        }
        let entry = &mut self.streams[stream as usize];
        entry.have += 1;
        entry.version += 1;
        if entry.have < self.blocks.count {
            entry.left = self.blocks.size(index + 1) as f64;
        }
        self.handled += 1;
        to.block(stream, index, bytes, self.now);
        self.touch(stream);
        if index + 1 == self.on_demand {
            for waiting in self.waiting.remove(&stream).unwrap_or_default() {
                self.touch(waiting);
            }
        }
        for child in 0..self.streams[stream as usize].children.len() {
            let child = self.streams[stream as usize].children[child];
            // One that is further behind is active already.
            if self.streams[child as usize].have == index {
                self.touch(child);
            }
        }
        Ok(())
    }

    /// Ends the stream of a host that has failed. Its children wait for other parents.
    pub(crate) fn fail(&mut self, stream: u32) {
        self.interrupt(stream);
        self.streams[stream as usize].alive = false;
        self.touch(stream);
        for child in self.streams[stream as usize].children.clone() {
            self.touch(child);
        }
    }

    /// Gives the receiver of a new stream all blocks.
    pub(crate) fn fill(&mut self, stream: u32) {
        self.streams[stream as usize].have = self.blocks.count;
    }

    /// Removes the stream of a host that leaves. Its children wait for other parents.
    pub(crate) fn leave(&mut self, stream: u32) {
        self.fail(stream);
        self.forget_child(stream);
    }

    fn forget_child(&mut self, stream: u32) {
        let parent = self.streams[stream as usize].parent;
        if parent != REGISTRY {
            self.streams[parent as usize].children.retain(|&child| child != stream);
        }
    }

    /// Gives a stream another sender. The received bytes of its unfinished block are lost. Its rate
    /// changes when the links are solved next, like all rates.
    pub(crate) fn reconnect(&mut self, stream: u32, parent: u32, up: u32) {
        self.interrupt(stream);
        self.links.set_active(stream, false);
        self.links.move_flow(stream, up);
        self.forget_child(stream);
        self.streams[stream as usize].parent = parent;
        if parent != REGISTRY {
            self.streams[parent as usize].children.push(stream);
        }
        self.touch(stream);
    }

    /// Drops the received bytes of the unfinished block of a stream.
    fn interrupt(&mut self, stream: u32) {
        self.settle(stream);
        let entry = &mut self.streams[stream as usize];
        if entry.have < self.blocks.count {
            let whole = self.blocks.size(entry.have) as f64;
            let came = whole - std::mem::replace(&mut entry.left, whole);
            self.lost += came;
            if entry.parent == REGISTRY {
                self.from_registry += came;
            }
        }
    }

    fn touch(&mut self, stream: u32) {
        let entry = &mut self.streams[stream as usize];
        if !std::mem::replace(&mut entry.touched, true) {
            self.touched.push(stream);
        }
    }

    /// Adds the bytes that came since the last event of a stream.
    fn settle(&mut self, stream: u32) {
        let entry = &mut self.streams[stream as usize];
        let came = entry.rate * (self.now - entry.since) as f64 / SECOND;
        entry.left = (entry.left - came).max(0.0);
        entry.since = self.now;
    }

    fn runs(&self, stream: u32) -> bool {
        let entry = &self.streams[stream as usize];
        let has = |parent: &BlockStream| parent.alive && parent.have > entry.have;
        let begins = |first: u32| self.streams[first as usize].have >= self.on_demand;
        entry.alive
            && entry.first.is_none_or(begins)
            && entry.have < self.blocks.count
            && (entry.parent == REGISTRY || has(&self.streams[entry.parent as usize]))
    }

    /// Starts and stops the streams whose state has changed, and plans the ends of their blocks.
    fn apply(&mut self) -> Result<(), String> {
        let touched = std::mem::take(&mut self.touched);
        for &stream in &touched {
            self.streams[stream as usize].touched = false;
            self.links.set_active(stream, self.runs(stream));
        }
        let mut changed = std::mem::take(&mut self.changed);
        self.links.solve(&mut changed);
        self.links.check(&changed)?;
        for &stream in &changed {
            self.settle(stream);
            self.streams[stream as usize].rate = self.links.rate(stream);
        }
        changed.extend(&touched);
        changed.sort_unstable();
        changed.dedup();
        for stream in changed.drain(..) {
            self.plan(stream);
        }
        (self.changed, self.touched) = (changed, touched);
        self.touched.clear();
        Ok(())
    }

    fn plan(&mut self, stream: u32) {
        self.settle(stream);
        let entry = &mut self.streams[stream as usize];
        entry.version += 1;
        if entry.rate > 0.0 {
            let rest = (entry.left / entry.rate * SECOND).ceil() as u64;
            self.events.push(Reverse((self.now + rest, stream, entry.version)));
        }
    }
}
