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

pub(crate) use attempts::{Ended, Entry, How, Live, Run, Shared, finish};
pub(crate) use progress::ProgressTracker;
pub(crate) use records::{Counts, Done, Finished, Records};
