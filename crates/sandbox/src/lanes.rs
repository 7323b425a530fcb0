//! The lanes of a spawner: which one makes what, and when another one is worth its memory.
//!
//! A lane makes one sandbox at a time, and waits in the kernel for a good part of that, so several
//! of them make more in a second, even on one core. The first is there from the start. The others
//! are copies of it, made when starts are seen to queue: an idle server and a short query never
//! have them.
//!
//! Invariant: a number belongs to one lane until nothing of that is left, so control groups and
//! user ids never belong to two.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use snowmelt_types::SandboxId;

use crate::launch::Launcher;
use crate::message::MOST_LANES;
use crate::reader::{self, Ready};
use crate::registry::Registry;
use crate::replace::{self, Replacement};
use crate::run_dir::RunDir;
use crate::{Error, Result};

/// So many starts must have found every lane at work before another one is made: a lane costs as
/// much as one start, and a few hundred KiB.
const WORTH: usize = 8;

/// The lanes that are there.
pub(crate) struct Lanes {
    /// The most there may be.
    pub(super) most: u32,
    state: Mutex<State>,
    /// Held while a lane is made.
    pub(super) opening: tokio::sync::Mutex<()>,
    pub(super) replacement: Replacement,
    /// Until the end; the readers of the lanes have it too, and the last one cleans it.
    run_dir: Mutex<Option<Arc<RunDir>>>,
    own: Weak<Self>,
}

pub(super) struct State {
    /// Also those that are dead and not buried yet.
    pub(super) lanes: Vec<Arc<Registry>>,
    /// Starts that found every lane at work since the last lane was made.
    crowded: usize,
    /// No further lane is made.
    pub(super) is_ending: bool,
}

impl Lanes {
    /// The first lane, with up to `most` in all.
    pub fn new(first: Ready, launcher: Launcher, run_dir: RunDir, most: u32) -> Arc<Self> {
        let run_dir = Arc::new(run_dir);
        Arc::new_cyclic(|lanes| {
            let first = reader::begin(first, run_dir.clone(), lanes.clone());
            let state = State { lanes: vec![first], crowded: 0, is_ending: false };
            Self {
                most: most.clamp(1, MOST_LANES),
                state: Mutex::new(state),
                opening: tokio::sync::Mutex::default(),
                replacement: Replacement::new(launcher),
                run_dir: Mutex::new(Some(run_dir)),
                own: lanes.clone(),
            }
        })
    }

    /// The most lanes that there may be.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The lane that has the least to do, for a sandbox of this id; if one of that id lives, its
    /// lane, which refuses. Where every lane has died it is waited for another spawner.
    ///
    /// # Errors
    /// [`Error::SpawnerLost`] when there is none, [`Error::NotReplaced`] when there can be none.
    pub async fn pick(&self, id: &SandboxId) -> Result<Arc<Registry>> {
        if let Some(lane) = self.least(id) {
            return Ok(lane);
        }
        self.wait_for_one().await?;
        self.least(id).ok_or(Error::SpawnerLost)
    }

    /// The same of lanes whose number is not one of `full`, if need be a new one; none if there can
    /// be no more.
    ///
    /// # Errors
    /// As [`Self::pick`].
    pub async fn pick_without(
        &self,
        id: &SandboxId,
        full: &[u32],
    ) -> Result<Option<Arc<Registry>>> {
        let Some(last) = full.last() else { return self.pick(id).await.map(Some) };
        let other = || self.state().least_of(|lane| !full.contains(&lane.lane()));
        if let Some(lane) = other() {
            return Ok(Some(lane));
        }
        tracing::debug!(lane = last, "no lane has a slot for a zygote");
        let _turn = self.opening.lock().await;
        self.open().await;
        Ok(other())
    }

    fn least(&self, id: &SandboxId) -> Option<Arc<Registry>> {
        let mut state = self.state();
        let known = |lane: &&Arc<Registry>| lane.knows(id);
        if let Some(lane) = state.lanes.iter().find(known) {
            return Some(lane.clone());
        }
        let least = state.least()?;
        let is_crowded = least.load().is_some_and(|(busy, _)| busy > 0);
        state.crowded += usize::from(is_crowded && state.lanes.len() < self.most as usize);
        if state.crowded >= WORTH {
            state.crowded = 0;
            let lanes = self.own.clone();
            tokio::spawn(async move {
                if let Some(lanes) = lanes.upgrade() {
                    lanes.open_one().await;
                }
            });
        }
        Some(least)
    }

    /// Gives each lane a part of `specs`, in their order. Many are worth all the lanes there can
    /// be.
    pub async fn split<S>(&self, mut specs: Vec<S>) -> Result<Vec<(Arc<Registry>, Vec<S>)>> {
        self.wait_for_one().await?;
        if specs.len() >= WORTH {
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

    /// A lane was lost, and is not buried yet.
    pub fn lost(&self) {
        if !self.has_one() && !self.is_ending() {
            self.replacement.is_needed();
        }
    }

    /// Nothing is left of the lane of this number. When that was the last one, another spawner is
    /// started.
    pub fn forget(&self, lane: u32) {
        let mut state = self.state();
        state.lanes.retain(|known| known.lane() != lane);
        if state.lanes.is_empty() && !state.is_ending {
            tokio::spawn(replace::replace(self.own.clone()));
        }
    }

    /// Takes a lane in.
    pub fn add(&self, ready: Ready, run_dir: Arc<RunDir>) {
        let lane = reader::begin(ready, run_dir, self.own.clone());
        self.state().lanes.push(lane);
        self.replacement.is_done();
    }

    /// Whether any lane lives.
    pub fn has_one(&self) -> bool {
        self.state().least().is_some()
    }

    /// Whether there is any lane, dead ones included that are not buried.
    pub fn is_empty(&self) -> bool {
        self.state().lanes.is_empty()
    }

    /// Whether no further lane is made.
    pub fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// The processes of the lanes that live.
    pub fn pids(&self) -> Vec<u32> {
        let state = self.state();
        let living = state.lanes.iter().filter(|lane| lane.load().is_some());
        living.map(|lane| lane.pid()).collect()
    }

    /// The run directory, until the end.
    pub fn run_dir(&self) -> Option<Arc<RunDir>> {
        self.run_dir.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all of them; returns when nothing is left.
    pub async fn shutdown(&self) -> Result<()> {
        self.state().is_ending = true;
        self.replacement.is_given_up();
        let lanes = {
            // After one that is being made.
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
            let removed = tokio::task::spawn_blocking(|| leave(run_dir)).await;
            drop(removed);
        }
        Ok(())
    }

    fn take_run_dir(&self) -> Option<Arc<RunDir>> {
        self.run_dir.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete within one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // The readers of lanes that live still have it.
        self.take_run_dir().into_iter().for_each(leave);
    }
}

/// Removes the run directory if nobody else has it.
pub(super) fn leave(run_dir: Arc<RunDir>) {
    if let Err(error) = reader::let_go(run_dir) {
        tracing::warn!(%error, "what the spawner left could not be removed");
    }
}

impl State {
    pub(super) fn least(&self) -> Option<Arc<Registry>> {
        self.least_of(|_| true)
    }

    fn least_of(&self, allowed: impl Fn(&Registry) -> bool) -> Option<Arc<Registry>> {
        let allowed = self.lanes.iter().filter(|lane| allowed(lane));
        let loads = allowed.filter_map(|lane| Some((lane.load()?, lane)));
        loads.min_by_key(|(load, _)| *load).map(|(_, lane)| lane.clone())
    }
}
