//! The rows of a sheet as batches.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::{ObjectMeta, ObjectStore};
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::mpsc;

use super::SheetPlace;
use super::archive::MAX_FILE_BYTES;
use super::book::{Book, Cells, cell_name};
use super::columns::SheetColumn;
use super::value::CellValue;
use crate::read::reports::corrupt;
use crate::scan::read_bytes;
use crate::sql_semantics::sql_name;

/// The most values of a batch, and the most bytes of its texts.
const MAX_BATCH_VALUES: usize = 1 << 20;
const MAX_BATCH_BYTES: usize = 8 << 20;

const DAMAGED: &str =
    "save it with Excel again as a workbook (.xlsx), or convert the sheet to CSV or Parquet";

type Batches = mpsc::Sender<DfResult<RecordBatch>>;

/// A workbook and what is wanted of it.
pub(in crate::read) struct SheetFile {
    pub(in crate::read) store: Arc<dyn ObjectStore>,
    pub(in crate::read) meta: ObjectMeta,
    /// The file's name for the user.
    pub(in crate::read) name: String,
    pub(in crate::read) place: SheetPlace,
    pub(in crate::read) wanted: SchemaRef,
    /// The most rows of a batch.
    pub(in crate::read) rows: usize,
}

impl SheetFile {
    /// The rows.
    pub(in crate::read) async fn batches(
        self,
    ) -> DfResult<BoxStream<'static, DfResult<RecordBatch>>> {
        if self.meta.size > MAX_FILE_BYTES {
            return Err(self.corrupt("it is too large"));
        }
        let file = read_bytes(self.store.as_ref(), &self.meta, 0..self.meta.size).await?;
        let (sender, receiver) = mpsc::channel(1);
        // The parser's cells borrow from it, so it runs on a thread of its own. It ends when nobody
        // wants its batches any more.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = self.read(&file, &sender) {
                _ = sender.blocking_send(Err(error));
            }
        });
        let next = |mut receiver: mpsc::Receiver<_>| async move {
            receiver.recv().await.map(|batch| (batch, receiver))
        };
        Ok(stream::unfold(receiver, next).boxed())
    }

    fn read(&self, file: &[u8], sender: &Batches) -> DfResult<()> {
        let mut book = Book::open(file).map_err(|why| self.corrupt(&why))?;
        let mut reading = SheetReader::new(self, sender);
        let sheet = &self.place.sheet;
        let read = book.rows(sheet, &mut |row, cells| reading.row(row, cells));
        read.map_err(|why| self.corrupt(&why))?;
        match reading.wrong.take() {
            Some(wrong) => Err(wrong),
            None => {
                _ = reading.send()?;
                Ok(())
            }
        }
    }

    fn corrupt(&self, why: &str) -> DataFusionError {
        external(corrupt(&self.name, why, DAMAGED))
    }
}

/// Reads the rows of a sheet.
struct SheetReader<'f> {
    file: &'f SheetFile,
    sender: &'f Batches,
    /// The column in the sheet of each wanted column; `None` if the sheet lacks it.
    places: Vec<Option<u32>>,
    columns: Vec<SheetColumn>,
    /// The most rows of a batch, and the rows of the current one.
    most: usize,
    rows: usize,
    bytes: usize,
    /// The number of the next row, if no row between is empty.
    next: u32,
    wrong: Option<DataFusionError>,
}

impl<'f> SheetReader<'f> {
    fn new(file: &'f SheetFile, sender: &'f Batches) -> Self {
        let place = &file.place;
        let fields = file.wanted.fields();
        let column = |name: &str| place.names.iter().position(|known| known == name);
        let places =
            fields.iter().map(|field| Some(place.first_column + column(field.name())? as u32));
        Self {
            file,
            sender,
            places: places.collect(),
            columns: fields.iter().map(|field| SheetColumn::of(field.data_type())).collect(),
            most: file.rows.min(MAX_BATCH_VALUES / fields.len().max(1)).max(1),
            rows: 0,
            bytes: 0,
            next: place.first_row,
            wrong: None,
        }
    }

    fn row(&mut self, row: u32, cells: Cells<'_, '_>) -> ControlFlow<()> {
        let place = &self.file.place;
        if row > place.last_row {
            return ControlFlow::Break(());
        }
        let inside = place.inside(cells);
        if row < self.next || inside.is_empty() {
            return ControlFlow::Continue(());
        }
        if row > self.next && place.stops_at_empty {
            return ControlFlow::Break(());
        }
        // Empty rows before one with values are rows of the table.
        let added = (self.next..row).try_for_each(|empty| self.add(empty, &[]));
        let added = added.and_then(|()| self.add(row, inside));
        self.next = row + 1;
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(wrong) => {
                self.wrong = wrong;
                ControlFlow::Break(())
            }
        }
    }

    /// Adds a row. `Err(None)` if nobody wants more.
    fn add(&mut self, row: u32, cells: Cells<'_, '_>) -> Result<(), Option<DataFusionError>> {
        for (index, place) in self.places.iter().enumerate() {
            let at = |column: &u32| cells.binary_search_by_key(column, |(it, _)| *it).ok();
            let value = place.as_ref().and_then(at).map(|at| &cells[at].1);
            let is_error = matches!(value, Some(CellValue::Error(_)));
            let value = value.filter(|_| !is_error || !self.file.place.ignores_errors);
            self.bytes += value.map_or(0, CellValue::bytes);
            let fits =
                !matches!(value, Some(CellValue::Error(_))) && self.columns[index].add(value);
            if !fits {
                return Err(Some(self.wrong_value(row, index, value)));
            }
        }
        self.rows += 1;
        if self.rows < self.most && self.bytes < MAX_BATCH_BYTES {
            return Ok(());
        }
        match self.send() {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    /// Sends the rows so far. False if nobody wants them.
    fn send(&mut self) -> DfResult<bool> {
        if self.rows == 0 {
            return Ok(true);
        }
        let columns = self.columns.iter_mut().map(SheetColumn::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let wanted = Arc::clone(&self.file.wanted);
        let batch = RecordBatch::try_new_with_options(wanted, columns, &options)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(self.sender.blocking_send(Ok(batch)).is_ok())
    }

    fn wrong_value(
        &self,
        row: u32,
        index: usize,
        value: Option<&CellValue<'_>>,
    ) -> DataFusionError {
        let SheetFile { name, place, wanted, .. } = self.file;
        let cell = cell_name(row, self.places[index].unwrap_or(place.first_column));
        let why = match value {
            Some(CellValue::Error(error)) => format!("it has the error {error}"),
            _ => {
                let field = wanted.field(index);
                format!("column `{}` is {}", field.name(), sql_name(field.data_type()))
            }
        };
        let message = format!("`{name}`, cell {}!{cell}: {why}", place.sheet);
        external(ErrorReport::new(Code::FILE_LINE, message).hint(
            "correct the cell, or write read_xlsx('…', ignore_errors => true) in FROM: then errors are null",
        ))
    }
}

fn external(report: ErrorReport) -> DataFusionError {
    DataFusionError::External(Box::new(report))
}
