//! The clock of leases: that of the machine, or a paused clock that a test advances.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock. Cheap to clone; clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    // Absent: the clock of the machine.
    set: Option<Arc<watch::Sender<Duration>>>,
}

impl Clock {
    /// The monotonic clock of the machine.
    pub fn real() -> Self {
        Self::default()
    }

    /// A clock that changes only when it is advanced.
    pub fn paused() -> Self {
        Self { set: Some(Arc::new(watch::Sender::new(Duration::ZERO))) }
    }

    /// Advances a paused clock; no effect on the clock of the machine.
    pub fn advance(&self, by: Duration) {
        if let Some(set) = &self.set {
            set.send_modify(|now| *now += by);
        }
    }

    /// The time since the start of the clock.
    pub(crate) fn now(&self) -> Duration {
        match &self.set {
            Some(set) => *set.borrow(),
            None => START.elapsed(),
        }
    }

    pub(crate) async fn sleep_until(&self, time: Duration) {
        match &self.set {
            Some(set) => {
                let mut seen = set.subscribe();
                // It cannot be dropped while `self` lives.
                let _ = seen.wait_for(|now| *now >= time).await;
            }
            None => tokio::time::sleep(time.saturating_sub(self.now())).await,
        }
    }
}
