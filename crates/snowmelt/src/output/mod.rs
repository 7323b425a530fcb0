//! Writes the result of a query in the format that the user chose, and short lists.
//!
//! | member | job |
//! |---|---|
//! | `target` | the file or stream that a result is written to |
//! | `table`, `json`, `csv`, `arrow`, `parquet` | the formats of a result |
//! | `list` | short lists and single values as JSON and CSV |
//!
//! Invariant: a file gets its final name only when its content is complete; if the reader of
//! stdout closes the pipe, the query ends without an error.

mod arrow;
mod csv;
mod json;
pub mod list;
mod parquet;
mod table;
mod target;
#[cfg(test)]
mod tests;

use std::path::Path;

use ::arrow::array::RecordBatch;
use ::arrow::datatypes::SchemaRef;
use ::arrow::error::ArrowError;
use snowmelt_types::{Code, ErrorReport};

use crate::args::OutputFormat;
use crate::terminal::printer;

pub use table::{Cell, TableLayout, draw};
pub use target::ResultTarget;

/// Encodes batches in one format.
trait Sink {
    /// Writes one batch.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError>;
    /// Writes the remaining bytes; returns the target and notes for the user.
    fn finish(self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError>;
}

/// Target and format of a result; opened once its schema is known.
pub struct ResultOutput<'a> {
    /// The format.
    pub format: OutputFormat,
    /// The file; `None` for stdout.
    pub file: Option<&'a Path>,
    /// Rows that a table shows on a terminal; 0 means all.
    pub rows: u64,
}

impl ResultOutput<'_> {
    /// The format of a file by its extension, if it is known.
    pub fn format_for(file: Option<&Path>) -> Option<OutputFormat> {
        match file?.extension()?.to_str()? {
            "json" | "jsonl" | "ndjson" => Some(OutputFormat::Json),
            "csv" => Some(OutputFormat::Csv),
            "arrow" | "feather" => Some(OutputFormat::Arrow),
            "parquet" => Some(OutputFormat::Parquet),
            _ => None,
        }
    }

    /// Refuses to write binary data to a terminal.
    ///
    /// # Errors
    /// `SM-0110` for a binary format on a terminal.
    pub fn check(&self) -> Result<(), ErrorReport> {
        let (name, file) = match self.format {
            OutputFormat::Arrow => ("arrow", "answer.arrow"),
            OutputFormat::Parquet => ("parquet", "answer.parquet"),
            _ => return Ok(()),
        };
        if self.file.is_some() || !printer::stdout_is_terminal() {
            return Ok(());
        }
        let message = format!("{name} is binary and stdout is a terminal");
        Err(ErrorReport::new(Code::OPTION, message)
            .hint(format!("write a file with -O {file}, or pipe it to a program")))
    }

    /// Opens the writer and writes the header of the format.
    ///
    /// # Errors
    /// `SM-0114` if the target cannot be written or the format cannot represent the schema.
    pub fn open(
        &self,
        target: ResultTarget,
        schema: &SchemaRef,
    ) -> Result<ResultWriter, ErrorReport> {
        let failures = target.failures();
        let sink: Result<Box<dyn Sink>, ArrowError> = match self.format {
            OutputFormat::Table => Ok(table::sink(target, schema, self.layout())),
            OutputFormat::Json => Ok(json::sink(target)),
            OutputFormat::Csv => csv::sink(target, schema),
            OutputFormat::Arrow if self.file.is_some() => arrow::file_sink(target, schema),
            OutputFormat::Arrow => arrow::stream_sink(target, schema),
            OutputFormat::Parquet => parquet::sink(target, schema),
        };
        sink.map(|sink| ResultWriter { sink, failures: failures.clone() })
            .map_err(|error| failures.report(&error))
    }

    fn layout(&self) -> TableLayout {
        match self.file {
            Some(_) => TableLayout::unlimited(),
            None => TableLayout::stdout(self.rows),
        }
    }
}

/// A result that is being written. Dropping it before [`Self::finish`] leaves no file.
pub struct ResultWriter {
    sink: Box<dyn Sink>,
    failures: target::TargetError,
}

impl ResultWriter {
    /// Writes one batch. False if the reader closed the pipe.
    ///
    /// # Errors
    /// `SM-0114`, or `SM-0506` for a full disk.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<bool, ErrorReport> {
        match self.sink.write(batch) {
            Ok(()) => Ok(true),
            Err(_) if self.failures.reader_gone() => Ok(false),
            Err(error) => Err(self.failures.report(&error)),
        }
    }

    /// Writes the remaining bytes and gives the file its final name. Returns notes for the user.
    ///
    /// # Errors
    /// Fails as [`Self::write`].
    pub fn finish(self) -> Result<Vec<String>, ErrorReport> {
        let finished = self.sink.finish().and_then(|(target, notes)| {
            target.commit()?;
            Ok(notes)
        });
        match finished {
            Ok(notes) => Ok(notes),
            Err(_) if self.failures.reader_gone() => Ok(Vec::new()),
            Err(error) => Err(self.failures.report(&error)),
        }
    }
}
