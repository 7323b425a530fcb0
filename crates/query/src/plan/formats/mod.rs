//! Tables of files that are not Parquet: CSV, JSON and Arrow.
//!
//! The columns of text files come from samples: the first bytes of each file. Every value that is
//! read later must have the type of its column, or the query fails and names its line.

mod csv;
mod early;
mod pieces;
mod prune;
mod sample;
mod shape;
mod table;
mod values;

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use snowmelt_files::{Compression, Format, Kind};

use super::files::{as_read, display_name, duplicate_column, store_of, without_metadata};
use super::footer::FooterError;
use super::location::Located;
use super::unify::{Conflict, differing_in_case, unify_or};
use crate::read::{MAX_COLUMNS, arrow_footer, corrupt, wrong_line};
use crate::{Error, Result};
use pieces::Piece;
use sample::Sampler;
use shape::Shape;

pub(super) use early::may_end_early;
pub(super) use table::FilesTable;

/// Number of files whose beginnings are read concurrently.
const CONCURRENT_READS: usize = 32;

/// A file of a table.
#[derive(Clone, Debug)]
struct TableFile {
    meta: ObjectMeta,
    /// What different workers can read.
    pieces: Vec<Piece>,
}

/// The columns of one file, and what else its beginning or footer tells.
#[derive(Debug)]
struct Found {
    columns: Columns,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Columns {
    /// The file has neither rows nor columns.
    None,
    /// Names and types.
    Schema(Schema),
    /// The types of JSON objects.
    Objects(Shape),
}

impl Columns {
    /// The names of the members of objects.
    fn members(&self) -> Vec<&str> {
        match self {
            Self::Objects(shape) => shape.members().collect(),
            Self::None | Self::Schema(_) => Vec::new(),
        }
    }
}

/// The format of a table's files.
pub(super) fn format_of(located: &Located, location: &str) -> Result<Format> {
    let names: Vec<String> = located.files.iter().map(|meta| display_name(located, meta)).collect();
    let format = snowmelt_files::common_format(names.iter().map(Path::new));
    Ok(format
        .map_err(|found| snowmelt_files::Error::Mixed { location: location.to_owned(), found })?)
}

/// Reads the columns of all files, and their common schema.
async fn read(
    located: &Located,
    location: &str,
    format: Format,
) -> Result<(SchemaRef, Vec<TableFile>)> {
    let sampler = Sampler::new(located);
    // Boxed individually: a stream of unnamed futures is not `Send`.
    let reads: Vec<BoxFuture<'_, _>> =
        located.files.iter().map(|meta| found_in(&sampler, meta, format).boxed()).collect();
    let found: Vec<Found> =
        futures::stream::iter(reads).buffered(CONCURRENT_READS).try_collect().await?;
    let (columns, pieces): (Vec<Columns>, Vec<Vec<Piece>>) =
        found.into_iter().map(|found| (found.columns, found.pieces)).unzip();
    let schema = common_schema(located, location, format, columns)?;
    let files = located.files.iter().cloned().zip(pieces);
    Ok((schema, files.map(|(meta, pieces)| TableFile { meta, pieces }).collect()))
}

async fn found_in(sampler: &Sampler<'_>, meta: &ObjectMeta, format: Format) -> Result<Found> {
    let kind = Kind::of(Path::new(meta.location.as_ref()));
    let compression = kind.map_or(Compression::None, |kind| kind.compression);
    let name = display_name(sampler.located, meta);
    match format {
        Format::Arrow => arrow(sampler.located, meta, &name).await,
        Format::Json => shape::of_file(sampler, meta, compression, &name).await,
        _ => csv::of_file(sampler, meta, Kind { format, compression }, &name).await,
    }
}

async fn arrow(located: &Located, meta: &ObjectMeta, name: &str) -> Result<Found> {
    let store = store_of(located, meta).await?;
    let footer = arrow_footer(store.as_ref(), meta).await.map_err(|error| match error {
        FooterError::Corrupt(why) => Error::File(Box::new(corrupt(
            name,
            &why,
            "the file is truncated or damaged: write it again, or exclude it",
        ))),
        FooterError::Store(error) => located.store_error(name, error),
    })?;
    let columns = Columns::Schema(without_metadata(&footer.schema));
    Ok(Found { columns, pieces: pieces::of_batches(footer.batches(), meta.size) })
}

/// The schema of a table, from the columns of its files.
fn common_schema(
    located: &Located,
    location: &str,
    format: Format,
    columns: Vec<Columns>,
) -> Result<SchemaRef> {
    let name = |index: usize| display_name(located, &located.files[index]);
    let objects: Vec<Vec<&str>> = columns.iter().map(Columns::members).collect();
    if let Some(conflict) = differing_in_case(&objects) {
        return Err(differ(location, &conflict, name));
    }
    let (mut shapes, mut schemas, mut indexes) = (Shape::Null, Vec::new(), Vec::new());
    for (index, columns) in columns.into_iter().enumerate() {
        match columns {
            Columns::None => (),
            Columns::Objects(shape) => {
                let merged = shapes.merge(shape);
                merged.map_err(|column| incompatible(location, &column, &name(index)))?;
            }
            Columns::Schema(schema) => {
                if let Some(column) = duplicate_column(&schema) {
                    return Err(Error::DuplicateColumn { file: name(index), column });
                }
                schemas.push(schema);
                indexes.push(index);
            }
        }
    }
    // Every text is one of a CSV file; other formats have types.
    let otherwise = matches!(format, Format::Csv | Format::Tsv).then_some(DataType::Utf8);
    let merged = match shapes.into_schema() {
        Some(schema) => schema,
        None => unify_or(&schemas, otherwise.as_ref())
            .map_err(|conflict| differ(location, &conflict, |file| name(indexes[file])))?,
    };
    if merged.fields().is_empty() {
        let why = "there is no column: a CSV file begins with a header line, and a JSON file has an object in each line";
        return Err(Error::File(Box::new(wrong_line(&name(0), None, why))));
    }
    if merged.fields().len() > MAX_COLUMNS {
        let why = format!("the table has more than {MAX_COLUMNS} columns");
        return Err(Error::File(Box::new(wrong_line(&name(0), None, &why))));
    }
    let fields = merged.fields().iter().map(|field| as_read(&known(field)));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>())))
}

/// A column without any value in the samples is one of texts, which any value of a text file is.
fn known(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
        _ => Arc::clone(field),
    }
}

fn differ(location: &str, conflict: &Conflict, name: impl Fn(usize) -> String) -> Error {
    Error::SchemasDiffer { location: location.to_owned(), why: conflict.why(name) }
}

fn incompatible(location: &str, column: &str, file: &str) -> Error {
    let why = format!(
        "`{column}` is an object, a list or a value in `{file}`, and another in files before it"
    );
    Error::SchemasDiffer { location: location.to_owned(), why }
}
