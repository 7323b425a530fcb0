//! Checks that a subquery that is used as a value has at most one row, as SQL requires.
//!
//! DataFusion turns such a subquery into a join, which would repeat rows for each of its values.
//! Here its result is an aggregate that fails at the second row, and is null without a row.

mod aggregate;
pub(super) mod nullable;
mod rule;

pub(super) use aggregate::SingleRow;
pub use rule::CheckSubqueries;
