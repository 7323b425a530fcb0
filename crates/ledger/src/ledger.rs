//! The account: requests are granted at once, wait in the queue, or are refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::state::State;
use crate::{Amount, Ask, Capacity, Figures, NoRoom, Reservation, Waiting};

/// The account of a host. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    capacity: Capacity,
    // Held for a change of the account only. Nothing is sent or dropped under it: the receiver of a
    // reservation may be gone, and then the reservation is given back, which needs the lock.
    state: Mutex<State>,
    // The length of the queue of those who cannot do without, to be read without the lock.
    waiting: AtomicUsize,
}

impl Ledger {
    /// Makes an account without reservations.
    pub fn new(capacity: Capacity) -> Self {
        let (state, waiting) = (Mutex::new(State::new(capacity)), AtomicUsize::new(0));
        Self { inner: Arc::new(Inner { capacity, state, waiting }) }
    }

    /// The capacity of the host.
    pub fn capacity(&self) -> Capacity {
        self.inner.capacity
    }

    /// Reserves at once, if there is room and nobody waits.
    ///
    /// # Errors
    /// [`NoRoom`], which says what is taken by whom.
    pub fn try_reserve(&self, ask: &Ask) -> Result<Reservation, NoRoom> {
        let mut state = self.lock();
        if state.how_many(ask.amount) == 0 {
            return Err(state.no_room(ask));
        }
        state.book(&ask.tenant, ask.use_, ask.amount);
        drop(state);
        Ok(Reservation::new(self, ask.clone()))
    }

    /// Reserves an amount as many times as there is room for now, and `most` times at most; nobody
    /// waits for the rest.
    pub fn try_reserve_up_to(&self, each: &Ask, most: usize) -> Vec<Reservation> {
        let mut state = self.lock();
        let count = state.how_many(each.amount).min(most as u64);
        state.book(&each.tenant, each.use_, each.amount.times(count));
        drop(state);
        (0..count).map(|_| Reservation::new(self, each.clone())).collect()
    }

    /// Asks for room, and enters the queue at once. Dropping the request leaves the queue.
    ///
    /// # Errors
    /// [`NoRoom`] for a request above the capacity.
    pub fn wait(&self, ask: Ask) -> Result<Waiting, NoRoom> {
        self.enter(ask, false)
    }

    /// Asks for room that the caller can do without, and enters the queue at once: the request gets
    /// room that nobody else waits or asks for, and nothing is to be ended for it.
    ///
    /// # Errors
    /// [`NoRoom`] for a request above the capacity.
    pub fn wait_for_spare(&self, ask: Ask) -> Result<Waiting, NoRoom> {
        self.enter(ask, true)
    }

    fn enter(&self, ask: Ask, is_spare: bool) -> Result<Waiting, NoRoom> {
        let mut state = self.lock();
        if !self.inner.capacity.holds(ask.amount) {
            return Err(state.refuse(&ask));
        }
        let (sender, receiver) = oneshot::channel();
        let queue = if is_spare { &mut state.spare } else { &mut state.queue };
        let number = queue.push(ask.clone(), sender);
        self.grant(state);
        Ok(Waiting::new(self.clone(), ask, (number, is_spare), receiver))
    }

    /// Reserves at once or waits in the queue.
    ///
    /// # Errors
    /// [`NoRoom`] at once for a request above the capacity, and at the deadline.
    pub async fn reserve(&self, ask: Ask, deadline: Instant) -> Result<Reservation, NoRoom> {
        match self.try_reserve(&ask) {
            Ok(reservation) => Ok(reservation),
            Err(_) => self.wait(ask)?.until(deadline).await,
        }
    }

    /// Returns the capacity and the taken amounts, for a request that is given up.
    pub fn no_room(&self, ask: &Ask) -> NoRoom {
        self.lock().no_room(ask)
    }

    /// Returns how many times an amount could be reserved now: 0 while somebody waits.
    pub fn how_many(&self, each: Amount) -> usize {
        usize::try_from(self.lock().how_many(each)).unwrap_or(usize::MAX)
    }

    /// Whether anybody waits for room that they cannot do without.
    pub fn is_wanted(&self) -> bool {
        self.inner.waiting.load(Ordering::SeqCst) > 0
    }

    /// The reserved amounts, and the counts of how requests ended.
    pub fn figures(&self) -> Figures {
        self.lock().figures()
    }

    pub(crate) fn refuse(&self, ask: &Ask) -> NoRoom {
        self.lock().refuse(ask)
    }

    /// Removes a request from the queue. Returns false if it was granted already. The next request
    /// may have room now.
    pub(crate) fn leave(&self, ask: &Ask, (number, is_spare): (u64, bool)) -> bool {
        let mut state = self.lock();
        let queue = if is_spare { &mut state.spare } else { &mut state.queue };
        let is_removed = queue.remove(ask, number);
        self.grant(state);
        is_removed
    }

    /// Changes the booked amount of a reservation.
    pub(crate) fn rebook(&self, (before, now): (&Ask, &Ask)) {
        let mut state = self.lock();
        state.unbook(&before.tenant, before.use_, before.amount);
        state.book(&now.tenant, now.use_, now.amount);
        self.grant(state);
    }

    /// Takes a reservation that has ended off the account.
    pub(crate) fn give_back(&self, ask: &Ask) {
        if ask.amount == Amount::default() {
            return;
        }
        let mut state = self.lock();
        state.unbook(&ask.tenant, ask.use_, ask.amount);
        self.grant(state);
    }

    /// Grants the requests that have room now, outside the lock.
    fn grant(&self, mut state: MutexGuard<'_, State>) {
        let granted = state.grant();
        self.inner.waiting.store(state.queue.len(), Ordering::SeqCst);
        drop(state);
        for waiter in granted {
            // One that was given up meanwhile is dropped, which gives it back.
            drop(waiter.sender.send(Reservation::new(self, waiter.ask)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so what it guards is whole.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
