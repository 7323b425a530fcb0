//! The text of a statement to a syntax tree that the planner reads as PostgreSQL or DuckDB would.
//!
//! | member | owns |
//! |---|---|
//! | `statement` | parses one SELECT statement, refuses others |
//! | `dialect` | text that the parser reads with another meaning |
//! | `semantics` | expressions that the planner computes with another meaning |
//! | `from`, `using`, `samples`, `asof` | tables and joins in FROM |
//! | `pivot` | PIVOT and UNPIVOT |
//! | `parameters`, `literals` | values of parameters, and numbers for functions of the user |
//! | `naming` | names of columns and of items |
//! | `equivalents` | functions and clauses that the planner lacks |
//! | `statement_forms` | the statement in the forms that are tried one after the other |
//! | `definition` | CREATE FUNCTION and DROP FUNCTION |
//! | `errors` | reports for wrong SQL |
//!
//! Boundary: no file is opened and no table is known here.

pub(crate) mod asof;
mod definition;
mod dialect;
pub(crate) mod equivalents;
pub(crate) mod errors;
mod from;
mod literals;
pub(crate) mod naming;
mod parameters;
mod pivot;
mod samples;
mod semantics;
mod statement;
mod statement_forms;
mod using;

pub(crate) use asof::NEAREST;
pub use definition::definition;
pub use pivot::PivotValues;
pub(crate) use statement::{ResultKind, Statement, parse};
pub(crate) use statement_forms::StatementWriter;
