//! The lease of a leader: the thread that keeps it alive, and what others of the process know of it.
//!
//! Invariant: while a process is sure that it leads, no other process does. Etcd ends a lease after
//! its time to live at the earliest, counted from when it got the last request to keep it; the
//! process counts from when it sent that request, and a little less. Two clocks are trusted for this:
//! that of the process also counts while the machine sleeps, but not while a hypervisor has paused it;
//! etcd does not keep leases as a leader that it was (3.4.31, 3.5.13 and later).

use std::sync::mpsc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use snowmelt_kernel::process::raise_scheduling_priority;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::channel::EtcdChannel;
use super::leases;
use super::settings::EtcdSettings;
use crate::{Error, LeaseId, Result};

/// The time to live of a leader's lease: the least that etcd gives with its usual times.
pub(super) const LEADER_TTL: Duration = Duration::from_secs(2);
/// The part of it by which the clocks of both may differ.
const CLOCK_MARGIN: Duration = Duration::from_millis(100);
/// Time between two requests to keep it alive.
const KEEP_EVERY: Duration = Duration::from_millis(400);
/// The most time for the answer to one of them: one to another server is then still in time.
const KEEP_TIMEOUT: Duration = Duration::from_millis(700);
/// The pause after one that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The most time that a request waits until etcd says who leads.
const SURE_TIMEOUT: Duration = Duration::from_secs(10);

/// The knowledge of a process whether it leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeadWatch {
    place: String,
    known: watch::Receiver<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Until when no other process leads, by the clock of [`now`].
    sure_until: Duration,
    has_ended: bool,
}

/// The end of the thread that keeps a lease, when it is dropped.
#[derive(Debug)]
pub(super) struct Keeping {
    _held: oneshot::Sender<()>,
}

/// The time since the machine has started, also while it sleeps.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl LeadWatch {
    /// Returns once it is sure that no other process leads, mostly at once. A process that was
    /// paused, or that etcd does not answer, is not sure.
    ///
    /// # Errors
    /// Another process leads, or etcd does not say for ten seconds who does.
    pub async fn sure(&self) -> Result<()> {
        if let Some(known) = self.look() {
            return known;
        }
        let mut watched = self.clone();
        let asked = async {
            loop {
                // Without a sender, the thread that kept the lease has ended.
                let Ok(()) = watched.known.changed().await else { return Err(Error::Deposed) };
                if let Some(known) = watched.look() {
                    return known;
                }
            }
        };
        timeout(SURE_TIMEOUT, asked).await.unwrap_or_else(|_| {
            let what = "it has not said for ten seconds that this control leads".to_owned();
            Err(Error::Unreachable { place: self.place.clone(), what })
        })
    }

    /// Whether it is sure now that no other process leads.
    pub fn is_sure(&self) -> bool {
        matches!(self.look(), Some(Ok(())))
    }

    /// Waits until etcd says that the lease has ended.
    pub(super) async fn ended(&self) {
        let mut known = self.known.clone();
        // An error is the end of the thread that keeps the lease: it leads no more either.
        let _ = known.wait_for(|known| known.has_ended).await;
    }

    fn look(&self) -> Option<Result<()>> {
        let known = *self.known.borrow();
        // Without a sender, the thread that kept the lease has ended.
        if known.has_ended || self.known.has_changed().is_err() {
            return Some(Err(Error::Deposed));
        }
        (now() < known.sure_until).then_some(Ok(()))
    }
}

/// Keeps a lease alive that was asked for at a time of [`now`]. An etcd that is down for a while,
/// with all its members, has kept the lease.
///
/// The thread and the connection are its own: a process that is busy, or waits for etcd, leads on.
pub(super) fn keep(
    settings: &EtcdSettings,
    lease: LeaseId,
    asked_at: Duration,
) -> Result<(LeadWatch, Keeping)> {
    let failed = |what: String| Error::Settings {
        what: format!("the thread that keeps the lead cannot be started: {what}"),
    };
    let known = watch::Sender::new(Known { sure_until: until(asked_at), has_ended: false });
    let watched = LeadWatch { place: settings.place(), known: known.subscribe() };
    let (held, released) = oneshot::channel();
    let mut lasting = Lasting { settings: settings.clone(), lease, known };
    let (started, starts) = mpsc::channel();
    let run = move || {
        if let Err(error) = raise_scheduling_priority() {
            tracing::debug!(%error, "the thread that keeps the lead runs without priority");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(error.to_string())),
        };
        drop(started);
        runtime.block_on(async {
            tokio::select! {
                () = lasting.keep() => {}
                // The process leads no more.
                _ = released => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("lead".to_owned()).spawn(run);
    thread.map_err(|error| failed(error.to_string()))?;
    match starts.recv() {
        Ok(what) => Err(failed(what)),
        Err(mpsc::RecvError) => Ok((watched, Keeping { _held: held })),
    }
}

fn until(asked_at: Duration) -> Duration {
    asked_at + LEADER_TTL.saturating_sub(CLOCK_MARGIN)
}

/// A lease that is kept alive.
struct Lasting {
    settings: EtcdSettings,
    lease: LeaseId,
    known: watch::Sender<Known>,
}

impl Lasting {
    /// Returns when the lease has ended.
    async fn keep(&mut self) {
        let mut was_kept = true;
        loop {
            let reason = match EtcdChannel::new(self.settings.clone()) {
                Ok(channel) => match self.keep_by(&channel, &mut was_kept).await {
                    None => break,
                    Some(reason) => reason,
                },
                Err(error) => error.to_string(),
            };
            if was_kept {
                tracing::warn!(reason, "the lease of the leader cannot be kept alive");
            }
            was_kept = false;
            // A server that hangs is asked last.
            self.settings.servers.rotate_left(1);
            sleep(PAUSE).await;
        }
        self.known.send_modify(|known| known.has_ended = true);
    }

    /// Keeps the lease alive until that fails: the reason is returned, or none if it has ended.
    async fn keep_by(&self, channel: &EtcdChannel, was_kept: &mut bool) -> Option<String> {
        loop {
            let asked_at = now();
            let keeping = leases::keep_alive(channel, self.lease.0.cast_signed());
            match timeout(KEEP_TIMEOUT, keeping).await {
                Ok(Ok(true)) => {
                    *was_kept = true;
                    self.known.send_modify(|known| known.sure_until = until(asked_at));
                }
                Ok(Ok(false)) => return None,
                Ok(Err(failure)) => return Some(failure.reason().to_owned()),
                Err(_) => return Some("etcd does not answer".to_owned()),
            }
            sleep(KEEP_EVERY).await;
        }
    }
}
