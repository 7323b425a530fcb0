//! A cluster on one machine: hosts as network namespaces, joined by a bridge with shaped links,
//! each running the real `snowmelt node`; faults on demand.
//!
//! [`Lab`] makes one, finds one that runs, and ends it. Nothing of the machine's own network is
//! touched: the bridge has a namespace of its own.
//!
//! Invariant: a lab is what its folder says. Its namespaces are mounted there, and whatever runs
//! in one of them is the lab's: so any process can end a lab, whoever made it and however that one
//! ended.

mod device;
mod error;
mod fault;
mod folder;
mod host;
mod lab;
mod namespace;
mod process;
mod rate;
mod shape;

pub use error::Error;
pub use fault::Fault;
pub use folder::Roots;
pub use host::{Address, Host, Program};
pub use lab::{Lab, MOST_HOSTS, Plan, State};
pub use rate::{BitRate, Link, ParseRateError};

/// What this crate's calls give.
pub type Result<T> = std::result::Result<T, Error>;
