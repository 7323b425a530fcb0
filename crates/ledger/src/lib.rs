//! The account of a host's memory, processor and instances: every start reserves first, and gives
//! back last.
//!
//! Boundary: amounts and tenants of reservations are decided above (`node`); nothing is started or
//! ended here.
//! Invariant: the reservations together never exceed the capacity, except where one was resized to
//! the amount that its sandbox was measured to have; each is given back exactly once, when it is
//! dropped.

mod account;
mod amount;
mod figures;
mod ledger;
mod no_room;
mod queue;
mod reservation;
mod room_request;
mod state;
mod waiting_request;

#[cfg(test)]
mod tests;

pub use amount::{Amount, Capacity};
pub use figures::RoomFigures;
pub use ledger::Ledger;
pub use no_room::{NoRoom, TakenAmount};
pub use reservation::Reservation;
pub use room_request::{RoomRequest, Use};
pub use waiting_request::WaitingRequest;
