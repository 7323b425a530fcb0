//! The state of the replacement of a spawner that died: whether one is in progress or has failed,
//! how many there were, and when the next attempt is made.
//!
//! Invariant: an attempt follows the one before immediately only if the spawner had lived for long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::client::launch::Launcher;
use crate::times::{RESTART_FIRST_PAUSE, RESTART_LONGEST_PAUSE, STABLE_AFTER};

/// The state of the spawner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnerHealth {
    /// The process ids of the spawner's lanes; none while another spawner is started in its place.
    pub processes: Vec<u32>,
    /// The number of times that the spawner died and another took its place.
    pub replaced: u32,
    /// The reason why no other spawner could be started yet. `None` if there is a spawner or
    /// nothing has failed.
    pub failure: Option<String>,
}

/// The state of the replacement of a spawner.
pub(super) struct Replacement {
    launcher: Arc<Launcher>,
    condition: watch::Sender<SpawnerCondition>,
    history: Mutex<History>,
}

/// Whether there is a spawner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SpawnerCondition {
    Running,
    Replacing,
    Failed(String),
}

struct History {
    started: Instant,
    /// The number of spawners in a row that died soon after their start.
    soon: u32,
    replaced: u32,
}

impl Replacement {
    /// The state after the first start.
    pub fn new(launcher: Launcher) -> Self {
        let history = History { started: Instant::now(), soon: 0, replaced: 0 };
        Self {
            launcher: Arc::new(launcher),
            condition: watch::Sender::new(SpawnerCondition::Running),
            history: Mutex::new(history),
        }
    }

    /// Notes that no lane lives.
    pub fn is_needed(&self) {
        self.condition.send_replace(SpawnerCondition::Replacing);
    }

    /// Notes that a lane lives.
    pub fn is_done(&self) {
        self.condition.send_replace(SpawnerCondition::Running);
    }

    /// Notes that the platform ends: calls no longer wait.
    pub fn is_given_up(&self) {
        // The value stays: waiters wake up and see that the platform ends.
        self.condition.send_modify(|_| {});
    }

    /// Notes that the last attempt failed for this reason: waiting calls get it as their error.
    pub fn has_failed(&self, reason: String) {
        self.condition.send_replace(SpawnerCondition::Failed(reason));
    }

    /// The program that is started in place of a spawner.
    pub fn launcher(&self) -> Arc<Launcher> {
        self.launcher.clone()
    }

    /// The condition, and its changes.
    pub fn subscribe(&self) -> watch::Receiver<SpawnerCondition> {
        self.condition.subscribe()
    }

    /// The state of the spawner, whose live lanes are `processes`.
    pub fn health(&self, processes: Vec<u32>) -> SpawnerHealth {
        let condition = self.condition.borrow().clone();
        let failure =
            if let SpawnerCondition::Failed(reason) = condition { Some(reason) } else { None };
        let replaced = self.history.lock().unwrap_or_else(PoisonError::into_inner).replaced;
        SpawnerHealth { processes, replaced, failure }
    }

    /// The pause before the next spawner is started: none, unless spawners die one after another.
    pub fn pause(&self) -> Duration {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.started.elapsed() > STABLE_AFTER {
            // A spawner that had lived for long died of something new: the next one starts at once.
            history.soon = 0;
        }
        let doublings = history.soon;
        history.soon += 1;
        match doublings {
            0 => Duration::ZERO,
            more => longer(RESTART_FIRST_PAUSE, more - 1),
        }
    }

    /// Notes that another spawner is started.
    pub fn started(&self) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.started = Instant::now();
        history.replaced += 1;
    }
}

/// Doubles a pause this many times, up to the longest one.
pub(super) fn longer(pause: Duration, doublings: u32) -> Duration {
    pause.saturating_mul(1 << doublings.min(16)).min(RESTART_LONGEST_PAUSE)
}
