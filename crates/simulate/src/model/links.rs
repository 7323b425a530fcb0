//! Links that share their rate fairly between flows.
//!
//! Each flow goes over two links, that of its sender and that of its receiver; no link is both. A
//! link has a level: the most that it gives to one flow. Rates are max-min fair when each flow has
//! the lower level of its two links, and each level is as high as the link's rate allows. A change
//! spreads only to links whose level it changes, so a change in a tree costs a few steps and not
//! one for each host.
//! Invariant: after [`Links::solve`] no link has more than its rate, and every active flow has a
//! link that is full and gives no other flow more.

use std::collections::VecDeque;

/// The difference below which two levels count as equal, because it comes from rounding.
const EPSILON: f64 = 1e-12;

/// The number of steps for each link after which the levels are computed from nothing. Changes
/// settle in a few steps.
const PATIENCE: usize = 100;

#[derive(Clone, Debug)]
struct SimulatedLink {
    rate: f64,
    level: f64,
    active: Vec<u32>,
    queued: bool,
}

#[derive(Clone, Debug)]
struct Flow {
    /// The links of sender and receiver.
    ends: [u32; 2],
    /// The number of equal flows that the sender's link carries. The receiver's link carries one.
    copies: f64,
    /// The position of this flow in the lists of its two links.
    position: [u32; 2],
    active: bool,
    rate: f64,
    touched: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    links: Vec<SimulatedLink>,
    flows: Vec<Flow>,
    queue: VecDeque<u32>,
    touched: Vec<u32>,
    caps: Vec<(f64, f64)>,
}

impl Links {
    /// Adds a link with a rate in bytes a second.
    pub(crate) fn link(&mut self, rate: f64) -> u32 {
        self.links.push(SimulatedLink {
            rate,
            level: f64::INFINITY,
            active: Vec::new(),
            queued: false,
        });
        (self.links.len() - 1) as u32
    }

    /// Adds a flow that is not active yet.
    pub(crate) fn flow(&mut self, up: u32, down: u32, copies: f64) -> u32 {
        let ends = [up, down];
        let position = [0, 0];
        self.flows.push(Flow { ends, copies, position, active: false, rate: 0.0, touched: false });
        (self.flows.len() - 1) as u32
    }

    pub(crate) fn active(&self, flow: u32) -> bool {
        self.flows[flow as usize].active
    }

    pub(crate) fn rate(&self, flow: u32) -> f64 {
        self.flows[flow as usize].rate
    }

    pub(crate) fn copies(&self, flow: u32) -> f64 {
        self.flows[flow as usize].copies
    }

    /// Gives a flow that is not active another sender.
    pub(crate) fn move_flow(&mut self, flow: u32, up: u32) {
        debug_assert!(!self.active(flow), "an active flow is in the lists of its links");
        self.flows[flow as usize].ends[0] = up;
    }

    /// Starts or stops a flow. Rates change with the next [`Self::solve`].
    pub(crate) fn set_active(&mut self, flow: u32, active: bool) {
        if self.active(flow) == active {
            return;
        }
        for side in [0, 1] {
            let link = self.flows[flow as usize].ends[side];
            match active {
                true => self.enter(flow, side, link),
                false => self.leave(flow, side, link),
            }
            self.enqueue(link);
        }
        self.flows[flow as usize].active = active;
        self.touch(flow);
    }

    fn enter(&mut self, flow: u32, side: usize, link: u32) {
        let list = &mut self.links[link as usize].active;
        self.flows[flow as usize].position[side] = list.len() as u32;
        list.push(flow);
    }

    fn leave(&mut self, flow: u32, side: usize, link: u32) {
        let position = self.flows[flow as usize].position[side] as usize;
        let list = &mut self.links[link as usize].active;
        list.swap_remove(position);
        if let Some(&other) = list.get(position) {
            self.flows[other as usize].position[side] = position as u32;
        }
    }

    fn enqueue(&mut self, link: u32) {
        let entry = &mut self.links[link as usize];
        if !std::mem::replace(&mut entry.queued, true) {
            self.queue.push_back(link);
        }
    }

    fn touch(&mut self, flow: u32) {
        let entry = &mut self.flows[flow as usize];
        if !std::mem::replace(&mut entry.touched, true) {
            self.touched.push(flow);
        }
    }

    /// Computes the rates that changed, and adds their flows to `changed`.
    pub(crate) fn solve(&mut self, changed: &mut Vec<u32>) {
        if !self.settle(PATIENCE * (self.queue.len() + 1)) {
            // A start from nothing always settles: the levels fall into place from the lowest up.
            for link in 0..self.links.len() as u32 {
                self.links[link as usize].level = f64::INFINITY;
                self.enqueue(link);
            }
            self.settle(usize::MAX);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for flow in touched.drain(..) {
            let Flow { ends: [up, down], active, .. } = self.flows[flow as usize];
            let lower = self.links[up as usize].level.min(self.links[down as usize].level);
            let rate = if active { lower } else { 0.0 };
            let entry = &mut self.flows[flow as usize];
            entry.touched = false;
            if std::mem::replace(&mut entry.rate, rate) != rate {
                changed.push(flow);
            }
        }
        self.touched = touched;
    }

    /// Recomputes levels until none changes, in at most `steps` steps. Returns whether no level
    /// changes any more.
    fn settle(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            let Some(link) = self.queue.pop_front() else { return true };
            self.links[link as usize].queued = false;
            let before = self.links[link as usize].level;
            let level = self.level(link);
            if before == level || (before - level).abs() <= EPSILON * before.min(level) {
                continue;
            }
            self.links[link as usize].level = level;
            for index in 0..self.links[link as usize].active.len() {
                let flow = self.links[link as usize].active[index];
                self.touch(flow);
                let [up, down] = self.flows[flow as usize].ends;
                self.enqueue(if up == link { down } else { up });
            }
        }
        self.queue.is_empty()
    }

    /// The level at which a link is full, if its flows take what the other links leave to them.
    /// Infinite if the link is not full then.
    fn level(&mut self, link: u32) -> f64 {
        let mut caps = std::mem::take(&mut self.caps);
        caps.clear();
        let entry = &self.links[link as usize];
        let mut copies = 0.0;
        for &flow in &entry.active {
            let flow = &self.flows[flow as usize];
            let (other, count) = match flow.ends[0] == link {
                true => (flow.ends[1], flow.copies),
                false => (flow.ends[0], 1.0),
            };
            caps.push((self.links[other as usize].level, count));
            copies += count;
        }
        caps.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let mut rest = entry.rate;
        let mut level = f64::INFINITY;
        for &(cap, count) in &caps {
            let fair = rest / copies;
            if cap > fair {
                level = fair;
                break;
            }
            rest -= cap * count;
            copies -= count;
        }
        self.caps = caps;
        level
    }

    /// Checks that the links of some flows carry at most their rate.
    ///
    /// # Errors
    /// A link carries more: the message names the first one.
    pub(crate) fn check(&self, flows: &[u32]) -> Result<(), String> {
        let ends = |&flow: &u32| self.flows[flow as usize].ends;
        let mut links: Vec<u32> = flows.iter().flat_map(ends).collect();
        links.sort_unstable();
        links.dedup();
        for link in links {
            let sum = self.load(link);
            let rate = self.links[link as usize].rate;
            if sum > rate * (1.0 + 1e-9) {
                return Err(format!("link {link} carries {sum} of {rate} bytes a second"));
            }
        }
        Ok(())
    }

    /// The load of a link in bytes a second.
    fn load(&self, link: u32) -> f64 {
        let flows = self.links[link as usize].active.iter();
        flows
            .map(|&flow| &self.flows[flow as usize])
            .map(|flow| flow.rate * if flow.ends[0] == link { flow.copies } else { 1.0 })
            .sum()
    }
}
