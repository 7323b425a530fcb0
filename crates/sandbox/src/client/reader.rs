//! Reading the messages of a lane until its end, and removing its remains.
//!
//! Invariant: when a reader has cleaned up, its lane is dead, reaped and fully removed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use snowmelt_kernel::packet;
use tokio::io::unix::AsyncFd;

use super::pidfd;
use super::readiness::ReadyLane;
use super::registry::LaneRegistry;
use super::run_dir::RunDir;
use crate::Result;
use crate::message::LONGEST_PACKET;

/// The reader of a lane.
pub(super) struct LaneReader {
    lane: u32,
    pidfd: OwnedFd,
    socket: Arc<AsyncFd<OwnedFd>>,
    /// The registry of the lane. Weak, because the lane ends with its last user.
    registry: Weak<LaneRegistry>,
    /// The run directory, which the last reader cleans if the platform has ended.
    run_dir: Arc<RunDir>,
}

impl LaneReader {
    /// Takes over a lane that is ready; returns its reader, and the registry to which the reader
    /// passes the lane's events.
    pub fn new(ready: ReadyLane, run_dir: Arc<RunDir>) -> (Self, Arc<LaneRegistry>) {
        let ReadyLane { lane, pidfd, socket } = ready;
        let registry = LaneRegistry::new(lane, pidfd::pid_of(&pidfd), socket.clone(), &run_dir);
        let known = Arc::downgrade(&registry);
        (Self { lane, pidfd, socket, registry: known, run_dir }, registry)
    }

    /// Reads the messages of the lane until the lane ends, and tells its registry that it has.
    pub async fn read_to_end(&self) {
        read(&self.socket, &self.registry).await;
        if let Some(registry) = self.registry.upgrade() {
            registry.mark_lost();
        }
    }

    /// Reaps the lane and removes its remains.
    pub async fn clean_up(self) {
        let Self { lane, pidfd, run_dir, .. } = self;
        // Reaping and cleaning block for a moment.
        let cleaned =
            tokio::task::spawn_blocking(move || reap_and_clean(&pidfd, lane, run_dir)).await;
        if let Ok(Err(error)) = cleaned {
            tracing::warn!(%error, lane, "the remains of a spawner lane could not be removed");
        }
    }
}

async fn read(socket: &AsyncFd<OwnedFd>, registry: &Weak<LaneRegistry>) {
    let mut buffer = vec![0; LONGEST_PACKET];
    loop {
        let received = socket.async_io(tokio::io::Interest::READABLE, |socket| {
            packet::receive(socket.as_fd(), &mut buffer)
        });
        let packet = match received.await {
            Ok(packet) if packet.length > 0 => packet,
            Ok(_) => return,
            Err(error) => return tracing::debug!(%error, "the stream of a lane broke"),
        };
        match serde_json::from_slice(&buffer[..packet.length]) {
            Ok(event) => {
                if let Some(registry) = registry.upgrade() {
                    registry.handle(event, packet.fds);
                }
            }
            Err(error) => return tracing::error!(%error, "a lane sent an invalid event"),
        }
    }
}

/// Reaps a lane and removes its remains. After the last lane, removes everything if the platform
/// has ended.
fn reap_and_clean(pidfd: &OwnedFd, lane: u32, run_dir: Arc<RunDir>) -> Result<()> {
    pidfd::reap(pidfd);
    // After the reaping: until then the lane may still make groups.
    let cleaned = run_dir.clean_lane(lane);
    // Always called, also after an error: the folder must not stay because one group could not be
    // removed.
    cleaned.and(run_dir.remove_if_last())
}
