//! Tasks of a query on other hosts: the messages between control and agents, outputs that a task
//! reads from other hosts, and streams between tasks on different hosts. The module also has the
//! instances that clients of control lease on other hosts.
//!
//! All of it goes over connections that leave HTTP ([`snowmelt_rpc::upgrade`]), at the address
//! where the agent listens already and with the token of the cluster:
//!
//! | request | who | what then goes over the connection |
//! |---|---|---|
//! | `GET /v1/queries/session` | control, once for each query and host | `OpenQuery`, then requests and replies |
//! | `GET /v1/queries/tasks` | control, for each attempt of a task | `StartTask` and the plan, whether there is room, then the frames of the worker |
//! | `GET /v1/queries/outputs` | the host of a task that reads outputs | `ReadOutputs`, then ranges of them |
//! | `GET /v1/queries/streams` | the host of a task that streams, for each task on another host that receives | `OpenStream`, then the bytes of the stream |
//! | `GET /v1/leases` | control, for each instance that is leased | see [`leases`] |
//!
//! Invariant: a host ends the tasks of a query, and removes their outputs, when the connection of
//! its session ends, for whatever reason.

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod gang_part;
pub(crate) mod grants;
pub(crate) mod hosted_queries;
pub mod leases;
pub(crate) mod pass_on;
pub(crate) mod reading;
pub mod routes;
pub(crate) mod session;
pub(crate) mod starting;
pub(crate) mod streams;
mod tasks;
