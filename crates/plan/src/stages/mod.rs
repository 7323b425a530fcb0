//! A physical plan in stages, each one program for several workers, and the part of the driver.
//!
//! | member | owns |
//! |---|---|
//! | `cut`, `cut_points` | the cut, and where a plan was cut already |
//! | `worker_operators` | operators that may run on workers |
//! | `early_results` | results that are read before their task is complete |
//! | `streams` | exchanges whose two stages run at the same time |
//! | `text` | plans as text |

mod cut;
mod cut_points;
pub(crate) mod early_results;
pub(crate) mod streams;
mod text;
mod worker_operators;

pub use cut::{Cut, Stage, StageOutput};
pub(crate) use cut::{Exchanges, cut};
pub(crate) use text::{driver_text, workers_text};
