//! A request in the queue.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::oneshot::Receiver;

use crate::{Ask, Ledger, NoRoom, Reservation};

/// A request that waits for room. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping it leaves the queue"]
pub struct Waiting {
    ledger: Ledger,
    ask: Ask,
    /// The number of the request, and whether it is in the queue of requests that can do without.
    place: (u64, bool),
    receiver: Receiver<Reservation>,
}

impl Waiting {
    pub(crate) fn new(
        ledger: Ledger,
        ask: Ask,
        place: (u64, bool),
        receiver: Receiver<Reservation>,
    ) -> Self {
        Self { ledger, ask, place, receiver }
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// [`NoRoom`] at the deadline.
    pub async fn until(mut self, deadline: Instant) -> Result<Reservation, NoRoom> {
        if let Ok(granted) = tokio::time::timeout_at(deadline.into(), &mut self).await {
            return granted;
        }
        if self.ledger.leave(&self.ask, self.place) {
            return Err(self.ledger.refuse(&self.ask));
        }
        // It was granted at the same moment, and is on its way.
        (&mut self).await
    }
}

impl Future for Waiting {
    type Output = Result<Reservation, NoRoom>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = std::task::ready!(Pin::new(&mut self.receiver).poll(context));
        // The queue drops no request that waits.
        Poll::Ready(granted.map_err(|_| self.ledger.refuse(&self.ask)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ledger.leave(&self.ask, self.place);
    }
}
