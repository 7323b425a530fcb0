//! Reads the sheets of Excel's workbooks (`.xlsx`).
//!
//! A workbook is read whole: its directory is at its end, and its texts are apart from the cells.
//! The planner reads it to find where the table is in its sheet and the types of its columns
//! ([`SheetPlace`]); a worker reads it again for the rows. Nothing is expanded that was not
//! measured before ([`archive`], [`guard`], [`measure`]), and cells are streamed: no row or column
//! is kept that has no value, whatever dimensions the sheet says it has.

mod archive;
mod book;
mod columns;
mod file;
mod guard;
mod measure;
mod value;

pub use super::dialect::place::SheetPlace;
pub use archive::MAX_FILE_BYTES;
pub use book::{Book, Cells, SHEET_COLUMNS, SHEET_ROWS, cell_name};
pub(super) use file::SheetFile;
pub use value::CellValue;
