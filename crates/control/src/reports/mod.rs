//! Reports of what happens: events for clients, metrics for operators.
//!
//! | member | job |
//! |---|---|
//! | `events` | events of a query on their way to its client |
//! | `output` | the beginning of what functions print, for their callers |
//! | `calls` | counts of calls by how they end |
//! | `durations` | how long calls and queries took |
//! | `audit` | who did what, in lines that show what was changed |
//! | `metrics` | the metrics of a platform as text |
//!
//! Boundary: nothing here decides or runs anything.

pub(crate) mod audit;
mod calls;
mod durations;
mod events;
pub(crate) mod metrics;
pub(crate) mod output;

pub(crate) use calls::{CallCounters, CallGuard, label};
pub(crate) use durations::{DROPPED, Durations, SUCCEEDED};
pub(crate) use events::{EventReporter, Events, encoded};
pub(crate) use metrics::Times;
pub(crate) use output::beginning;
