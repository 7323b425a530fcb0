//! The hosts of bursts: all ranks get them at the same time, or wait for them in the queue of
//! calls.
//!
//! Invariant: whoever was given hosts holds them until the burst is over. Dropping a wait leaves
//! the queue.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_schedule::{GangDemand, GangRanks, GangRoom, Ticket};
use snowmelt_types::HostName;
use tokio::sync::oneshot;

use super::{Decided, Placements};
use crate::cluster::hosts::{BEAT, ClusterHost};

/// The hosts of a burst, until it is over. Dropping it says so.
#[derive(Debug)]
pub(crate) struct PlacedGang {
    placements: Placements,
    ticket: Ticket,
}

/// Why a burst has no hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoHosts {
    /// How long the burst has waited; `None` if there will never be room.
    pub waited: Option<Duration>,
    pub room: GangRoom,
}

impl Placements {
    /// Waits for hosts for all ranks of a burst. `waits` is told each second how much is free.
    pub async fn place_gang(
        &self,
        gang: &Arc<GangDemand>,
        waits: impl Fn(GangRoom),
    ) -> Result<(PlacedGang, Vec<(Arc<ClusterHost>, u32)>), NoHosts> {
        // Hosts may have joined or been drained a moment ago, and nobody follows a host that is
        // alone.
        self.take_reports();
        let (sender, mut decided) = oneshot::channel();
        let wait = self.inner.burst_wait;
        let now = self.now();
        // One that does not wait is looked at once.
        let deadline = now.saturating_add(wait.max(Duration::from_nanos(1)));
        let placed = {
            let mut state = self.lock();
            let ticket = state.scheduler.ask_gang(Arc::clone(gang), now, deadline);
            state.waiting.insert(ticket, sender);
            state.decide(now);
            PlacedGang { placements: self.clone(), ticket }
        };
        loop {
            let left = deadline.saturating_sub(self.now());
            tokio::select! {
                decided = &mut decided => return match decided {
                    Ok(Decided::OnAll(hosts)) => Ok((placed, hosts)),
                    Ok(Decided::Refused) => Err(self.no_hosts(gang, None)),
                    _ => Err(self.no_hosts(gang, Some(wait))),
                },
                () = tokio::time::sleep(left.min(BEAT)) => {
                    let room = self.lock().scheduler.gang_room(gang);
                    waits(room);
                    self.take_reports();
                }
            }
        }
    }

    /// Counts a burst of an earlier control that still runs.
    pub fn runs_gang(&self, gang: GangDemand, parts: GangRanks) -> PlacedGang {
        let now = self.now();
        let ticket = self.lock().scheduler.runs_gang(Arc::new(gang), parts, now);
        PlacedGang { placements: self.clone(), ticket }
    }

    /// Returns whether a burst has ranks on a host.
    pub fn has_ranks(&self, host: &HostName) -> bool {
        self.lock().scheduler.has_ranks(host)
    }

    fn no_hosts(&self, gang: &GangDemand, waited: Option<Duration>) -> NoHosts {
        NoHosts { waited, room: self.lock().scheduler.gang_room(gang) }
    }
}

impl Drop for PlacedGang {
    fn drop(&mut self) {
        self.placements.is_over(self.ticket, None);
    }
}
