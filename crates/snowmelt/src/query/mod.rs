//! `snowmelt sql`: a query, its options and its profile.
//!
//! | member | job |
//! |---|---|
//! | `sql` | the command: runs one query and writes its result |
//! | `csv_options` | `--csv`: options for all CSV files of a query |
//! | `parameters` | `--param`: values of a statement's parameters |
//! | `profile` | the profile of a query as text and as a page |
//!
//! Boundary: nothing here parses SQL. Rows are formatted by `output`.

mod csv_options;
mod parameters;
mod profile;
pub mod sql;
