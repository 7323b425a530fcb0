//! Operators that stand in a plan only while it is planned, and what all rules ask about operators.
//!
//! | member | owns |
//! |---|---|
//! | `planning_only` | hides an operator while a rule of DataFusion runs |
//! | `shared_exec` | the leaf for a part that several others read |
//! | `volatile` | operators that may give other values the next time |

mod planning_only;
mod shared_exec;
mod volatile;

pub(crate) use planning_only::PlanningOnlyExec;
pub(crate) use shared_exec::SharedExec;
pub(crate) use volatile::{is_nondeterministic, may_differ};
