//! A request in the queue.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::oneshot::Receiver;

use crate::account::HostAccount;
use crate::{NoRoom, Reservation, RoomRequest};

/// A request that waits for room. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping it leaves the queue"]
pub struct WaitingRequest {
    account: Arc<HostAccount>,
    ask: RoomRequest,
    /// The number of the request in its queue.
    number: u64,
    /// Whether the request is in the queue of those that can do without.
    is_spare: bool,
    receiver: Receiver<Reservation>,
}

impl WaitingRequest {
    pub(crate) fn new(
        account: Arc<HostAccount>,
        ask: RoomRequest,
        number: u64,
        is_spare: bool,
        receiver: Receiver<Reservation>,
    ) -> Self {
        Self { account, ask, number, is_spare, receiver }
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// [`NoRoom`] at the deadline.
    pub async fn until(mut self, deadline: Instant) -> Result<Reservation, NoRoom> {
        if let Ok(granted) = tokio::time::timeout_at(deadline.into(), &mut self).await {
            return granted;
        }
        if self.account.leave(&self.ask, self.number, self.is_spare) {
            return Err(self.account.refuse(&self.ask));
        }
        // It was granted at the same moment, and is on its way.
        (&mut self).await
    }
}

impl Future for WaitingRequest {
    type Output = Result<Reservation, NoRoom>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = std::task::ready!(Pin::new(&mut self.receiver).poll(context));
        // The queue drops no request that waits.
        Poll::Ready(granted.map_err(|_| self.account.refuse(&self.ask)))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.account.leave(&self.ask, self.number, self.is_spare);
    }
}
