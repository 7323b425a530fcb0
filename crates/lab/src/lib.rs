//! A cluster on one machine: hosts as network namespaces, connected by a bridge with shaped links,
//! each running the real `snowmelt node`; a registry and an S3 server beside them; faults on
//! demand.
//!
//! [`Lab`] creates, opens and removes a lab. The machine's own network is not touched: the bridge
//! is in a namespace of its own.
//!
//! Invariant: the folder of a lab describes it completely. Its namespaces are mounted there, and
//! all processes in them belong to the lab: so any process can end a lab, even if the one that
//! created it has crashed.

mod clock;
mod corrupt;
mod device;
mod disk;
mod error;
mod fault;
mod folder;
mod host;
mod injection;
mod kind;
mod lab;
mod life;
mod machine;
mod member;
mod namespace;
mod plan;
mod process;
mod rate;
mod service;
mod shape;
mod standby;
mod wiring;

pub use error::Error;
pub use fault::Fault;
pub use folder::Roots;
pub use host::{Address, Host, Program, Provider};
pub use kind::Kind;
pub use lab::{Lab, State};
pub use machine::Machine;
pub use member::Member;
pub use plan::{MAX_HOSTS, Plan, PoolPlan, ServicePlan};
pub use rate::{BitRate, Link, ParseRateError};
pub use service::Service;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
