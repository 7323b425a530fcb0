//! Decoders of text: blocks of whole records to columns.
//!
//! | member | owns |
//! |---|---|
//! | `csv`, `conversion` | records of CSV, and their values in other notations than CAST's |
//! | `json`, `surrogates` | objects of JSON, and characters that two escapes write |

mod conversion;
mod csv;
mod json;
mod surrogates;

pub use csv::CsvDecoder;
pub(crate) use json::JsonDecoder;
