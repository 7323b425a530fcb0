//! A physical plan in stages, each one program for several workers, and the part of the driver.
//!
//! | member | owns |
//! |---|---|
//! | `cut`, `cut_points` | the cut, and where a plan was cut already |
//! | `sendable` | operators that may run on workers |
//! | `streaming` | results that are read before their task is complete |
//! | `streams` | exchanges whose two stages run at the same time |
//! | `text` | plans as text |

mod cut;
mod cut_points;
mod sendable;
pub(crate) mod streaming;
pub(crate) mod streams;
mod text;

pub use cut::{Cut, Stage, StageOutput};
pub(crate) use cut::{Exchanges, cut};
pub(crate) use text::{driver_text, workers_text};
