//! The clock of this control, beside that of the control that leads.
//!
//! Keys, results of calls and certificates end by the clock of the control that leads. So a control
//! whose clock differs, or which cannot ask the leader for its clock, leaves the lead to others for a
//! while: it leads only if no other control does.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_rpc::HostTarget;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::hosts::Remote;
use crate::now_ms;

/// The greatest difference between two clocks that are taken to be right.
const MAX_DIFFERENCE: Duration = Duration::from_secs(30);
/// The time for which a control with another clock leaves the lead to others.
const REPRIEVE: Duration = Duration::from_secs(10);
/// The time between two looks at the clock of the leader.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The number of looks in a row that fail before the clock is called unknown: a leader that was
/// killed leads until its lease ends.
const MAX_FAILURES: u32 = 2;

/// The knowledge of the clock of the control that leads. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderClock(Arc<Mutex<ClockSeen>>);

#[derive(Debug, Default)]
struct ClockSeen {
    /// The time of this control less that of the leader, in milliseconds.
    ahead_ms: i64,
    failures: u32,
    failure: String,
}

impl LeaderClock {
    /// Looks at the clock of the control that leads again and again, while others can reach it.
    pub async fn follow(self, mut leader: watch::Receiver<Option<HostTarget>>) {
        loop {
            let target = leader.borrow_and_update().clone();
            *self.lock() = ClockSeen::default();
            let looking = async {
                while let Some(target) = &target {
                    self.look(target).await;
                    sleep(LOOK_EVERY).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = looking => {}
                changed = leader.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn look(&self, leader: &HostTarget) {
        let asked_ms = now_ms();
        let remote = Remote::new(leader.address, leader.meant.clone(), leader.credential.clone());
        let read = remote.clock().await;
        let middle_ms = asked_ms.midpoint(now_ms());
        let mut seen = self.lock();
        match read {
            Ok(clock) => {
                let was_right = seen.is_right();
                *seen = ClockSeen {
                    ahead_ms: middle_ms.cast_signed().saturating_sub(clock.at_ms.cast_signed()),
                    ..ClockSeen::default()
                };
                if was_right && !seen.is_right() {
                    tracing::error!("this control{}", seen);
                }
            }
            Err(error) => {
                seen.failures = seen.failures.saturating_add(1);
                seen.failure = error.message;
                if seen.failures == MAX_FAILURES {
                    tracing::error!("this control{}", seen);
                }
            }
        }
    }

    /// The time for which this control leaves the lead to others.
    pub fn reprieve(&self) -> Duration {
        if self.lock().is_right() { Duration::ZERO } else { REPRIEVE }
    }

    /// Says what is wrong with the clock; nothing if it is right.
    pub fn complaint(&self) -> String {
        self.lock().to_string()
    }

    fn lock(&self) -> MutexGuard<'_, ClockSeen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClockSeen {
    fn is_right(&self) -> bool {
        let difference = Duration::from_millis(self.ahead_ms.unsigned_abs());
        self.failures < MAX_FAILURES && difference <= MAX_DIFFERENCE
    }
}

impl fmt::Display for ClockSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_right() {
            return Ok(());
        }
        if self.failures >= MAX_FAILURES {
            return write!(f, " cannot read the clock of the leader: {}", self.failure);
        }
        let seconds = self.ahead_ms.unsigned_abs() / 1000;
        let side = if self.ahead_ms > 0 { "ahead of" } else { "behind" };
        write!(f, " has a clock that is {seconds} s {side} that of the leader")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ahead_ms: i64, failures: u32) -> LeaderClock {
        let seen = ClockSeen { ahead_ms, failures, failure: "expired".to_owned() };
        LeaderClock(Arc::new(Mutex::new(seen)))
    }

    #[test]
    fn a_control_with_another_clock_leaves_the_lead_to_others() {
        for clock in [LeaderClock::default(), seen(29_000, 0), seen(-29_000, 1)] {
            assert_eq!((clock.reprieve(), clock.complaint()), (Duration::ZERO, String::new()));
        }
        for (clock, complaint) in [
            (seen(172_800_000, 0), "172800 s ahead of"),
            (seen(-31_000, 0), "31 s behind"),
            (seen(i64::MIN, 0), "behind"),
            (seen(0, 2), "cannot read the clock of the leader: expired"),
        ] {
            assert_eq!(clock.reprieve(), REPRIEVE);
            assert!(clock.complaint().contains(complaint), "{}", clock.complaint());
        }
    }
}
