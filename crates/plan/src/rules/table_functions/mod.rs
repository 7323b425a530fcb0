//! Table functions of the user: calls in FROM, which give rows.
//!
//! For an instance, a table function is a function whose result is a list of rows. So a call in
//! FROM becomes a column with this list, and an unnest of it, which run wherever a call of another
//! function would:
//!
//! 1. [`prepare`] finds the calls in the text of the statement, and refuses them elsewhere;
//! 2. [`TableFunctions`] plans each call by itself, over one row without columns;
//! 3. [`lateral`] replaces a join with a call whose arguments are columns of the other side: the
//!    list becomes a column of that side. What arguments refer to is decided by DataFusion, as for
//!    a subquery with LATERAL.

mod calls;
mod lateral;
mod relation;
mod rows;

pub(crate) use calls::prepare;
pub(crate) use lateral::lateral;
pub(crate) use relation::TableFunctions;
