//! The dialogue with the person or program that started the command.
//!
//! | member | job |
//! |---|---|
//! | `text` | amounts and times as text; untrusted text without control sequences |
//! | `failure` | the failure of a command, with its exit code |
//! | `printer` | messages on stderr, and data on stdout |
//! | `progress` | the progress display on stderr |
//! | `signals` | cancellation by Ctrl-C, SIGTERM and SIGHUP |
//! | `keys` | single keys from a terminal |
//!
//! Boundary: what is shown is decided elsewhere; results of queries are written by `output`.

mod failure;
mod keys;
pub mod printer;
mod progress;
mod signals;
pub mod text;

pub use failure::{CommandFailure, CommandOutcome};
pub use keys::KeyPresses;
pub use printer::Printer;
pub use progress::ProgressDisplay;
pub use signals::Signals;
