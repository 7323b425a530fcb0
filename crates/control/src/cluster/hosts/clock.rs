//! The clock that measures the silence of hosts: it counts only time in which this process could
//! have received their heartbeats.
//!
//! Invariant: a pause in which this process did not run, because the machine was busy or the
//! process was stopped, counts as no more than two ticks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use snowmelt_types::micros;

const TICK: Duration = Duration::from_millis(250);

/// A clock that stands still when this process does.
#[derive(Debug, Default)]
pub(crate) struct ProcessClock(AtomicU64);

impl ProcessClock {
    /// Starts a clock that runs until it is dropped.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let clock = Arc::new(Self::default());
        let seen = Arc::downgrade(&clock);
        thread::Builder::new().name("host-clock".into()).spawn(move || go(&seen))?;
        Ok(clock)
    }

    /// Returns the time since the clock was started.
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Adds the time that passed.
    pub fn tick(&self, passed: Duration) {
        let passed = passed.min(TICK * 2);
        self.0.fetch_add(micros(passed), Ordering::Relaxed);
    }
}

fn go(clock: &Weak<ProcessClock>) {
    if let Err(error) = snowmelt_kernel::process::raise_scheduling_priority() {
        tracing::debug!(%error, "the clock of hosts runs like everything else");
    }
    let mut last = Instant::now();
    loop {
        thread::sleep(TICK);
        let Some(clock) = clock.upgrade() else { return };
        let now = Instant::now();
        clock.tick(now - last);
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_control_was_stopped_does_not_count() {
        let clock = ProcessClock::default();
        clock.tick(TICK);
        assert_eq!(clock.now(), TICK);
        clock.tick(Duration::from_secs(3600));
        assert_eq!(clock.now(), TICK * 3);
    }
}
