//! The instances of a function on one host, as far as they are known.

use std::time::Duration;

/// Instances of a function on a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instances {
    /// Those that are there, by the last answer of the host.
    count: u32,
    /// Calls that were placed on them.
    pub calls: u32,
    /// When the last call ended.
    last: Duration,
    /// How long one is kept without calls.
    idle: Duration,
    /// Calls that one takes at the same time, which is the same for all calls of a function.
    each: u32,
}

impl Instances {
    /// Instances that its calls need, each of which takes so many.
    pub fn busy(&self, each: u32) -> u32 {
        self.calls.div_ceil(each.max(1))
    }

    /// Whether an instance with calls takes another one.
    pub fn has_shared_slot(&self, each: u32) -> bool {
        self.calls < self.busy(each) * each.max(1)
    }

    /// Instances without calls that are still kept.
    pub fn idle(&self, each: u32, now: Duration) -> u32 {
        if self.is_kept(now) { self.count.saturating_sub(self.busy(each)) } else { 0 }
    }

    /// Those that are there without one that ends with its call.
    pub fn without_one(&self, each: u32, now: Duration) -> u32 {
        let busy = self.calls.saturating_sub(1).div_ceil(each.max(1));
        self.idle(each, now).saturating_add(busy)
    }

    /// Instances that its calls need, each of which takes as many as those that began.
    pub fn busy_now(&self) -> u32 {
        self.busy(self.each)
    }

    /// The same for an instance with calls that takes another one.
    pub fn has_shared_slot_now(&self) -> bool {
        self.has_shared_slot(self.each)
    }

    /// Whether one is without calls, if it is kept for as long.
    pub fn may_be_idle(&self) -> bool {
        self.count > self.busy_now()
    }

    /// When it was used last.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// A call begins; it may have needed a new instance.
    pub fn begin(&mut self, each: u32, idle: Duration) {
        self.idle = idle;
        self.each = each;
        self.calls += 1;
        self.count = self.count.max(self.busy(each));
    }

    /// A call has ended. `count` is how many instances the host says it has.
    pub fn end(&mut self, count: Option<u32>, now: Duration) {
        self.calls = self.calls.saturating_sub(1);
        self.count = count.unwrap_or(self.count);
        self.last = now;
    }

    /// Whether there is nothing to remember.
    pub fn is_over(&self, now: Duration) -> bool {
        self.calls == 0 && !self.is_kept(now)
    }

    fn is_kept(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) < self.idle
    }
}
