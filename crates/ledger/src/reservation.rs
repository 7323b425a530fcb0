//! A part of a host's resources that somebody has, until it is dropped.

use std::sync::Arc;

use crate::account::HostAccount;
use crate::{Amount, RoomRequest, Use};

/// A part of a host's resources. Dropping it gives it back, and waiting requests may be granted.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub struct Reservation {
    account: Arc<HostAccount>,
    ask: RoomRequest,
}

impl Reservation {
    /// Makes a reservation for an amount that was booked already.
    pub(crate) fn new(account: Arc<HostAccount>, ask: RoomRequest) -> Self {
        Self { account, ask }
    }

    /// The reserved amount.
    pub fn amount(&self) -> Amount {
        self.ask.amount
    }

    /// The use of the reservation.
    pub fn use_(&self) -> Use {
        self.ask.use_
    }

    /// Splits off a part, which may be for another use. Splits off everything if the reservation
    /// has no more.
    pub fn take(&mut self, amount: Amount, use_: Use) -> Self {
        let amount = amount.min(self.ask.amount);
        self.ask.amount -= amount;
        let part = RoomRequest { tenant: self.ask.tenant.clone(), use_: self.ask.use_, amount };
        let other = RoomRequest { use_, ..part.clone() };
        if use_ != part.use_ {
            self.account.rebook(&part, &other);
        }
        Self { account: self.account.clone(), ask: other }
    }

    /// Splits the reservation into equal parts, each of which is given back by itself; the first
    /// has the remainder.
    pub fn split(mut self, count: usize) -> Vec<Self> {
        let whole = std::mem::take(&mut self.ask.amount);
        let part = |index| {
            let amount = whole.part(index, count as u64);
            Self { account: self.account.clone(), ask: RoomRequest { amount, ..self.ask.clone() } }
        };
        if count == 0 {
            self.ask.amount = whole;
            return Vec::new();
        }
        (0..count as u64).map(part).collect()
    }

    /// Sets the reservation to the amount that its sandbox was measured to have. The amount is
    /// recorded even above the capacity, because it is in use already: only further requests are
    /// refused.
    pub fn resize(&mut self, amount: Amount) {
        if amount != self.ask.amount {
            let now = RoomRequest { amount, ..self.ask.clone() };
            self.account.rebook(&self.ask, &now);
            self.ask = now;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.give_back(&self.ask);
    }
}
