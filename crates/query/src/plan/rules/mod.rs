//! Rules for logical plans that DataFusion lacks.

mod semi_joins;
#[cfg(test)]
mod tests;

pub(super) use semi_joins::PushDownSemiJoins;
