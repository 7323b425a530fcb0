//! The state of the account: reservations, their tenants, and the order of requests. Pure data: the
//! caller holds the lock.

use std::collections::BTreeMap;

use snowmelt_types::Tenant;

use crate::queue::{Line, Queue, RoomWaiter};
use crate::{Amount, Capacity, NoRoom, RoomFigures, RoomRequest, TakenAmount, Use};

/// The reservations of a tenant, by use.
type Uses = [Amount; Use::ALL.len()];

#[derive(Debug)]
pub(crate) struct State {
    capacity: Capacity,
    reserved: Amount,
    /// Tenants that have a reservation.
    tenants: BTreeMap<Tenant, Uses>,
    pub queue: Queue,
    /// The requests that can do without: they get room that nobody in the queue waits for.
    pub spare: Queue,
    refused: u64,
    waited: u64,
}

impl State {
    pub fn new(capacity: Capacity) -> Self {
        let reserved = Amount::default();
        let tenants = BTreeMap::new();
        let queue = Queue::default();
        let spare = Queue::default();
        Self { capacity, reserved, tenants, queue, spare, refused: 0, waited: 0 }
    }

    /// Returns how many times an amount can be reserved now: 0 while others wait in the queue, as
    /// nobody overtakes them.
    pub fn how_many(&self, each: Amount) -> u64 {
        match self.queue.len() {
            0 => self.capacity.how_many(each, self.reserved),
            _ => 0,
        }
    }

    /// Books a reservation, whatever room is left.
    pub fn book(&mut self, tenant: &Tenant, use_: Use, amount: Amount) {
        if amount == Amount::default() {
            return;
        }
        self.reserved += amount;
        self.tenants.entry(tenant.clone()).or_default()[use_ as usize] += amount;
    }

    /// Takes a part of a reservation, or all of it, off the account.
    pub fn unbook(&mut self, tenant: &Tenant, use_: Use, amount: Amount) {
        self.reserved -= amount;
        let Some(uses) = self.tenants.get_mut(tenant) else { return };
        uses[use_ as usize] -= amount;
        if uses.iter().all(|amount| *amount == Amount::default()) {
            self.tenants.remove(tenant);
        }
    }

    /// Removes the requests that have room now from the queues, and books them.
    pub fn grant(&mut self) -> Vec<RoomWaiter> {
        let mut granted = Vec::new();
        while let Some(next) = self.next() {
            if !self.capacity.holds(self.reserved + next.amount) {
                break;
            }
            let next = next.clone();
            let from = if self.queue.len() > 0 { &mut self.queue } else { &mut self.spare };
            let Some(waiter) = from.pop(&next) else { break };
            self.book(&next.tenant, waiter.ask.use_, waiter.ask.amount);
            self.waited += 1;
            granted.push(waiter);
        }
        granted
    }

    fn next(&self) -> Option<&RoomRequest> {
        let share = |tenant: &Tenant| self.share(tenant, |_| true);
        let of_line = |tenant: &Tenant, line| self.share(tenant, |use_| Line::of(use_) == line);
        self.queue.next(share, of_line).or_else(|| self.spare.next(share, of_line))
    }

    /// Counts a request that is refused, and returns the reason.
    pub fn refuse(&mut self, ask: &RoomRequest) -> NoRoom {
        self.refused += 1;
        self.no_room(ask)
    }

    /// Returns the capacity and the taken amounts, for the refusal of a request.
    pub fn no_room(&self, ask: &RoomRequest) -> NoRoom {
        let all = self.tenants.iter().flat_map(|(tenant, uses)| {
            let named = Use::ALL.into_iter().zip(uses);
            let some = named.filter(|(_, amount)| **amount != Amount::default());
            some.map(|(use_, amount)| TakenAmount { tenant: tenant.clone(), use_, amount: *amount })
        });
        let mut taken: Vec<TakenAmount> = all.collect();
        let share = |taken: &TakenAmount| self.capacity.share(taken.amount);
        taken.sort_by(|a, b| share(b).total_cmp(&share(a)));
        NoRoom { ask: ask.clone(), capacity: self.capacity, taken }
    }

    pub fn figures(&self) -> RoomFigures {
        let of = |use_: Use| {
            self.tenants.values().fold(Amount::default(), |sum, uses| sum + uses[use_ as usize])
        };
        let uses = Use::ALL.into_iter().map(|use_| (use_, of(use_)));
        RoomFigures {
            capacity: self.capacity,
            reserved: self.reserved,
            uses: uses.filter(|(_, amount)| *amount != Amount::default()).collect(),
            waiting: (self.queue.len() + self.spare.len()) as u64,
            refused: self.refused,
            waited: self.waited,
        }
    }

    /// The dominant share of a tenant, from 0 to 1, over some uses.
    fn share(&self, tenant: &Tenant, counts: impl Fn(Use) -> bool) -> f64 {
        let Some(uses) = self.tenants.get(tenant) else { return 0.0 };
        let named = Use::ALL.into_iter().zip(uses).filter(|(use_, _)| counts(*use_));
        self.capacity.share(named.fold(Amount::default(), |sum, (_, one)| sum + *one))
    }
}
