//! A call that has a host.

use std::sync::Arc;

use snowmelt_schedule::{CallDemand, Ticket};
use snowmelt_types::ErrorReport;
use tokio::sync::oneshot;

use super::{Placements, Whose};
use crate::cluster::hosts::ClusterHost;

/// The placement of a call on a host, until the call is over. Dropping it tells the scheduler.
#[derive(Debug)]
pub(crate) struct CallPlacement {
    pub host: Arc<ClusterHost>,
    placements: Placements,
    /// The ticket of the call in the scheduler; `None` on a platform of one host.
    ticket: Option<Ticket>,
    left: Left,
}

/// The knowledge of how many instances of the function are left on the host after the call.
#[derive(Clone, Copy, Debug)]
enum Left {
    Unknown,
    /// The number of instances that the host has reported.
    Count(u32),
    /// The instance of the call has ended: there is one less than before.
    OneLess,
}

impl CallPlacement {
    pub(super) fn new(placements: Placements, host: Arc<ClusterHost>, ticket: Ticket) -> Self {
        Self { host, placements, ticket: Some(ticket), left: Left::Unknown }
    }

    pub(super) fn alone(placements: Placements, host: Arc<ClusterHost>) -> Self {
        Self { host, placements, ticket: None, left: Left::Unknown }
    }

    /// Returns whether no other host could have been taken, so that the call waits for room on this
    /// one.
    pub fn is_alone(&self) -> bool {
        self.ticket.is_none()
    }

    /// Notes how many instances of the function the host has reported.
    pub fn has_instances(&mut self, count: u32) {
        self.left = Left::Count(count);
    }

    /// Notes that the call's instance has ended, and that the host did not say how many others it
    /// has.
    pub fn has_one_less(&mut self) {
        self.left = Left::OneLess;
    }

    /// Waits for another host, because this one has no room for the call after all, or cannot be
    /// reached, and has not run it.
    pub async fn refused(
        mut self,
        call: &CallDemand,
        whose: Whose<'_>,
    ) -> Result<Self, ErrorReport> {
        let placements = self.placements.clone();
        let Some(ticket) = self.ticket.take() else { return Ok(self) };
        let (sender, decided) = oneshot::channel();
        {
            let now = placements.now();
            let mut state = placements.lock();
            state.waiting.insert(ticket, sender);
            state.scheduler.refused(ticket, now);
            state.decide(now);
        }
        self.ticket = Some(ticket);
        placements.wait(self, decided, call, whose).await
    }
}

impl Drop for CallPlacement {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        match self.left {
            Left::Unknown => self.placements.is_over(ticket, None),
            Left::Count(count) => self.placements.is_over(ticket, Some(count)),
            Left::OneLess => self.placements.is_over_with_instance(ticket),
        }
    }
}
