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
//! So `with_own_readers` replaces them just before a plan runs.
//!
//! | member | owns |
//! |---|---|
//! | `dialect` | how the text of a file is written: separators, quotes, header, days and numbers |
//! | `blocks` | the bytes of a range, decompressed and as UTF-8, in blocks of whole records |
//! | `decoders` | blocks to columns |
//! | `text`, `text_file` | the decoder of a format, and a range of a text file |
//! | `arrow_file`, `sheet` | Arrow files, workbooks |
//! | `source` | the source of a scan, in place of DataFusion's |
//! | `reports` | reports of wrong lines and objects |

mod arrow_file;
mod blocks;
mod decoders;
mod dialect;
mod reports;
mod sheet;
mod source;
mod text;
mod text_file;

use std::sync::Arc;

use datafusion::common::tree_node::{TransformedResult, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::physical_plan::ExecutionPlan;

pub use arrow_file::footer as arrow_footer;
pub use blocks::framer::Framer;
pub use blocks::inflate::inflate_beginning;
pub use blocks::newlines;
pub use blocks::recode::Recoder;
pub use decoders::CsvDecoder;
pub use dialect::day_form::DayForm;
pub use dialect::header::{Header, MAX_COLUMNS, split_header, values, without_mark};
pub use dialect::notation::Notation;
pub use dialect::quotes::{QuoteFault, Quotes};
pub use dialect::{Dialect, Encoding, ObjectLayout};
pub use reports::{corrupt, not_inflated, unclear_value, wrong_line, wrong_object};
pub use sheet::{
    Book, CellValue, Cells, MAX_FILE_BYTES, SHEET_COLUMNS, SHEET_ROWS, SheetPlace, cell_name,
};
pub use text::Decoder;
pub use text_file::without_lines;

/// The most bytes of one record. Memory for a record is not accounted for by operators.
pub(crate) const MAX_RECORD_BYTES: usize = 64 << 20;

/// The most bytes of a header line, with the lines before it.
pub const MAX_HEADER_BYTES: usize = 1 << 20;

/// Replaces DataFusion's readers of a plan.
pub(crate) fn with_own_readers(plan: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(source::replace).data()
}
