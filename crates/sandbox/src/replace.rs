//! The replacement of a spawner that died: when another is started, which calls wait for it, and
//! which errors they get meanwhile (decision 020).
//!
//! Invariant: while no lane lives and the platform does not end, a replacement is in progress. No
//! call waits for it longer than [`WAIT_LIMIT`], and it is retried until it succeeds.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lanes::Lanes;
use crate::launch::Launcher;
use crate::reader::{self, Ready};
use crate::times::{RESTART_FIRST_PAUSE, RESTART_LONGEST_PAUSE, STABLE_AFTER};
use crate::{Error, Result};

/// The longest that a start waits for another spawner.
const WAIT_LIMIT: Duration = Duration::from_secs(15);

/// The number of attempts that may fail before waiting calls get an error: the remains of the dead
/// spawner may take a moment to disappear.
const RETRIES_BEFORE_ERROR: u32 = 2;

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
pub(crate) struct Replacement {
    launcher: Arc<Launcher>,
    condition: watch::Sender<Condition>,
    history: Mutex<History>,
}

/// Whether there is a spawner.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
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
            condition: watch::Sender::new(Condition::Running),
            history: Mutex::new(history),
        }
    }

    /// Notes that no lane lives.
    pub fn is_needed(&self) {
        self.condition.send_replace(Condition::Replacing);
    }

    /// Notes that a lane lives.
    pub fn is_done(&self) {
        self.condition.send_replace(Condition::Running);
    }

    /// Notes that the platform ends: calls no longer wait.
    pub fn is_given_up(&self) {
        self.condition.send_modify(|_| {});
    }

    /// The pause before the next spawner is started: none, unless spawners die one after another.
    fn pause(&self) -> Duration {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.started.elapsed() > STABLE_AFTER {
            history.soon = 0;
        }
        let doublings = history.soon;
        history.soon += 1;
        match doublings {
            0 => Duration::ZERO,
            more => longer(RESTART_FIRST_PAUSE, more - 1),
        }
    }

    fn started(&self) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.started = Instant::now();
        history.replaced += 1;
    }
}

impl Lanes {
    /// The state of the spawner.
    pub fn health(&self) -> SpawnerHealth {
        let condition = self.replacement.condition.borrow().clone();
        let failure = if let Condition::Failed(reason) = condition { Some(reason) } else { None };
        let history = &self.replacement.history;
        let replaced = history.lock().unwrap_or_else(PoisonError::into_inner).replaced;
        SpawnerHealth { processes: self.pids(), replaced, failure }
    }

    /// Waits until a lane lives.
    ///
    /// # Errors
    /// [`Error::SpawnerLost`] when the platform ends or it takes too long, [`Error::NotReplaced`]
    /// when the last attempt to start another failed.
    pub async fn wait_for_one(&self) -> Result<()> {
        let mut condition = self.replacement.condition.subscribe();
        let one = async {
            loop {
                // Registered before the lanes are checked, so that no change in between is missed.
                let seen = condition.borrow_and_update().clone();
                if self.any_alive() {
                    return Ok(());
                }
                if self.is_ending() {
                    return Err(Error::SpawnerLost);
                }
                if let Condition::Failed(reason) = seen {
                    return Err(Error::NotReplaced { reason });
                }
                condition.changed().await.map_err(|_| Error::SpawnerLost)?;
            }
        };
        tokio::time::timeout(WAIT_LIMIT, one).await.unwrap_or(Err(Error::SpawnerLost))
    }

    /// Starts another spawner, unless there is one or the platform ends. Returns whether it did.
    async fn start_again(&self) -> Result<bool> {
        // A lane may be in the making, of a copy that outlived its original.
        let _turn = self.opening.lock().await;
        let Some(run_dir) = self.run_dir() else { return Ok(false) };
        if self.is_ending() || !self.is_empty() {
            return Ok(false);
        }
        let (launcher, folder) = (self.replacement.launcher.clone(), run_dir.clone());
        let launched = tokio::task::spawn_blocking(move || {
            // First, because what is still in a control group keeps it from being removed.
            reader::end_inits(&folder);
            // Again, because nothing of the last one may remain.
            folder.clean_lanes()?;
            launcher.launch(&folder)
        });
        let launched =
            launched.await.map_err(|error| Error::NotReplaced { reason: error.to_string() })??;
        let first = Ready::first(launched)?;
        self.replacement.started();
        self.add(first, run_dir);
        Ok(true)
    }
}

/// Starts another spawner as often as it takes.
pub(crate) async fn replace(lanes: Weak<Lanes>) {
    let Some(mut pause) = lanes.upgrade().map(|lanes| lanes.replacement.pause()) else { return };
    for failures in 0.. {
        tokio::time::sleep(pause).await;
        let Some(lanes) = lanes.upgrade() else { return };
        match lanes.start_again().await {
            Ok(false) => return,
            Ok(true) => {
                let spawner = lanes.health();
                return tracing::warn!(?spawner, "the spawner died; another has taken its place");
            }
            Err(error) => {
                tracing::error!(%error, "the spawner died and cannot be started again so far");
                if failures >= RETRIES_BEFORE_ERROR {
                    let failed = Condition::Failed(error.to_string());
                    lanes.replacement.condition.send_replace(failed);
                }
                pause = longer(RESTART_FIRST_PAUSE, failures);
            }
        }
    }
}

fn longer(pause: Duration, doublings: u32) -> Duration {
    pause.saturating_mul(1 << doublings.min(16)).min(RESTART_LONGEST_PAUSE)
}
