//! Calls of the user's functions in a plan: each is made once for a row, and only for rows that need
//! it.
//!
//! DataFusion sees the user's functions as volatile, so that it neither runs them during planning
//! nor computes a call again below the place where it is written. Three of its rules still do not
//! suit calls of another sandbox, and these rules stand beside or instead of them:
//!
//! - [`ReuseCalls`] computes a call that several operators need once, where the lowest of them is;
//! - [`PushDownConditions`] infers no condition with a call for the other side of a join;
//! - [`KeepCallsAbove`] moves no call below an operator that drops rows, and no condition on its
//!   value below the call.

mod call_placement;
mod columns;
mod conditions;
mod find;
mod reuse;

pub(crate) use call_placement::KeepCallsAbove;
pub(crate) use conditions::PushDownConditions;
pub(crate) use reuse::ReuseCalls;
