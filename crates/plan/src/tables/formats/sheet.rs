//! The table in a sheet of a workbook: where it is, and its columns.
//!
//! As in DuckDB, a table begins in the first row that is not empty, with the cells there that have no
//! empty one between them, and ends before the first row that is empty. Its columns have the types
//! of all of their cells: unlike a text, a workbook is read to its end.

use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use object_store::ObjectMeta;
use snowmelt_execute::read::{
    Book, CellValue, Cells, Dialect, MAX_FILE_BYTES, SHEET_ROWS, SheetPlace, cell_name, corrupt,
};
use snowmelt_execute::scan::read_bytes;
use snowmelt_files::Format;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::header::First;
use super::options::ReadOptions;
use super::sheet_options::{Area, SheetOptions};
use super::{FileColumns, FileFindings, pieces};
use crate::tables::files::store_of;
use crate::tables::locations::Located;
use crate::{Error, Result};

const HINT: &str =
    "save it with Excel again as a workbook (.xlsx), or convert the sheet to CSV or Parquet";

/// The kinds of values of a column.
const NUMBER: u8 = 1;
const BOOL: u8 = 2;
const DATE: u8 = 4;
const MOMENT: u8 = 8;
const TIME: u8 = 16;
const TEXT: u8 = 32;

/// Reads the columns of a workbook.
pub(super) async fn of_file(
    located: &Located,
    meta: &ObjectMeta,
    options: ReadOptions<'_>,
    name: &str,
) -> Result<FileFindings> {
    let refused = |why: &str| Error::File(Box::new(corrupt(name, why, HINT)));
    if meta.size > MAX_FILE_BYTES {
        return Err(refused(&format!("it has more than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    let store = store_of(located, meta).await?;
    let file = match meta.size {
        0 => Bytes::new(),
        size => read_bytes(store.as_ref(), meta, 0..size)
            .await
            .map_err(|error| located.store_error(name, error))?,
    };
    let sheet = options.sheet.clone();
    let file_name = name.to_owned();
    let read = move || detect(&file, &sheet, &file_name);
    let read = tokio::task::spawn_blocking(read).await;
    let (table, kept) = read.unwrap_or_else(|_| Err(refused("it is damaged")))?;
    check_memory(kept + meta.size, options.worker_memory, name)?;
    let first = match (options.sheet.header, table.has_header) {
        (Some(_), _) => First::Unknown,
        (None, true) => First::Names,
        (None, false) => First::Values,
    };
    let columns = match table.place.names.is_empty() {
        true => FileColumns::None,
        false => FileColumns::Schema(table.schema(options.sheet)),
    };
    let dialect = Dialect { sheet: Some(table.place), ..Dialect::of(Format::Csv) };
    let found = FileFindings::new(columns, pieces::whole(meta.size));
    Ok(FileFindings { dialect: Some(dialect), first, ..found })
}

/// Refuses a workbook that a worker cannot hold: it is read whole there.
fn check_memory(bytes: u64, limit: u64, name: &str) -> Result<()> {
    if limit == 0 || bytes <= limit / 2 {
        return Ok(());
    }
    let needed = ByteSize::mib((bytes >> 20) + 1);
    let limit = ByteSize::mib(limit >> 20);
    let message = format!(
        "`{name}` takes {needed} to be read, more than half of a worker's memory of {limit}"
    );
    let report = ErrorReport::new(Code::WORKER_MEMORY, message);
    Err(Error::File(Box::new(report.hint("raise the limit with --memory"))))
}

/// The table in a workbook, and the bytes that the workbook takes.
fn detect(file: &[u8], options: &SheetOptions, name: &str) -> Result<(SheetTable, u64)> {
    let refused = |why: String| Error::File(Box::new(corrupt(name, &why, HINT)));
    let mut book = Book::open(file).map_err(refused)?;
    let sheet = sheet_of(&book, options, name)?;
    let mut detector = Detector { options, table: None, next: 0, ended: false };
    book.rows(&sheet, &mut |row, cells| detector.row(row, cells)).map_err(refused)?;
    let mut table = detector.table.unwrap_or_default();
    table.place.sheet = sheet;
    Ok((table, book.kept))
}

/// The sheet that the options name, or the first one.
fn sheet_of(book: &Book, options: &SheetOptions, name: &str) -> Result<String> {
    let Some(wanted) = &options.sheet else {
        let none = || Error::File(Box::new(corrupt(name, "it has no worksheet", HINT)));
        return book.sheets().next().map(str::to_owned).ok_or_else(none);
    };
    let same = |sheet: &&str| sheet.to_lowercase() == wanted.to_lowercase();
    let found = book.sheets().find(|sheet| sheet == wanted).or_else(|| book.sheets().find(same));
    found.map(str::to_owned).ok_or_else(|| {
        let message = format!("`{name}` has no sheet `{wanted}`");
        let sheets: Vec<&str> = book.sheets().take(20).collect();
        let hint = format!("its sheets are {}", sheets.join(", "));
        Error::File(Box::new(ErrorReport::new(Code::OPTION, message).hint(hint)))
    })
}

/// A table of a sheet.
struct SheetTable {
    place: SheetPlace,
    /// The kinds of values of each column.
    kinds: Vec<u8>,
    has_header: bool,
}

impl Default for SheetTable {
    fn default() -> Self {
        let place = SheetPlace {
            sheet: String::new(),
            first_row: 0,
            last_row: 0,
            first_column: 0,
            names: Vec::new(),
            stops_at_empty: true,
            ignores_errors: false,
        };
        Self { place, kinds: Vec::new(), has_header: false }
    }
}

impl SheetTable {
    fn schema(&self, options: &SheetOptions) -> Schema {
        let field = |(name, kinds): (&String, &u8)| {
            let data_type = match *kinds {
                _ if options.all_varchar => DataType::Utf8,
                0 if options.empty_as_varchar => DataType::Utf8,
                0 => DataType::Null,
                NUMBER => DataType::Float64,
                BOOL => DataType::Boolean,
                DATE => DataType::Date32,
                TIME => DataType::Time64(TimeUnit::Microsecond),
                both if both & !(DATE | MOMENT) == 0 => {
                    DataType::Timestamp(TimeUnit::Microsecond, None)
                }
                _ => DataType::Utf8,
            };
            Field::new(name, data_type, true)
        };
        Schema::new(self.place.names.iter().zip(&self.kinds).map(field).collect::<Vec<_>>())
    }
}

/// Finds the table while rows are read.
struct Detector<'o> {
    options: &'o SheetOptions,
    table: Option<SheetTable>,
    /// The number of the next row, if no row between is empty.
    next: u32,
    ended: bool,
}

impl Detector<'_> {
    fn row(&mut self, row: u32, cells: Cells<'_, '_>) -> ControlFlow<()> {
        let Some(table) = &mut self.table else {
            return self.first(row, cells);
        };
        let inside = table.place.inside(cells);
        self.ended |= row > table.place.last_row;
        self.ended |= !inside.is_empty() && row > self.next && table.place.stops_at_empty;
        if self.ended {
            return ControlFlow::Break(());
        }
        if !inside.is_empty() {
            for (column, value) in inside {
                let kinds = &mut table.kinds[(column - table.place.first_column) as usize];
                *kinds |= kind(value);
            }
            self.next = row + 1;
        }
        ControlFlow::Continue(())
    }

    /// Handles a row before which no table has begun.
    fn first(&mut self, row: u32, cells: Cells<'_, '_>) -> ControlFlow<()> {
        let area = match self.options.range {
            Some(area) if row < area.rows.0 => return ControlFlow::Continue(()),
            Some(area) => area,
            None => beginning(row, cells),
        };
        let first_column = area.columns.0;
        let width = area.columns.1 - area.columns.0 + 1;
        // The first row of a range may be empty.
        let first = if row == area.rows.0 { cells } else { &[] };
        let at = |column: u32| {
            let found = first.binary_search_by_key(&column, |(column, _)| *column).ok();
            found.map(|index| &first[index].1)
        };
        let is_text = |column: u32| matches!(at(column), None | Some(CellValue::Text(_)));
        let columns = || (0..width).map(|column| first_column + column);
        let any = columns().any(|column| at(column).is_some());
        let has_header = self.options.header.unwrap_or_else(|| any && columns().all(is_text));
        let own = |column: u32| at(column).filter(|_| has_header).map(|at| at.text().into_owned());
        let name = |column| own(column).unwrap_or_else(|| cell_name(area.rows.0, column));
        let first_row = area.rows.0 + u32::from(has_header);
        let place = SheetPlace {
            sheet: String::new(),
            first_row,
            last_row: area.rows.1,
            first_column,
            names: columns().map(name).collect(),
            stops_at_empty: self.options.stop_at_empty.unwrap_or(self.options.range.is_none()),
            ignores_errors: self.options.ignore_errors,
        };
        let kinds = vec![0; place.names.len()];
        self.table = Some(SheetTable { place, kinds, has_header });
        self.next = first_row;
        match row < first_row {
            true => ControlFlow::Continue(()),
            false => self.row(row, cells),
        }
    }
}

/// The columns of a table that begins in a row: its first cells without an empty one between them.
fn beginning(row: u32, cells: Cells<'_, '_>) -> Area {
    let first = cells.first().map_or(0, |(column, _)| *column);
    let follows =
        |(index, (column, _)): &(usize, &(u32, CellValue<'_>))| *column == first + *index as u32;
    let count = cells.iter().enumerate().take_while(follows).count().max(1);
    Area { rows: (row, SHEET_ROWS - 1), columns: (first, first + count as u32 - 1) }
}

fn kind(value: &CellValue<'_>) -> u8 {
    match value {
        CellValue::Number(_) => NUMBER,
        CellValue::Bool(_) => BOOL,
        CellValue::Date(_) => DATE,
        CellValue::Moment(_) => MOMENT,
        CellValue::Time(_) => TIME,
        CellValue::Text(_) => TEXT,
        CellValue::Error(_) => 0,
    }
}
