//! The account of a host under its lock: bookings, and the requests that wait for room.
//!
//! Invariant: nothing is delivered under the lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::queue::Deliver;
use crate::state::State;
use crate::{Amount, Capacity, NoRoom, RoomRequest};

/// The account of a host, which its handle, its reservations and waiting requests share.
#[derive(Debug)]
pub(crate) struct HostAccount {
    /// The capacity of the host.
    pub capacity: Capacity,
    // Held for a change of the account only. Nothing is sent or dropped under it: the receiver of a
    // reservation may be gone, and then the reservation is given back, which needs the lock.
    state: Mutex<State>,
    // The length of the queue of those who cannot do without, to be read without the lock.
    waiting: AtomicUsize,
}

impl HostAccount {
    /// Makes an account without bookings.
    pub fn new(capacity: Capacity) -> Self {
        let state = Mutex::new(State::new(capacity));
        Self { capacity, state, waiting: AtomicUsize::new(0) }
    }

    /// Puts a request into the queue of those that can do without, or into the other. `deliver` is
    /// called once the request is granted. Returns the number of the request.
    ///
    /// # Errors
    /// [`NoRoom`] for a request above the capacity.
    pub fn enter(&self, ask: RoomRequest, is_spare: bool, deliver: Deliver) -> Result<u64, NoRoom> {
        let mut state = self.lock();
        if !self.capacity.holds(ask.amount) {
            return Err(state.refuse(&ask));
        }
        let queue = if is_spare { &mut state.spare } else { &mut state.queue };
        let number = queue.push(ask, deliver);
        self.grant(state);
        Ok(number)
    }

    /// Whether anybody waits for room that they cannot do without.
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Counts a request that is refused, and returns the reason.
    pub fn refuse(&self, ask: &RoomRequest) -> NoRoom {
        self.lock().refuse(ask)
    }

    /// Removes a request from the queue. Returns false if it was granted already. The next request
    /// may have room now.
    pub fn leave(&self, ask: &RoomRequest, number: u64, is_spare: bool) -> bool {
        let mut state = self.lock();
        let queue = if is_spare { &mut state.spare } else { &mut state.queue };
        let is_removed = queue.remove(ask, number);
        self.grant(state);
        is_removed
    }

    /// Changes the booked amount of a reservation.
    pub fn rebook(&self, before: &RoomRequest, now: &RoomRequest) {
        let mut state = self.lock();
        state.unbook(&before.tenant, before.use_, before.amount);
        state.book(&now.tenant, now.use_, now.amount);
        self.grant(state);
    }

    /// Takes a reservation that has ended off the account.
    pub fn give_back(&self, ask: &RoomRequest) {
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
        self.waiting.store(state.queue.len(), Ordering::SeqCst);
        drop(state);
        for waiter in granted {
            (waiter.deliver)(waiter.ask);
        }
    }

    /// Locks the state for a change or a look.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so what it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
