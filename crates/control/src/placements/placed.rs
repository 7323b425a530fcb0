//! A call that has a host.

use std::sync::Arc;

use snowmelt_schedule::{Call, Ticket};
use snowmelt_types::ErrorReport;
use tokio::sync::oneshot;

use super::{Placements, Whose};
use crate::hosts::Host;

/// The host of a call, until the call is over. Dropping it says so.
#[derive(Debug)]
pub(crate) struct Placed {
    pub host: Arc<Host>,
    placements: Placements,
    /// None on a platform of one host.
    ticket: Option<Ticket>,
    left: Left,
}

/// What is known of the instances that the host has of the function afterwards.
#[derive(Clone, Copy, Debug)]
enum Left {
    Unknown,
    /// The host has said how many.
    Count(u32),
    /// That of the call has ended.
    OneLess,
}

impl Placed {
    pub(super) fn new(placements: Placements, host: Arc<Host>, ticket: Ticket) -> Self {
        Self { host, placements, ticket: Some(ticket), left: Left::Unknown }
    }

    pub(super) fn alone(placements: Placements, host: Arc<Host>) -> Self {
        Self { host, placements, ticket: None, left: Left::Unknown }
    }

    /// Whether no other host could have been taken, so that the call waits for room on this one.
    pub fn is_alone(&self) -> bool {
        self.ticket.is_none()
    }

    /// The host has so many instances of the function now.
    pub fn has_instances(&mut self, count: u32) {
        self.left = Left::Count(count);
    }

    /// Its instance has ended, and the host did not say how many others it has.
    pub fn has_one_less(&mut self) {
        self.left = Left::OneLess;
    }

    /// The host has no room for it after all, or cannot be reached, and has not run it: waits for
    /// another one.
    pub async fn refused(mut self, call: &Call, whose: Whose<'_>) -> Result<Self, ErrorReport> {
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

impl Drop for Placed {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        match self.left {
            Left::Unknown => self.placements.is_over(ticket, None),
            Left::Count(count) => self.placements.is_over(ticket, Some(count)),
            Left::OneLess => self.placements.is_over_with_instance(ticket),
        }
    }
}
