//! The part of netlink that job networks need: messages built in a buffer, and a socket that sends
//! many of them in one call.
//!
//! No crate is used because job networks need only a few fixed messages, sent in one call and
//! answered synchronously; the crates for netlink are asynchronous and take one message at a time.
//! A socket belongs to the namespace in which it was opened, even when used from another: so a
//! namespace is entered once.

mod constants;
mod message;
mod socket;

pub use constants::*;
pub use message::{Attributes, Batch, Parsed};
pub use socket::{BatchFailure, Socket};
