//! Operators that stand in a plan only while it is planned, and what all rules ask about operators.
//!
//! | member | owns |
//! |---|---|
//! | `opaque_exec` | hides an operator while a rule of DataFusion runs |
//! | `shared_exec` | the leaf for a part that several others read |
//! | `volatility` | operators that may give other values the next time |

mod opaque_exec;
mod shared_exec;
mod volatility;

pub(crate) use opaque_exec::PlanningOnlyExec;
pub(crate) use shared_exec::SharedExec;
pub(crate) use volatility::{is_nondeterministic, may_differ};
