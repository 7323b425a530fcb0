//! The lanes of a spawner: which one makes what, and when another one is worth its memory.
//!
//! A lane makes one sandbox at a time, and waits in the kernel for a good part of that, so several
//! of them make more in a second, even on one core. The first is there from the start. The others
//! are copies of it, made when starts are seen to queue: an idle server and a short query never
//! have them.
//!
//! Invariant: a number belongs to one lane until nothing of that is left, so control groups and
//! user ids never belong to two.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use snowmelt_kernel::packet;
use snowmelt_types::SandboxId;

use crate::message::MOST_LANES;
use crate::reader::{self, Ready};
use crate::registry::Registry;
use crate::run_dir::RunDir;
use crate::{Error, Result};

/// So many starts must have found every lane at work before another one is made: a lane costs as
/// much as one start, and a few hundred KiB.
const WORTH: usize = 8;

/// The lanes that are there.
pub(crate) struct Lanes {
    /// The most there may be.
    most: u32,
    state: Mutex<State>,
    /// Held while a lane is made.
    opening: tokio::sync::Mutex<()>,
    own: Weak<Self>,
}

struct State {
    /// Also those that are dead and not buried yet.
    lanes: Vec<Arc<Registry>>,
    /// Starts that found every lane at work since the last lane was made.
    crowded: usize,
    /// No further lane is made.
    is_ending: bool,
}

impl Lanes {
    /// The first lane, with up to `most` in all.
    pub fn new(first: Ready, run_dir: RunDir, most: u32) -> Arc<Self> {
        Arc::new_cyclic(|lanes| {
            let first = reader::begin(first, Arc::new(run_dir), lanes.clone());
            let state = State { lanes: vec![first], crowded: 0, is_ending: false };
            Self {
                most: most.clamp(1, MOST_LANES),
                state: Mutex::new(state),
                opening: tokio::sync::Mutex::default(),
                own: lanes.clone(),
            }
        })
    }

    /// The lane that has the least to do, for a sandbox of this id; if one of that id lives, its
    /// lane, which refuses.
    ///
    /// # Errors
    /// [`Error::SpawnerLost`] when there is none.
    pub fn pick(self: &Arc<Self>, id: &SandboxId) -> Result<Arc<Registry>> {
        let mut state = self.state();
        if let Some(lane) = state.lanes.iter().find(|lane| lane.knows(id)) {
            return Ok(lane.clone());
        }
        let least = state.least().ok_or(Error::SpawnerLost)?;
        let is_crowded = least.load().is_some_and(|(busy, _)| busy > 0);
        state.crowded += usize::from(is_crowded && state.lanes.len() < self.most as usize);
        if state.crowded >= WORTH {
            state.crowded = 0;
            let lanes = self.clone();
            tokio::spawn(async move { lanes.open_one().await });
        }
        Ok(least)
    }

    /// Gives each lane a part of `specs`, in their order. Many are worth all the lanes there can
    /// be.
    pub async fn split<S>(&self, mut specs: Vec<S>) -> Vec<(Arc<Registry>, Vec<S>)> {
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
        parts
    }

    /// Nothing is left of the lane of this number.
    pub fn forget(&self, lane: u32) {
        self.state().lanes.retain(|known| known.lane() != lane);
    }

    /// Ends all of them; returns when nothing is left.
    pub async fn shutdown(&self) -> Result<()> {
        let lanes = {
            // After one that is being made.
            let _turn = self.opening.lock().await;
            let mut state = self.state();
            state.is_ending = true;
            state.lanes.clone()
        };
        for lane in &lanes {
            lane.end().await?;
        }
        for lane in &lanes {
            lane.ended().await;
        }
        Ok(())
    }

    /// Makes one more lane, unless one is being made.
    async fn open_one(&self) {
        if let Ok(_turn) = self.opening.try_lock() {
            self.open().await;
        }
    }

    /// Makes all the lanes there can be.
    async fn open_all(&self) {
        if let Ok(_turn) = self.opening.try_lock() {
            while self.open().await {}
        }
    }

    /// Makes a lane; false if there is to be no more, or there cannot.
    async fn open(&self) -> bool {
        let Some((parent, number)) = self.next() else { return false };
        let Some(run_dir) = parent.run_dir() else { return false };
        match copy(&parent, number).await {
            Ok(ready) => {
                let lane = reader::begin(ready, run_dir, self.own.clone());
                self.state().lanes.push(lane);
                true
            }
            Err(error) => {
                tracing::warn!(%error, number, "no further lane of the spawner could be made");
                if let Err(error) = reader::let_go(run_dir) {
                    tracing::warn!(%error, "what the spawner left could not be removed");
                }
                false
            }
        }
    }

    /// Which lane to copy, and the number of the copy; none when there are as many as there may be.
    fn next(&self) -> Option<(Arc<Registry>, u32)> {
        let state = self.state();
        if state.is_ending {
            return None;
        }
        let is_free = |number: &u32| state.lanes.iter().all(|lane| lane.lane() != *number);
        Some((state.least()?, (0..self.most).find(is_free)?))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete within one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn least(&self) -> Option<Arc<Registry>> {
        let loads = self.lanes.iter().filter_map(|lane| Some((lane.load()?, lane)));
        loads.min_by_key(|(load, _)| *load).map(|(_, lane)| lane.clone())
    }
}

/// Has `parent` copy itself.
async fn copy(parent: &Registry, number: u32) -> io::Result<Ready> {
    let (ours, theirs) = packet::pair()?;
    parent.open(number, theirs).await.map_err(io::Error::other)?;
    reader::wait_for(number, ours).await
}
