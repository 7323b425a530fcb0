//! The account: requests are granted at once, wait in the queue, or are refused.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::account::HostAccount;
use crate::{Amount, Capacity, NoRoom, Reservation, RoomFigures, RoomRequest, WaitingRequest};

/// The account of a host. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    account: Arc<HostAccount>,
}

impl Ledger {
    /// Makes an account without reservations.
    pub fn new(capacity: Capacity) -> Self {
        Self { account: Arc::new(HostAccount::new(capacity)) }
    }

    /// The capacity of the host.
    pub fn capacity(&self) -> Capacity {
        self.account.capacity
    }

    /// Reserves at once, if there is room and nobody waits.
    ///
    /// # Errors
    /// [`NoRoom`], which says what is taken by whom.
    pub fn try_reserve(&self, ask: &RoomRequest) -> Result<Reservation, NoRoom> {
        let mut state = self.account.lock();
        if state.how_many(ask.amount) == 0 {
            return Err(state.no_room(ask));
        }
        state.book(&ask.tenant, ask.use_, ask.amount);
        drop(state);
        Ok(Reservation::new(self.account.clone(), ask.clone()))
    }

    /// Reserves an amount as many times as there is room for now, and `most` times at most; nobody
    /// waits for the rest.
    pub fn try_reserve_up_to(&self, each: &RoomRequest, most: usize) -> Vec<Reservation> {
        let mut state = self.account.lock();
        let count = state.how_many(each.amount).min(most as u64);
        state.book(&each.tenant, each.use_, each.amount.times(count));
        drop(state);
        (0..count).map(|_| Reservation::new(self.account.clone(), each.clone())).collect()
    }

    /// Asks for room, and enters the queue at once. Dropping the request leaves the queue.
    ///
    /// # Errors
    /// [`NoRoom`] for a request above the capacity.
    pub fn wait(&self, ask: RoomRequest) -> Result<WaitingRequest, NoRoom> {
        self.enter(ask, false)
    }

    /// Asks for room that the caller can do without, and enters the queue at once: the request gets
    /// room that nobody else waits or asks for, and nothing is to be ended for it.
    ///
    /// # Errors
    /// [`NoRoom`] for a request above the capacity.
    pub fn wait_for_spare(&self, ask: RoomRequest) -> Result<WaitingRequest, NoRoom> {
        self.enter(ask, true)
    }

    fn enter(&self, ask: RoomRequest, is_spare: bool) -> Result<WaitingRequest, NoRoom> {
        let (sender, receiver) = oneshot::channel();
        let account = self.account.clone();
        let deliver = move |ask| {
            // One that was given up meanwhile is dropped, which gives it back.
            drop(sender.send(Reservation::new(account, ask)));
        };
        let number = self.account.enter(ask.clone(), is_spare, Box::new(deliver))?;
        Ok(WaitingRequest::new(self.account.clone(), ask, number, is_spare, receiver))
    }

    /// Reserves at once or waits in the queue.
    ///
    /// # Errors
    /// [`NoRoom`] at once for a request above the capacity, and at the deadline.
    pub async fn reserve(
        &self,
        ask: RoomRequest,
        deadline: Instant,
    ) -> Result<Reservation, NoRoom> {
        match self.try_reserve(&ask) {
            Ok(reservation) => Ok(reservation),
            Err(_) => self.wait(ask)?.until(deadline).await,
        }
    }

    /// Returns the capacity and the taken amounts, for a request that is given up.
    pub fn no_room(&self, ask: &RoomRequest) -> NoRoom {
        self.account.lock().no_room(ask)
    }

    /// Returns how many times an amount could be reserved now: 0 while somebody waits.
    pub fn how_many(&self, each: Amount) -> usize {
        usize::try_from(self.account.lock().how_many(each)).unwrap_or(usize::MAX)
    }

    /// Whether anybody waits for room that they cannot do without.
    pub fn is_wanted(&self) -> bool {
        self.account.is_wanted()
    }

    /// The reserved amounts, and the counts of how requests ended.
    pub fn figures(&self) -> RoomFigures {
        self.account.lock().figures()
    }
}
