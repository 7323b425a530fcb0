//! The start of a spawner in place of one that died: which calls wait for it, and which errors they
//! get meanwhile (decision 020).
//!
//! Invariant: while no lane lives and the platform does not end, a replacement is in progress. No
//! call waits for it longer than [`WAIT_LIMIT`], and it is retried until it succeeds.

use std::sync::Weak;
use std::time::Duration;

use super::Lanes;
use super::replacement::{SpawnerCondition, SpawnerHealth, longer};
use crate::times::RESTART_FIRST_PAUSE;
use crate::{Error, Result};

/// The longest that a start waits for another spawner.
const WAIT_LIMIT: Duration = Duration::from_secs(15);

/// The number of attempts that may fail before waiting calls get an error: the remains of the dead
/// spawner may take a moment to disappear.
const RETRIES_BEFORE_ERROR: u32 = 2;

impl Lanes {
    /// The state of the spawner.
    pub(in crate::client) fn health(&self) -> SpawnerHealth {
        self.replacement.health(self.pids())
    }

    /// Waits until a lane lives.
    ///
    /// # Errors
    /// [`Error::SpawnerLost`] when the platform ends or it takes too long, [`Error::NotReplaced`]
    /// when the last attempt to start another failed.
    pub(super) async fn wait_for_one(&self) -> Result<()> {
        let mut condition = self.replacement.subscribe();
        // The condition wakes the waiters; the lanes themselves decide, because a condition can be
        // older than a lane that has died since.
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
                if let SpawnerCondition::Failed(reason) = seen {
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
        // A lane that is dead but not removed still counts: its reader calls `forget`, and that
        // starts the replacement again.
        if self.is_ending() || !self.is_empty() {
            return Ok(false);
        }
        let launcher = self.replacement.launcher();
        let folder = run_dir.clone();
        let launched = tokio::task::spawn_blocking(move || {
            // First, because what is still in a control group keeps it from being removed.
            folder.end_inits();
            // Again, because nothing of the last one may remain.
            folder.clean_lanes()?;
            launcher.launch(&folder)
        });
        let launched =
            launched.await.map_err(|error| Error::NotReplaced { reason: error.to_string() })??;
        let first = launched.into_ready()?;
        self.replacement.started();
        self.add(first, run_dir);
        Ok(true)
    }

    /// Starts another spawner as often as it takes.
    pub(super) async fn replace(lanes: Weak<Self>) {
        let Some(mut pause) = lanes.upgrade().map(|lanes| lanes.replacement.pause()) else {
            return;
        };
        for failures in 0.. {
            tokio::time::sleep(pause).await;
            let Some(lanes) = lanes.upgrade() else { return };
            match lanes.start_again().await {
                Ok(false) => return,
                Ok(true) => {
                    let spawner = lanes.health();
                    return tracing::warn!(
                        ?spawner,
                        "the spawner died; another has taken its place"
                    );
                }
                Err(error) => {
                    tracing::error!(%error, "the spawner died and cannot be started again so far");
                    // Attempts go on for ever; only the calls stop waiting, and get the reason.
                    if failures >= RETRIES_BEFORE_ERROR {
                        lanes.replacement.has_failed(error.to_string());
                    }
                    pause = longer(RESTART_FIRST_PAUSE, failures);
                }
            }
        }
    }
}
