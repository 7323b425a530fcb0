//! The driver of a query: runs its tasks, stores their results and merges them.
//!
//! | member | owns |
//! |---|---|
//! | `runner` | the interface to the caller, which provides workers |
//! | `tasks` | attempts of tasks, and what is kept of them |
//! | `scheduling` | what runs next |
//! | `profile` | the profile of a query |
//! | `answer` | the driver's part of the plan, and the stream of its rows |
//! | `values` | the values of PIVOTs, which other queries find |

mod answer;
mod profile;
mod runner;
mod scheduling;
mod tasks;
mod values;

pub use answer::QueryAnswer;
pub(crate) use answer::clean;
pub use runner::{
    Attempt, Reporter, RunOptions, RunProgress, Stragglers, TaskError, TaskResult, TaskRunner,
};
pub use values::ListedQuery;
