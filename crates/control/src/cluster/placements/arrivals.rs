//! Hosts that come: those of an earlier control, which join again, those that have just joined, and
//! those that may be started.

use std::time::Duration;

use super::{Placements, State};

/// The hosts of an earlier control have joined again by then: they report every second, and try
/// again as often while control does not answer.
pub(super) const JOINED_AGAIN: Duration = Duration::from_secs(5);

impl Placements {
    /// Whether hosts may be started, for which calls wait that none is large enough for.
    pub fn set_may_start(&self, may_start: bool) {
        let now = self.now();
        let mut state = self.lock();
        state.may_start = may_start;
        state.expect_hosts(now);
    }

    /// Takes the reports of hosts that have joined since they were last taken: a call may come
    /// before the next time.
    pub(super) fn meet_new_hosts(&self) {
        let known = self.lock().hosts.len();
        if self.inner.hosts.count() != known {
            self.take_reports();
        }
    }
}

impl State {
    /// Tells the scheduler whether calls wait that no known host is large enough for.
    pub(super) fn expect_hosts(&mut self, now: Duration) {
        self.scheduler.set_may_grow(self.may_start || now < self.joined_again);
    }
}
