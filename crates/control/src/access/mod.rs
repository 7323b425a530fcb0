//! Access to a platform: who asks, what that user may open, and what a client is not shown.
//!
//! | part | file |
//! |---|---|
//! | the user and the tenant of a request | `identity` |
//! | tokens of clients on other hosts | `tokens` |
//! | modes of the state folder, its files and the socket | `permissions` |
//! | secrets of functions, read where references lead | `secrets` |
//! | removal of paths from errors | `redaction` |
//!
//! Invariant: the rights of a request come from its connection and from files of the platform. What
//! a request says of its tenant is checked against them, and never adds a right.

pub(crate) mod identity;
pub mod permissions;
pub(crate) mod redaction;
pub(crate) mod secrets;
pub mod tokens;
