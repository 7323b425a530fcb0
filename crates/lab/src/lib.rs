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
//!
//! Rooms and files use those above them in this table only:
//!
//! | room or file | owns |
//! |---|---|
//! | `parameters` | the parameters of a lab: hosts, services, links |
//! | `error` | errors |
//! | `folder` | the files of a lab |
//! | `namespace` | network namespaces that are kept in the folder |
//! | `process` | processes in the namespaces |
//! | `members` | hosts and services |
//! | `lab` | a running lab: its members and their states |
//! | `network` | the bridge, and the links of members |
//! | `faults` | how faults of members begin and end |
//! | `standby` | hosts that are started and ended while the lab runs |
//! | `life` | creation and removal of a lab |

mod error;
mod faults;
mod folder;
mod lab;
mod life;
mod members;
mod namespace;
mod network;
mod parameters;
mod process;
mod standby;

pub use error::Error;
pub use folder::Roots;
pub use lab::{Lab, State};
pub use members::{Address, Fault, LabHost, LabMember, LabProgram, Machine, Provider, Service};
pub use parameters::{
    BitRate, LabLink, LabPlan, MAX_HOSTS, ParseRateError, PoolPlan, ServiceKind, ServicePlan,
};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
