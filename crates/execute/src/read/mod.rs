//! Reads CSV, JSON and Arrow files and workbooks: whole in a worker, mostly their beginnings in the
//! planner.
//!
//! DataFusion plans these scans, and its codec sends them to the workers. Its readers are not used,
//! for these reasons:
//!
//! - They match columns of CSV and Arrow files by position, with the types of the table. The files
//!   of a table may differ.
//! - The codec does not send the compression of files, and the streaming decoder of zstd ends
//!   silently after the first of several frames.
//! - The JSON reader turns 1.5 into 1 where the column is an integer.
//! - They keep a whole record, or a whole Arrow file, in memory, however long it is.
//! - Their errors name no file, and no line that is counted from the beginning of it.
//!
//! So `with_own_readers` replaces them just before a plan runs. Text passes through these steps:
//! bytes of a range (`range`), decompressed (`inflate`), as UTF-8 (`recode`), with each object in
//! a line (`framer`), cut into blocks of whole records (`blocks`), decoded (`csv`, `json`).

mod arrow_file;
mod blocks;
mod comments;
mod converted;
mod csv;
mod day_form;
mod dialect;
mod escapes;
mod framer;
mod header;
mod inflate;
mod json;
mod lengths;
mod notation;
mod quotes;
mod range;
mod recode;
mod sheet;
mod source;
mod surrogates;
mod text;
mod text_file;
mod wrong;

use std::sync::Arc;

use datafusion::common::tree_node::{TransformedResult, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::physical_plan::ExecutionPlan;

pub use arrow_file::footer as arrow_footer;
pub use blocks::newlines;
pub use csv::CsvDecoder;
pub use day_form::DayForm;
pub use dialect::{Dialect, Encoding, Frame};
pub use framer::Framer;
pub use header::{Header, MAX_COLUMNS, split_header, values, without_mark};
pub use inflate::inflate_beginning;
pub use notation::Notation;
pub use quotes::Quotes;
pub use recode::Recoder;
pub use sheet::{Book, Cells, MAX_FILE_BYTES, Place, SHEET_COLUMNS, SHEET_ROWS, Value, cell_name};
pub use text::Decoder;
pub use text_file::without_lines;
pub use wrong::{corrupt, escaped, not_inflated, wrong_line, wrong_object};

/// The most bytes of one record. Memory for a record is not accounted for by operators.
pub(crate) const MAX_RECORD_BYTES: usize = 64 << 20;

/// The most bytes of a header line, with the lines before it.
pub const MAX_HEADER_BYTES: usize = 1 << 20;

/// Replaces DataFusion's readers of a plan.
pub(crate) fn with_own_readers(plan: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(source::replace).data()
}
