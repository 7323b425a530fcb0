//! A workbook: its sheets, and the cells of one, row by row.

use std::io::Cursor;
use std::ops::ControlFlow;

use calamine::{Reader, SheetType, Xlsx, XlsxError};

use super::archive;
use super::value::{CellValue, Form};
use crate::process::catch_panic;
use crate::read::MAX_RECORD_BYTES;
use crate::read::reports::shortened;

/// The most rows of a sheet.
pub const SHEET_ROWS: u32 = 1 << 20;

/// The most columns of a sheet.
pub const SHEET_COLUMNS: u32 = 1 << 14;

/// The cells of a row that are not empty, each with its column, in order.
pub type Cells<'c, 'v> = &'c [(u32, CellValue<'v>)];

/// An open workbook.
pub struct Book {
    xlsx: Xlsx<Cursor<Vec<u8>>>,
    /// Bytes of memory that the workbook takes.
    pub kept: u64,
}

impl Book {
    /// Checks and opens a workbook. An error says why it cannot be read.
    pub fn open(file: &[u8]) -> Result<Self, String> {
        guarded(|| {
            let checked = archive::check(file)?;
            let xlsx = Xlsx::new(Cursor::new(checked.parts)).map_err(|error| why(&error))?;
            Ok(Self { xlsx, kept: checked.kept })
        })
    }

    /// Returns the names of the worksheets, in order.
    pub fn sheets(&self) -> impl Iterator<Item = &str> {
        let sheets = self.xlsx.sheets_metadata().iter();
        sheets.filter(|sheet| sheet.typ == SheetType::WorkSheet).map(|sheet| sheet.name.as_str())
    }

    /// Calls `each` for every row of a sheet that has a cell, in order, until it breaks.
    pub fn rows(
        &mut self,
        sheet: &str,
        each: &mut dyn FnMut(u32, Cells<'_, '_>) -> ControlFlow<()>,
    ) -> Result<(), String> {
        guarded(|| self.read(sheet, each))
    }

    fn read(
        &mut self,
        sheet: &str,
        each: &mut dyn FnMut(u32, Cells<'_, '_>) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let mut reader = self.xlsx.worksheet_cells_reader(sheet).map_err(|error| why(&error))?;
        let forms: Vec<Form> = reader.styles().iter().map(Form::of).collect();
        let mut row = 0;
        let mut bytes = 0;
        let mut cells = Vec::new();
        while let Some((cell, style)) =
            reader.next_cell_with_style_id().map_err(|error| why(&error))?
        {
            let (at, column) = cell.get_position();
            if at >= SHEET_ROWS || column >= SHEET_COLUMNS {
                return Err("a cell is outside of its sheet".to_owned());
            }
            let is_behind = cells.last().is_none_or(|(last, _)| *last < column);
            if at < row || at == row && !is_behind {
                return Err(format!("cell {} is out of order", cell_name(at, column)));
            }
            if at > row {
                if !cells.is_empty() && each(row, &cells).is_break() {
                    return Ok(());
                }
                cells.clear();
                (row, bytes) = (at, 0);
            }
            let form = forms.get(style).copied().unwrap_or_default();
            if let Some(value) = CellValue::of(cell.get_value(), form) {
                bytes += value.bytes();
                if bytes > MAX_RECORD_BYTES {
                    let most = MAX_RECORD_BYTES >> 20;
                    return Err(format!("row {} has more than {most} MiB", row + 1));
                }
                cells.push((column, value));
            }
        }
        if !cells.is_empty() {
            _ = each(row, &cells);
        }
        Ok(())
    }
}

/// Runs the parser, which may panic on damaged files.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_panic(read).unwrap_or_else(|_| Err("it is damaged".to_owned()))
}

fn why(error: &XlsxError) -> String {
    shortened(&format!("it is damaged: {error}"))
}

/// The name of a cell, such as `B7`, from its row and column.
pub fn cell_name(row: u32, column: u32) -> String {
    let mut letters = Vec::new();
    let mut left = column + 1;
    while left > 0 {
        letters.push(char::from(b'A' + ((left - 1) % 26) as u8));
        left = (left - 1) / 26;
    }
    let letters: String = letters.into_iter().rev().collect();
    format!("{letters}{}", row + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_named_as_in_a_workbook() {
        for (row, column, name) in
            [(0, 0, "A1"), (6, 25, "Z7"), (0, 26, "AA1"), (1_048_575, 16_383, "XFD1048576")]
        {
            assert_eq!(cell_name(row, column), name);
        }
    }

    #[test]
    fn what_is_no_workbook_is_refused() {
        for (bytes, part) in [
            (&b"a,b\n1,2\n"[..], "does not begin"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "password"),
            (b"PK\x03\x04 cut off", "damaged"),
        ] {
            let Err(why) = Book::open(bytes) else { panic!("{bytes:?}") };
            assert!(why.contains(part), "{why}");
        }
    }
}
