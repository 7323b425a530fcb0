//! Netlink as far as job networks need it: messages put together in a buffer, and a socket that
//! sends many of them at once.
//!
//! Of our own because all that is needed is a few fixed messages, sent in one call and answered
//! at once; the crates for netlink are asynchronous and take one message at a time. A socket
//! belongs for ever to the namespace in which it was opened, whoever uses it from where: so a
//! namespace is entered once.

mod constants;
mod message;
mod socket;

pub use constants::*;
pub use message::{Attributes, Batch, Parsed};
pub use socket::{Failed, Socket};
