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
    /// Instances of the function that the host has afterwards, if it said so.
    instances: Option<u32>,
}

impl Placed {
    pub(super) fn new(placements: Placements, host: Arc<Host>, ticket: Ticket) -> Self {
        Self { host, placements, ticket: Some(ticket), instances: None }
    }

    pub(super) fn alone(placements: Placements, host: Arc<Host>) -> Self {
        Self { host, placements, ticket: None, instances: None }
    }

    /// Whether no other host could have been taken, so that the call waits for room on this one.
    pub fn is_alone(&self) -> bool {
        self.ticket.is_none()
    }

    /// The host has so many instances of the function now.
    pub fn has_instances(&mut self, count: u32) {
        self.instances = Some(count);
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
        if let Some(ticket) = self.ticket {
            self.placements.is_over(ticket, self.instances);
        }
    }
}
