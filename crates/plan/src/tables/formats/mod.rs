//! Tables of files that are not Parquet: CSV, JSON, Arrow and workbooks.
//!
//! The columns of text files come from samples: the first bytes of each file. Every value that is
//! read later must have the type of its column, or the query fails and names its line.
//!
//! | member | owns |
//! |---|---|
//! | `table` | a table of files of one format |
//! | `csv`, `csv_types`, `header`, `dialect` | columns of a CSV file, and how it is written |
//! | `json_types` | types of JSON values |
//! | `sheet`, `sheet_options` | tables in sheets of workbooks |
//! | `options`, `option_parser`, `option_value` | options that a query gives |
//! | `sample` | beginnings of files |
//! | `pieces`, `prune`, `early_end` | what is read of files, and whether reading may end early |

mod csv;
mod csv_types;
mod dialect;
mod early_end;
mod header;
mod json_types;
mod option_parser;
mod option_value;
mod options;
mod pieces;
mod prune;
mod sample;
mod sheet;
mod sheet_options;
mod table;

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use snowmelt_execute::read::{Dialect, MAX_COLUMNS, arrow_footer, corrupt, wrong_line};
use snowmelt_execute::scan::FooterError;
use snowmelt_files::{Compression, Format, Kind};
use snowmelt_types::{Code, ErrorReport};

use super::files::{
    SchemaConflict, as_read, differing_in_case, display_name, duplicate_column, store_of, unify_or,
    without_metadata,
};
use super::locations::Located;
use crate::{Error, Result};
pub(crate) use early_end::may_end_early;
use header::First;
use json_types::Shape;
pub(crate) use option_parser::{check, options, set};
pub(crate) use options::{CsvOptions, ReadOptions};
#[cfg(test)]
pub(crate) use options::{Mark, Types};
use pieces::Piece;
use sample::Sampler;
pub(crate) use sheet_options::{SheetOptions, set_sheet};
pub(crate) use table::FilesTable;

/// Number of files whose beginnings are read concurrently.
const CONCURRENT_READS: usize = 32;

/// A file of a table.
#[derive(Clone, Debug)]
struct TableFile {
    meta: ObjectMeta,
    /// The pieces of the file, which different workers can read.
    pieces: Vec<Piece>,
    /// The dialect of a CSV file, unless it is the usual one.
    dialect: Option<Dialect>,
}

/// The columns of one file, and what else its beginning or footer tells.
#[derive(Debug)]
struct FileFindings {
    columns: FileColumns,
    pieces: Vec<Piece>,
    dialect: Option<Dialect>,
    first: First,
}

impl FileFindings {
    /// Creates the result for a file without a dialect.
    fn new(columns: FileColumns, pieces: Vec<Piece>) -> Self {
        Self { columns, pieces, dialect: None, first: First::Unknown }
    }
}

#[derive(Debug)]
enum FileColumns {
    /// The file has neither rows nor columns.
    None,
    /// Names and types.
    Schema(Schema),
    /// The types of JSON objects.
    Objects(Shape),
}

impl FileColumns {
    /// The names of the members of objects.
    fn members(&self) -> Vec<&str> {
        match self {
            Self::Objects(shape) => shape.members().collect(),
            Self::None | Self::Schema(_) => Vec::new(),
        }
    }
}

/// The format of a table's files.
pub(crate) fn format_of(located: &Located, location: &str) -> Result<Format> {
    let names: Vec<String> = located.files.iter().map(|meta| display_name(located, meta)).collect();
    let format = snowmelt_files::common_format(names.iter().map(Path::new));
    Ok(format
        .map_err(|found| snowmelt_files::Error::Mixed { location: location.to_owned(), found })?)
}

/// The format that a query names for the files of a table.
///
/// # Errors
/// The name of a file tells another format.
pub(crate) fn required(located: &Located, format: Format) -> Result<Format> {
    let texts = [Format::Csv, Format::Tsv];
    for meta in &located.files {
        let found = Kind::of(Path::new(meta.location.as_ref())).map_or(format, |kind| kind.format);
        if found != format && !(texts.contains(&found) && texts.contains(&format)) {
            let name = display_name(located, meta);
            let message = format!("`{name}` is a file of {found}, and the query reads {format}");
            let report = ErrorReport::new(Code::OPTION, message);
            let hint = "write the location alone in FROM, or name only the files of this format";
            return Err(Error::File(Box::new(report.hint(hint))));
        }
    }
    Ok(format)
}

/// Reads the columns of all files, and their common schema.
async fn read(
    located: &Located,
    location: &str,
    format: Format,
    options: ReadOptions<'_>,
) -> Result<(SchemaRef, Vec<TableFile>)> {
    let sampler = Sampler::new(located);
    let files = located.files.iter();
    // Boxed individually: a stream of unnamed futures is not `Send`.
    let reads: Vec<BoxFuture<'_, _>> =
        files.map(|meta| found_in(&sampler, meta, format, options).boxed()).collect();
    // A workbook is read whole.
    let at_once = if format == Format::Excel { 1 } else { CONCURRENT_READS };
    let found: Vec<FileFindings> =
        futures::stream::iter(reads).buffered(at_once).try_collect().await?;
    check_first(located, location, format, &found)?;
    let mut columns = Vec::new();
    let mut files = Vec::new();
    for (meta, found) in located.files.iter().zip(found) {
        let FileFindings { pieces, dialect, .. } = found;
        columns.push(found.columns);
        files.push(TableFile { meta: meta.clone(), pieces, dialect });
    }
    let schema = common_schema(located, location, format, columns)?;
    options.csv.check(&schema)?;
    Ok((schema, files))
}

/// Refuses files of which some begin with names and others with values: the same column would have
/// two names.
fn check_first(
    located: &Located,
    location: &str,
    format: Format,
    found: &[FileFindings],
) -> Result<()> {
    let reader = if format == Format::Excel { "read_xlsx" } else { "read_csv" };
    let is_table = |found: &FileFindings| matches!(found.columns, FileColumns::Schema(_));
    let with = |values: bool| {
        let mut tables = found.iter();
        tables.position(|table| is_table(table) && (table.first == First::Values) == values)
    };
    let (Some(names), Some(values)) = (with(false), with(true)) else { return Ok(()) };
    let name = |index: usize| display_name(located, &located.files[index]);
    let why = format!(
        "`{}` seems to begin with the names of its columns and `{}` with values: write {reader}('{location}', header => …) in FROM, with true or false",
        name(names),
        name(values)
    );
    Err(Error::SchemasDiffer { location: location.to_owned(), why })
}

async fn found_in(
    sampler: &Sampler<'_>,
    meta: &ObjectMeta,
    format: Format,
    options: ReadOptions<'_>,
) -> Result<FileFindings> {
    let compression = Compression::of(Path::new(meta.location.as_ref()));
    let name = display_name(sampler.located, meta);
    match format {
        Format::Arrow => arrow(sampler.located, meta, &name).await,
        Format::Excel => sheet::of_file(sampler.located, meta, options, &name).await,
        Format::Json => json_types::of_file(sampler, meta, compression, &name).await,
        _ => csv::of_file(sampler, meta, Kind { format, compression }, options.csv, &name).await,
    }
}

async fn arrow(located: &Located, meta: &ObjectMeta, name: &str) -> Result<FileFindings> {
    let store = store_of(located, meta).await?;
    let footer = arrow_footer(store.as_ref(), meta).await.map_err(|error| match error {
        FooterError::Corrupt(why) => Error::File(Box::new(corrupt(
            name,
            &why,
            "the file is truncated or damaged: write it again, or exclude it",
        ))),
        FooterError::Store(error) => located.store_error(name, error),
    })?;
    let columns = FileColumns::Schema(without_metadata(&footer.schema));
    Ok(FileFindings::new(columns, pieces::of_batches(footer.batches(), meta.size)))
}

/// The schema of a table, from the columns of its files.
fn common_schema(
    located: &Located,
    location: &str,
    format: Format,
    columns: Vec<FileColumns>,
) -> Result<SchemaRef> {
    let name = |index: usize| display_name(located, &located.files[index]);
    let objects: Vec<Vec<&str>> = columns.iter().map(FileColumns::members).collect();
    if let Some(conflict) = differing_in_case(&objects) {
        return Err(differ(location, &conflict, name));
    }
    let mut shapes = Shape::Null;
    let mut schemas = Vec::new();
    let mut indexes = Vec::new();
    for (index, columns) in columns.into_iter().enumerate() {
        match columns {
            FileColumns::None => (),
            FileColumns::Objects(shape) => {
                let merged = shapes.merge(shape);
                merged.map_err(|column| incompatible(location, &column, &name(index)))?;
            }
            FileColumns::Schema(schema) => {
                if let Some(column) = duplicate_column(&schema) {
                    return Err(Error::DuplicateColumn { file: name(index), column });
                }
                schemas.push(schema);
                indexes.push(index);
            }
        }
    }
    // Every text is one of a CSV file; other formats have types.
    let texts = matches!(format, Format::Csv | Format::Tsv | Format::Excel);
    let otherwise = texts.then_some(DataType::Utf8);
    let merged = match shapes.into_schema() {
        Some(schema) => schema,
        None => unify_or(&schemas, otherwise.as_ref())
            .map_err(|conflict| differ(location, &conflict, |file| name(indexes[file])))?,
    };
    if merged.fields().is_empty() {
        return Err(Error::File(Box::new(no_column(&name(0), format))));
    }
    if merged.fields().len() > MAX_COLUMNS {
        let why = format!("the table has more than {MAX_COLUMNS} columns");
        return Err(Error::File(Box::new(wrong_line(&name(0), None, &why))));
    }
    let fields = merged.fields().iter().map(|field| as_read(&known(field, format)));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>())))
}

fn no_column(file: &str, format: Format) -> ErrorReport {
    if format == Format::Excel {
        let hint = "name another one: read_xlsx('…', sheet => '…')";
        return corrupt(file, "its sheet is empty", hint);
    }
    let why =
        "there is no column: a CSV file begins with a header line, and a JSON file has objects";
    wrong_line(file, None, why)
}

/// A column without any value in the samples is one of texts, which any value of a text file is; and
/// of numbers in a sheet, as in DuckDB.
fn known(field: &FieldRef, format: Format) -> FieldRef {
    match field.data_type() {
        DataType::Null if format == Format::Excel => {
            Arc::new(Field::new(field.name(), DataType::Float64, true))
        }
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
        _ => Arc::clone(field),
    }
}

fn differ(location: &str, conflict: &SchemaConflict, name: impl Fn(usize) -> String) -> Error {
    Error::SchemasDiffer { location: location.to_owned(), why: conflict.why(name) }
}

fn incompatible(location: &str, column: &str, file: &str) -> Error {
    let why = format!(
        "`{column}` is an object, a list or a value in `{file}`, and another in files before it"
    );
    Error::SchemasDiffer { location: location.to_owned(), why }
}
