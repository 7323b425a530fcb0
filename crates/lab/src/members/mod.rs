//! The members of a lab: its hosts and services.
//!
//! | part | file |
//! |---|---|
//! | what both have: a namespace, an address, a link, a program | `machine` |
//! | hosts | `host` |
//! | the file system of a host's persistent data | `disk` |
//! | a registry and an S3 server | `service` |
//! | a host or a service | `member` |
//! | faults that members can have, and the record of them | `fault_kinds` |

pub(crate) mod disk;
pub(crate) mod fault_kinds;
mod host;
mod machine;
mod member;
pub(crate) mod service;

pub use fault_kinds::Fault;
pub(crate) use host::PORT;
pub use host::{Address, LabHost, LabProgram, Provider};
pub use machine::Machine;
pub(crate) use machine::PREFIX;
pub use member::LabMember;
pub(crate) use member::process_of;
pub use service::Service;
