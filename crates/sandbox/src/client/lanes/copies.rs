//! The start of further lanes: the choice of the lane to copy, and of the number of the copy.

use std::io;
use std::sync::Arc;

use snowmelt_kernel::packet;

use super::{Lanes, release_run_dir};
use crate::client::readiness::{self, ReadyLane};
use crate::client::registry::LaneRegistry;

impl Lanes {
    /// Makes one more lane, unless one is being made.
    pub(super) async fn open_one(&self) {
        // Who makes a lane already does so for this caller too; starts go on in the lanes that
        // there are.
        if let Ok(_turn) = self.opening.try_lock() {
            self.open().await;
        }
    }

    /// Makes lanes up to the maximum.
    pub(super) async fn open_all(&self) {
        if let Ok(_turn) = self.opening.try_lock() {
            while self.open().await {}
        }
    }

    /// Makes a lane; false if no more are allowed or it fails.
    pub(super) async fn open(&self) -> bool {
        let Some((parent, number)) = self.next() else { return false };
        let Some(run_dir) = parent.run_dir() else { return false };
        match copy(&parent, number).await {
            Ok(ready) => {
                self.add(ready, run_dir);
                true
            }
            Err(error) => {
                tracing::warn!(%error, number, "no further lane of the spawner could be made");
                // The platform may have ended meanwhile, and this may be the last reference.
                release_run_dir(run_dir);
                false
            }
        }
    }

    /// The lane to copy and the number of the copy; `None` at the maximum.
    fn next(&self) -> Option<(Arc<LaneRegistry>, u32)> {
        let state = self.state();
        if state.is_ending {
            return None;
        }
        let is_free = |number: &u32| state.lanes.iter().all(|lane| lane.lane() != *number);
        Some((state.least_loaded()?, (0..self.most).find(is_free)?))
    }
}

/// Has `parent` copy itself.
async fn copy(parent: &LaneRegistry, number: u32) -> io::Result<ReadyLane> {
    let (ours, theirs) = packet::pair()?;
    parent.open(number, theirs).await.map_err(io::Error::other)?;
    readiness::wait_for(number, ours).await
}
