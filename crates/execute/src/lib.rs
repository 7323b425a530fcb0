//! The execution of queries: what runs in a worker, and in the driver's part of a plan. Built on
//! DataFusion.
//!
//! A worker receives a plan, decodes it, replaces the operators for which there are better ones,
//! runs its partitions, and writes their rows for tasks of other stages or posts them to the driver.
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `error` | the errors of a query, and reports of failures |
//! | `process` | panics of readers of damaged bytes, processor time |
//! | `tree`, `context` | plans as trees of operators, and the settings with which they run |
//! | `scan` | Parquet files and their sources: granted files, object storage, servers of HTTP |
//! | `sql_semantics` | functions and rules that give SQL's answers where DataFusion gives others |
//! | `sql_functions` | functions of DuckDB and PostgreSQL that DataFusion lacks |
//! | `read` | CSV, JSON, Arrow and sheets |
//! | `sort_keys` | keys of several columns as bytes |
//! | `exchange` | rows between the stages of a query |
//! | `udf` | calls of the user's functions |
//! | `codec` | plans as bytes |
//! | `operators`, `operator_text` | operators that need less processor time, and the text of operators |
//! | `worker` | a task, from its connection to its last frame |
//!
//! Boundary: nothing here parses SQL or decides how a query is divided. Code in a worker opens no
//! path: it reads granted descriptors and the stores that its task names.

pub mod codec;
pub mod context;
mod error;
pub mod exchange;
pub mod operator_text;
pub mod operators;
pub mod process;
pub mod read;
pub mod scan;
pub mod sort_keys;
pub mod sql_functions;
pub mod sql_semantics;
pub mod tree;
pub mod udf;
pub mod worker;

pub use error::{Error, fault};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
