//! Reading the messages of a lane, from its first packet to its end, and removing its remains.
//!
//! Invariant: when a reader has ended, its lane is dead, reaped and fully cleaned up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use snowmelt_kernel::packet;
use tokio::io::unix::AsyncFd;

use crate::lanes::Lanes;
use crate::launch::Launched;
use crate::message::{LONGEST_PACKET, SetupDone};
use crate::registry::Registry;
use crate::run_dir::RunDir;
use crate::{Error, Result};

/// A lane that has reported that it is ready, and whose socket is not read yet.
pub(crate) struct Ready {
    /// The number of the lane.
    pub lane: u32,
    /// The process of the lane, a child of this one.
    pub pidfd: OwnedFd,
    pub socket: Arc<AsyncFd<OwnedFd>>,
}

impl Ready {
    /// Makes the first lane of a spawner.
    ///
    /// # Errors
    /// [`Error::Launch`] when the runtime cannot watch its socket.
    pub fn first(launched: Launched) -> Result<Self> {
        let Launched { pidfd, socket } = launched;
        let command = || "the socket of the spawner".into();
        let socket =
            watch(socket).map_err(|source| Error::Launch { command: command(), source })?;
        Ok(Self { lane: 0, pidfd, socket })
    }
}

/// Makes a socket non-blocking and registers it with the runtime.
pub(crate) fn watch(socket: OwnedFd) -> io::Result<Arc<AsyncFd<OwnedFd>>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    #[expect(deprecated, reason = "it is unsound for types whose descriptor may change")]
    let socket = AsyncFd::new(socket)?;
    Ok(Arc::new(socket))
}

/// Waits until a lane reports that it is ready.
pub(crate) async fn wait_for(lane: u32, socket: OwnedFd) -> io::Result<Ready> {
    let socket = watch(socket)?;
    let mut buffer = [0; 4096];
    let received = socket.async_io(tokio::io::Interest::READABLE, |socket| {
        packet::receive(socket.as_fd(), &mut buffer)
    });
    let (pidfd, _) = ready(&received.await?, &buffer)?.map_err(io::Error::other)?;
    Ok(Ready { lane, pidfd, socket })
}

/// A lane's process, and the init process that ends after the last lane ([`SetupDone`]).
pub(crate) type Processes = (OwnedFd, Option<OwnedFd>);

/// Decodes the first packet of a lane: its processes if it is ready, else the reason.
pub(crate) fn ready(
    packet: &packet::Packet,
    buffer: &[u8],
) -> io::Result<std::result::Result<Processes, String>> {
    if packet.length == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended immediately"));
    }
    let SetupDone(outcome) = serde_json::from_slice(&buffer[..packet.length])?;
    match (outcome, packet.fds.first()) {
        (Err(reason), _) => Ok(Err(reason)),
        (Ok(()), Some(pidfd)) => {
            let init = packet.fds.get(1).map(OwnedFd::try_clone).transpose()?;
            Ok(Ok((pidfd.try_clone()?, init)))
        }
        (Ok(()), None) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Starts a task that reads the messages of a lane until the lane ends; returns the lane's
/// registry.
pub(crate) fn start_reading(
    ready: Ready,
    run_dir: Arc<RunDir>,
    lanes: Weak<Lanes>,
) -> Arc<Registry> {
    let Ready { lane, pidfd, socket } = ready;
    let registry = Registry::new((lane, pid_of(&pidfd)), socket.clone(), &run_dir);
    let known = Arc::downgrade(&registry);
    tokio::spawn(async move {
        read(&socket, &known).await;
        if let Some(registry) = known.upgrade() {
            registry.mark_lost();
        }
        if let Some(lanes) = lanes.upgrade() {
            lanes.lost();
        }
        // Reaping and cleaning block for a moment.
        let buried =
            tokio::task::spawn_blocking(move || reap_and_clean(&pidfd, lane, run_dir)).await;
        if let Ok(Err(error)) = buried {
            tracing::warn!(%error, lane, "the remains of a spawner lane could not be removed");
        }
        if let Some(lanes) = lanes.upgrade() {
            lanes.forget(lane);
        }
        if let Some(registry) = known.upgrade() {
            registry.is_gone();
        }
    });
    registry
}

async fn read(socket: &AsyncFd<OwnedFd>, registry: &Weak<Registry>) {
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

/// The id of a process that is not reaped yet; 0 where the kernel does not report it.
pub(crate) fn pid_of(pidfd: &OwnedFd) -> u32 {
    let file = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}

/// Reaps a lane and removes its remains. After the last lane, removes everything if the platform
/// has ended.
fn reap_and_clean(pidfd: &OwnedFd, lane: u32, run_dir: Arc<RunDir>) -> Result<()> {
    reap(pidfd);
    let cleaned = run_dir.clean_lane(lane);
    cleaned.and(remove_if_last(run_dir))
}

/// Waits until a process has ended; kills it after 5 s.
pub(crate) fn reap(pidfd: &OwnedFd) {
    let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
    if !poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience)).is_ok_and(|n| n > 0) {
        // Fails only if it has ended in the meantime.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None);
    }
    // Until it is reaped, the init of its pid namespace cannot end. It is dead, but a debugger that
    // traces it comes first, so this may have to wait. Fails only for another process's child.
    let _ = retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED));
}

/// Ends the pid namespaces of spawners without lanes: when init has ended, its pid namespace is
/// empty.
pub(crate) fn end_inits(run_dir: &RunDir) {
    end_all(&run_dir.take_inits());
}

/// Ends processes and waits until they have ended. All are killed first, because the init of a pid
/// namespace ends after the others in it have been reaped.
pub(crate) fn end_all(processes: &[OwnedFd]) {
    for process in processes {
        // Fails only for one that has ended already.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    processes.iter().rev().for_each(reap);
}

/// Removes the run directory if this is its last user.
pub(crate) fn remove_if_last(run_dir: Arc<RunDir>) -> Result<()> {
    Arc::into_inner(run_dir).map_or(Ok(()), |run_dir| {
        end_inits(&run_dir);
        run_dir.clean()
    })
}
