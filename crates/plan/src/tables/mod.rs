//! The tables of a statement: their locations, files, formats and columns.
//!
//! | member | owns |
//! |---|---|
//! | `table` | the tables that a statement names, and the provider of Parquet tables |
//! | `read_calls` | `read_csv` and its like in FROM |
//! | `locations` | the files of a location |
//! | `files` | the files of a table: schema, footers, folder names |
//! | `formats` | CSV, JSON, Arrow and workbooks |
//! | `prune`, `split` | row groups that are left out, and the division of the others |
//! | `distinct`, `info` | distinct values of text columns, and numbers for the profile |
//!
//! Boundary: only footers and the beginnings of files are read.

mod distinct;
mod files;
pub(crate) mod formats;
mod info;
mod locations;
mod prune;
pub(crate) mod read_calls;
mod split;
mod table;

pub use info::TableInfo;
pub(crate) use info::read_bytes;
pub(crate) use locations::without_query;
pub use prune::left_out;
pub(crate) use table::register;
