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
//! Invariant: a decision depends on the connection and on files of the platform, never on the body
//! of a request.

pub(crate) mod identity;
pub mod permissions;
pub(crate) mod redaction;
pub(crate) mod secrets;
pub mod tokens;
