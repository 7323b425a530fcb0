//! The order of joins, and the forms in which they run.
//!
//! | member | owns |
//! |---|---|
//! | `independent` | forms that are right when each task runs one partition |
//! | `join_order` | the order of inner joins, by estimated cost |
//! | `semi_joins` | semi joins below other joins |

pub(crate) mod independent;
mod join_order;
mod semi_joins;
#[cfg(test)]
mod tests;

pub(crate) use join_order::JoinOrder;
pub(crate) use semi_joins::PushDownSemiJoins;
