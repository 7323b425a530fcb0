//! Rules for plans that DataFusion lacks.

mod join_order;
mod semi_joins;
#[cfg(test)]
mod tests;

pub(super) use join_order::JoinOrder;
pub(super) use semi_joins::PushDownSemiJoins;
