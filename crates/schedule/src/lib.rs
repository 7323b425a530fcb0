//! The decision which host runs a call of a function, and when: a queue with deadlines that is fair
//! between tenants, and a choice of host by idle instances, free cores, free memory and what the
//! host holds already (FaaSNet 3.2 and 5). Gangs, whose ranks start together, and tasks of queries
//! wait in the same queue. The crate also decides when a function is taken back from a host on
//! which it is not called any more, and how many hosts a cluster has.
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `requests` | calls, gangs, tasks, and the queue |
//! | `hosts` | hosts and their orders, and the choice of one |
//! | `scheduler` | the state and its changes; the number of hosts |
//!
//! Boundary: decisions only. There is no I/O and no clock: the caller passes the time. Only a host
//! knows what it really has: it may refuse a call, which then waits again.
//! Invariants: a call is on one host at a time. By what is known, no host has more memory taken
//! than it has, nor more instances of a function than the policy allows. A call or gang that waits
//! runs, is refused or expires. A task that waits runs or is withdrawn.

#![forbid(unsafe_code)]

mod hosts;
mod requests;
mod scheduler;

#[cfg(test)]
mod tests;

pub use hosts::HostRoom;
pub use requests::{
    CallDemand, Decision, GangDemand, GangRanks, GangRoom, Reclaimed, STARVED_AFTER,
    SchedulerPolicy, TaskDemand, Ticket, Wish,
};
pub use scheduler::{PoolHost, PoolPolicy, PoolScaler, PoolStep, Scheduler};
