//! Attempts of tasks, and what is kept of them.
//!
//! | member | owns |
//! |---|---|
//! | `attempts` | runs an attempt and checks its results |
//! | `progress` | the progress of all tasks, for the user |
//! | `records` | records for the profile |

mod attempts;
mod progress;
mod records;

pub(crate) use attempts::{AttemptEnd, AttemptRun, How, Live, QueryContext, TaskAttempts, finish};
pub(crate) use progress::ProgressTracker;
pub(crate) use records::{AttemptCounts, Finished, SharedRecords, TaskRecords};
