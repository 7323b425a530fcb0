//! A part of a host that somebody has, until it is dropped.

use crate::{Amount, Ask, Ledger, Use};

/// A part of a host. Dropping it gives it back, and whoever waits may go on.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub struct Reservation {
    ledger: Ledger,
    ask: Ask,
}

impl Reservation {
    /// Of what was booked already.
    pub(crate) fn new(ledger: &Ledger, ask: Ask) -> Self {
        Self { ledger: ledger.clone(), ask }
    }

    /// How much it is.
    pub fn amount(&self) -> Amount {
        self.ask.amount
    }

    /// What it is for.
    pub fn use_(&self) -> Use {
        self.ask.use_
    }

    /// Splits off a part, which may be for another use; all of it if it has no more.
    pub fn take(&mut self, amount: Amount, use_: Use) -> Self {
        let amount = amount.min(self.ask.amount);
        self.ask.amount -= amount;
        let part = Ask { tenant: self.ask.tenant.clone(), use_: self.ask.use_, amount };
        let other = Ask { use_, ..part.clone() };
        if use_ != part.use_ {
            self.ledger.rebook((&part, &other));
        }
        Self { ledger: self.ledger.clone(), ask: other }
    }

    /// Splits it into equal parts, of which each is given back by itself; the first has the
    /// remainder.
    pub fn split(mut self, count: usize) -> Vec<Self> {
        let whole = std::mem::take(&mut self.ask.amount);
        let part = |index| {
            let amount = whole.part(index, count as u64);
            Self { ledger: self.ledger.clone(), ask: Ask { amount, ..self.ask.clone() } }
        };
        if count == 0 {
            self.ask.amount = whole;
            return Vec::new();
        }
        (0..count as u64).map(part).collect()
    }

    /// Sets it to what its sandbox was measured to have. That is recorded even above the capacity,
    /// because it is so already: only further requests are refused.
    pub fn resize(&mut self, amount: Amount) {
        if amount != self.ask.amount {
            let now = Ask { amount, ..self.ask.clone() };
            self.ledger.rebook((&self.ask, &now));
            self.ask = now;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ledger.give_back(&self.ask);
    }
}
