//! Rules for logical and physical plans that DataFusion lacks, or of which it has other ones.
//!
//! | member | owns |
//! |---|---|
//! | `all_columns` | `select * from t` without the list of its columns |
//! | `calls` | calls of the user's functions: once for a row, and only for rows that need them |
//! | `dates` | sums of a date and an interval |
//! | `sql_semantics` | plans whose answers would differ from SQL: duplicates, nulls, subqueries |
//! | `joins` | order and form of joins |
//! | `same_columns` | projections that change nothing |
//! | `series` | series of numbers and times |
//! | `summary` | SUMMARIZE |
//! | `table_functions` | the user's table functions in FROM |
//! | `unions` | orders of unions with different constants |

pub(crate) mod all_columns;
mod calls;
mod dates;
pub(crate) mod joins;
mod same_columns;
mod series;
pub(crate) mod sql_semantics;
pub(crate) mod summary;
pub(crate) mod table_functions;
mod unions;

pub(crate) use calls::{KeepCallsAbove, PushDownConditions, ReuseCalls};
pub(crate) use dates::{CompareDates, DatesWithIntervals};
pub(crate) use joins::independent::IndependentJoins;
pub(crate) use joins::{JoinOrder, PushDownSemiJoins};
pub(crate) use same_columns::{MANY_COLUMNS, without_same_columns};
pub(crate) use series::ForgetOrder;
pub(crate) use sql_semantics::{PlainKeys, exact, with_null_safe_keys};
pub(crate) use summary::summary;
pub(crate) use table_functions::TableFunctions;
pub(crate) use unions::HideConstants;
