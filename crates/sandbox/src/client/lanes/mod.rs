//! The lanes of a spawner: the choice of the lane that makes a sandbox, and of the time to start
//! another lane.
//!
//! A lane makes one sandbox at a time, and waits in the kernel for a large part of that time, so
//! several lanes make more sandboxes per second, even on one core. The first lane exists from the
//! start. The others are copies of it, made when starts queue: an idle server and a short query
//! never need them.
//!
//! Invariant: a number belongs to one lane until everything of that lane is removed, so no two
//! lanes share control groups or user ids.

mod copies;
mod replacement;
mod restart;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use snowmelt_types::SandboxId;

use super::launch::Launcher;
use super::reader::LaneReader;
use super::readiness::ReadyLane;
use super::registry::LaneRegistry;
use super::run_dir::RunDir;
use crate::message::MAX_LANES;
use crate::{Error, Result};
use replacement::Replacement;
pub use replacement::SpawnerHealth;

/// The number of starts that must have found every lane busy before another lane is made: a lane
/// costs as much as one start, and a few hundred KiB.
const NEW_LANE_THRESHOLD: usize = 8;

/// The existing lanes.
pub(super) struct Lanes {
    /// The maximum number of lanes.
    most: u32,
    state: Mutex<State>,
    /// The lock that is held while a lane is made.
    opening: tokio::sync::Mutex<()>,
    replacement: Replacement,
    /// The run directory; `None` once the platform ends. The readers of the lanes share it, and the
    /// last one cleans it.
    run_dir: Mutex<Option<Arc<RunDir>>>,
    own: Weak<Self>,
}

struct State {
    /// All lanes, including dead ones that are not cleaned up yet.
    lanes: Vec<Arc<LaneRegistry>>,
    /// The number of starts that found every lane busy since the last lane was made.
    busy_starts: usize,
    /// Whether the platform ends, so that no further lane is made.
    is_ending: bool,
}

impl Lanes {
    /// Makes the list of lanes with the first one. There may be up to `most` in all.
    pub fn new(first: ReadyLane, launcher: Launcher, run_dir: RunDir, most: u32) -> Arc<Self> {
        let run_dir = Arc::new(run_dir);
        Arc::new_cyclic(|lanes| {
            let first = start_reading(first, run_dir.clone(), lanes.clone());
            let state = State { lanes: vec![first], busy_starts: 0, is_ending: false };
            Self {
                most: most.clamp(1, MAX_LANES),
                state: Mutex::new(state),
                opening: tokio::sync::Mutex::default(),
                replacement: Replacement::new(launcher),
                run_dir: Mutex::new(Some(run_dir)),
                own: lanes.clone(),
            }
        })
    }

    /// The maximum number of lanes.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Returns the least loaded lane, for a sandbox of this id. If a live sandbox has that id,
    /// returns its lane, which refuses the request. Waits for another spawner if every lane has
    /// died.
    ///
    /// # Errors
    /// [`Error::SpawnerLost`] when there is no lane, [`Error::NotReplaced`] when none can be
    /// started.
    pub async fn pick(&self, id: &SandboxId) -> Result<Arc<LaneRegistry>> {
        if let Some(lane) = self.least_loaded(id) {
            return Ok(lane);
        }
        self.wait_for_one().await?;
        self.least_loaded(id).ok_or(Error::SpawnerLost)
    }

    /// Returns a lane like [`Self::pick`], without the lanes whose numbers are in `full`; makes a
    /// new lane if needed. `None` if there can be no more.
    ///
    /// # Errors
    /// Fails as [`Self::pick`].
    pub async fn pick_without(
        &self,
        id: &SandboxId,
        full: &[u32],
    ) -> Result<Option<Arc<LaneRegistry>>> {
        // The first attempt is like any other; only a full lane makes it worth to open another one.
        let Some(last) = full.last() else { return self.pick(id).await.map(Some) };
        let other = || self.state().least_loaded_of(|lane| !full.contains(&lane.lane()));
        if let Some(lane) = other() {
            return Ok(Some(lane));
        }
        tracing::debug!(lane = last, "no lane has a slot for a zygote");
        let _turn = self.opening.lock().await;
        self.open().await;
        Ok(other())
    }

    fn least_loaded(&self, id: &SandboxId) -> Option<Arc<LaneRegistry>> {
        let mut state = self.state();
        let known = |lane: &&Arc<LaneRegistry>| lane.has_live(id);
        if let Some(lane) = state.lanes.iter().find(known) {
            return Some(lane.clone());
        }
        let least_loaded = state.least_loaded()?;
        let is_crowded = least_loaded.load().is_some_and(|(busy, _)| busy > 0);
        // Dead lanes count too: their number is not free until everything of them is removed.
        state.busy_starts += usize::from(is_crowded && state.lanes.len() < self.most as usize);
        if state.busy_starts >= NEW_LANE_THRESHOLD {
            state.busy_starts = 0;
            let lanes = self.own.clone();
            tokio::spawn(async move {
                if let Some(lanes) = lanes.upgrade() {
                    lanes.open_one().await;
                }
            });
        }
        Some(least_loaded)
    }

    /// Divides `specs` among the lanes, in order. With many specs, all lanes are made first.
    pub async fn split<S>(&self, mut specs: Vec<S>) -> Result<Vec<(Arc<LaneRegistry>, Vec<S>)>> {
        self.wait_for_one().await?;
        if specs.len() >= NEW_LANE_THRESHOLD {
            self.open_all().await;
        }
        let mut lanes: Vec<_> =
            self.state().lanes.iter().filter(|lane| lane.load().is_some()).cloned().collect();
        lanes.sort_by_key(|lane| lane.load());
        let mut parts = Vec::with_capacity(lanes.len());
        while let Some(lane) = lanes.pop() {
            let rest = specs.split_off(specs.len() / (lanes.len() + 1) * lanes.len());
            parts.push((lane, rest));
        }
        parts.reverse();
        Ok(parts)
    }

    /// Notes that a lane has died. It is not cleaned up yet.
    fn lost(&self) {
        if !self.any_alive() && !self.is_ending() {
            self.replacement.is_needed();
        }
    }

    /// Removes the lane of this number from the list, because everything of it is removed. If it
    /// was the last one, another spawner is started.
    fn forget(&self, lane: u32) {
        let mut state = self.state();
        state.lanes.retain(|known| known.lane() != lane);
        if state.lanes.is_empty() && !state.is_ending {
            // Only now, and not when the lane died: the lanes of the next spawner have the same
            // numbers, and so the same control groups.
            tokio::spawn(Self::replace(self.own.clone()));
        }
    }

    /// Adds a lane.
    fn add(&self, ready: ReadyLane, run_dir: Arc<RunDir>) {
        let lane = start_reading(ready, run_dir, self.own.clone());
        self.state().lanes.push(lane);
        self.replacement.is_done();
    }

    /// Whether any lane is alive.
    fn any_alive(&self) -> bool {
        self.state().least_loaded().is_some()
    }

    /// Whether there is no lane, not even a dead one that is not cleaned up yet.
    fn is_empty(&self) -> bool {
        self.state().lanes.is_empty()
    }

    /// Whether no further lane is made.
    fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// The process ids of the live lanes.
    fn pids(&self) -> Vec<u32> {
        let state = self.state();
        let living = state.lanes.iter().filter(|lane| lane.load().is_some());
        living.map(|lane| lane.pid()).collect()
    }

    /// The run directory, until the end.
    fn run_dir(&self) -> Option<Arc<RunDir>> {
        self.run_dir.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all lanes; returns when everything is removed.
    pub async fn shutdown(&self) -> Result<()> {
        // Before the lock for openings: who holds it now adds its lane, and nobody opens another
        // one.
        self.state().is_ending = true;
        self.replacement.is_given_up();
        let lanes = {
            // Wait for a lane that is being made.
            let _turn = self.opening.lock().await;
            self.state().lanes.clone()
        };
        for lane in &lanes {
            lane.end().await?;
        }
        for lane in &lanes {
            lane.ended().await;
        }
        if let Some(run_dir) = self.take_run_dir() {
            // Removing it blocks for a moment.
            let removed = tokio::task::spawn_blocking(|| release_run_dir(run_dir)).await;
            drop(removed);
        }
        Ok(())
    }

    fn take_run_dir(&self) -> Option<Arc<RunDir>> {
        self.run_dir.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete within one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // The readers of live lanes still share it.
        self.take_run_dir().into_iter().for_each(release_run_dir);
    }
}

/// Starts a task that reads the messages of a lane until the lane ends, and removes its remains;
/// returns the lane's registry. The list learns of both.
fn start_reading(ready: ReadyLane, run_dir: Arc<RunDir>, lanes: Weak<Lanes>) -> Arc<LaneRegistry> {
    let (reader, registry) = LaneReader::new(ready, run_dir);
    let lane = registry.lane();
    let known = Arc::downgrade(&registry);
    tokio::spawn(async move {
        reader.read_to_end().await;
        if let Some(lanes) = lanes.upgrade() {
            lanes.lost();
        }
        reader.clean_up().await;
        if let Some(lanes) = lanes.upgrade() {
            lanes.forget(lane);
        }
        if let Some(registry) = known.upgrade() {
            registry.is_gone();
        }
    });
    registry
}

/// Removes the run directory if this is its last user.
fn release_run_dir(run_dir: Arc<RunDir>) {
    if let Err(error) = run_dir.remove_if_last() {
        tracing::warn!(%error, "the remains of the spawner could not be removed");
    }
}

impl State {
    fn least_loaded(&self) -> Option<Arc<LaneRegistry>> {
        self.least_loaded_of(|_| true)
    }

    fn least_loaded_of(
        &self,
        allowed: impl Fn(&LaneRegistry) -> bool,
    ) -> Option<Arc<LaneRegistry>> {
        let allowed = self.lanes.iter().filter(|lane| allowed(lane));
        let loads = allowed.filter_map(|lane| Some((lane.load()?, lane)));
        loads.min_by_key(|(load, _)| *load).map(|(_, lane)| lane.clone())
    }
}
