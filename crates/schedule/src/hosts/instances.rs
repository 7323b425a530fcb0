//! The instances of a function on one host, as far as they are known.

use std::time::Duration;

/// Instances of a function on a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instances {
    /// The number of instances on the host, by its last answer.
    count: u32,
    /// The number of calls that were placed on these instances and have not ended.
    pub calls: u32,
    /// The time at which the last call ended.
    last: Duration,
    /// The time for which an instance without calls is kept.
    idle: Duration,
    /// The number of calls that an instance takes at a time, which is the same for all calls of a
    /// function.
    each: u32,
}

impl Instances {
    /// The number of instances that the calls need, if each instance takes `each` calls.
    pub fn busy(&self, each: u32) -> u32 {
        self.calls.div_ceil(each.max(1))
    }

    /// Whether an instance that has calls takes another one.
    pub fn has_shared_slot(&self, each: u32) -> bool {
        self.calls < self.busy(each) * each.max(1)
    }

    /// The number of instances without calls that are still kept.
    pub fn idle(&self, each: u32, now: Duration) -> u32 {
        if self.is_kept(now) { self.count.saturating_sub(self.busy(each)) } else { 0 }
    }

    /// The number of instances that are left when a call ends together with its instance.
    pub fn without_one(&self, each: u32, now: Duration) -> u32 {
        let busy = self.calls.saturating_sub(1).div_ceil(each.max(1));
        self.idle(each, now).saturating_add(busy)
    }

    /// The number of instances that the calls need, by the concurrency of the calls that began.
    pub fn busy_now(&self) -> u32 {
        self.busy(self.each)
    }

    /// Whether an instance that has calls takes another one, by the concurrency of the calls that
    /// began.
    pub fn has_shared_slot_now(&self) -> bool {
        self.has_shared_slot(self.each)
    }

    /// Whether an instance may be without calls. Whether its time without calls is over is not
    /// looked at.
    pub fn may_be_idle(&self) -> bool {
        self.count > self.busy_now()
    }

    /// The time at which an instance was used last.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// Counts a call that begins, and the new instance that it may have needed.
    pub fn begin(&mut self, each: u32, idle: Duration) {
        self.idle = idle;
        self.each = each;
        self.calls += 1;
        self.count = self.count.max(self.busy(each));
    }

    /// Counts a call that has ended. `count` is the number of instances that the host reports.
    pub fn end(&mut self, count: Option<u32>, now: Duration) {
        self.calls = self.calls.saturating_sub(1);
        self.count = count.unwrap_or(self.count);
        self.last = now;
    }

    /// Whether no call runs and no instance is kept, so that this can be forgotten.
    pub fn is_over(&self, now: Duration) -> bool {
        self.calls == 0 && !self.is_kept(now)
    }

    fn is_kept(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) < self.idle
    }
}
