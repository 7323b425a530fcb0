//! Users' functions in SQL: from code to a checked set of functions (`registration`), the
//! requirements of their instances (`instances`), and the calling side of their connections
//! (`client`, `aggregate`).
//!
//! This crate starts no sandbox and runs no user code. Source is parsed, never executed (`source`);
//! signatures and answers come from sandboxes and are checked before they are used.

mod aggregate;
mod call_error;
mod client;
mod connection;
mod error;
mod instances;
mod registration;
mod script_block;
mod signature;
mod source;
mod sql_type;

pub use aggregate::{AggregateClient, Groups, STATE_TYPE, group_field, state_schema};
pub use call_error::CallError;
pub use client::{Client, MAX_CALL_BYTES, MAX_CALL_ROWS};
pub use error::Error;
pub use instances::{BatchKind, NUMPY, PANDAS, PYARROW, with_runtime};
pub use registration::{Registration, required_python};
pub use signature::{MAX_ARGUMENTS, ParsedSignature, check_name};
pub use source::{SHARED_SETUP, Source, available, inspect_source};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
