//! Plans queries: SQL to stages of a physical plan, the tasks of each stage, and their cost. Built on
//! DataFusion.
//!
//! [`query::plan()`] parses and optimises the SQL and cuts the physical plan into stages, each one
//! program for several workers, and the driver's part (Lambada 3.2).
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `prices` | the prices from which costs are computed |
//! | `results` | results on their way to the driver's plan |
//! | `operators` | operators that stand in a plan until it is cut, and expressions that differ at each call |
//! | `sql` | the text of a statement to a statement that means what PostgreSQL and DuckDB mean |
//! | `tables` | the files of a statement's tables, their formats and columns |
//! | `spec` | a query and its inputs |
//! | `estimate` | rows and bytes of operators, before they run |
//! | `rules` | rules for logical and physical plans |
//! | `common_parts` | parts of a plan that are computed once |
//! | `session` | the planning session of DataFusion: its rules in their order |
//! | `stages` | the cut of a physical plan into stages |
//! | `tasks` | the tasks of a stage |
//! | `cost` | the cost of a plan |
//! | `query` | the planned query, its estimate and explanations |
//!
//! Boundary: no task is run here, and nothing is read but footers and beginnings of files. The
//! invariant of the cut: an attempt's rows count only once the attempt is complete, so a retried
//! task never duplicates a row.

mod common_parts;
pub mod cost;
mod estimate;
mod operators;
pub mod prices;
pub mod query;
pub mod results;
mod rules;
mod session;
pub mod spec;
pub mod sql;
pub mod stages;
pub mod tables;
pub mod tasks;

pub use snowmelt_execute::{Error, Result};
