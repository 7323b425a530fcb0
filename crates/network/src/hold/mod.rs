//! What holds functions to their addresses: functions of a job share a namespace in which all
//! their addresses are local, so somebody has to see that each uses its own only (Particle 3.2).
//!
//! The rules, the same whoever applies them:
//!
//! - To bind the wildcard or the loopback address is to bind one's own. `localhost` is a
//!   function's own address, so what listens there is reached by other functions of the job too.
//! - To bind the wildcard of IPv6 by a socket that takes IPv4 as well is to bind both of one's own
//!   addresses.
//! - To bind any other address fails with `EADDRNOTAVAIL`.
//! - What connects, sends or listens without having bound uses its own address.
//! - To connect or send to the wildcard or the loopback address is to do so to one's own.
//! - There are sockets of TCP and UDP and no others.
//!
//! [`groups`] applies them by programs in the kernel, on control groups of version 2; [`guard`] by
//! answering system calls, elsewhere.

mod connecting;
mod datagram;
mod dual;
mod groups;
mod guard;
mod message;
mod programs;
mod rules;
mod target;

pub use dual::Dual;
pub use groups::{Groups, try_programs};
pub use guard::Guard;
