//! The process of a function or daemon as the node sees it, whatever it runs: its limits, its
//! connection, its output and its end.
//!
//! | part | file |
//! |---|---|
//! | the limits of an instance | `limits` |
//! | the connection to an instance | `readable_stream` |
//! | output, bounded and without secrets | `log` |
//! | the values of secrets | `secrets` |
//! | the error that a user reads when it has ended | `end` |
//! | the processes of daemons, which work for the node | `daemon` |
//!
//! Invariant: what a process prints or sends is bounded before it is kept.

pub(crate) mod daemon;
pub(crate) mod end;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod readable_stream;
pub(crate) mod secrets;
