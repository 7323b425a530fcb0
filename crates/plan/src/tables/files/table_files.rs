//! The files of a Parquet table from their footers: schema, statistics and row groups.
//!
//! A truncated file, or one that is not Parquet, is reported here by name, before any worker
//! starts.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::datasource::physical_plan::parquet::Int96Coercer;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Type;
use parquet::file::metadata::ParquetMetaData;
use snowmelt_execute::fault;
use snowmelt_execute::process::catch_panic;
use snowmelt_execute::scan::paths::{file_path, shown};
use snowmelt_execute::scan::{Footer, GrantedFiles};
use snowmelt_wire::FileGrant;

use super::unify::unify;
use crate::tables::locations::{Located, TableStorage};
use crate::{Error, Result};

/// The unit of INT96, the oldest form of timestamps.
const INT96_UNIT: TimeUnit = TimeUnit::Microsecond;

/// [`INT96_UNIT`] for the reader's options.
pub(crate) const INT96_OPTION: &str = "us";

/// A file of a table with its footer and statistics.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) meta: ObjectMeta,
    pub(crate) footer: Footer,
    pub(crate) statistics: Arc<Statistics>,
    /// True if all statistics of its row groups are in the types of the table.
    pub(crate) as_table: bool,
}

/// The common schema of all files, and their statistics, from their footers.
pub(crate) fn tabulate(
    located: &Located,
    footers: Vec<(ObjectMeta, Footer)>,
    location: &str,
) -> Result<(SchemaRef, Vec<TableFile>)> {
    let (schema, own) = merged_schema(located, &footers, location)?;
    let file = |((meta, footer), own): ((ObjectMeta, Footer), Schema)| {
        let corrupt = |why| Error::FileCorrupt { file: display_name(located, &meta), why };
        let read = catch_panic(|| statistics(&footer.metadata, &schema, &own));
        let (statistics, as_table) =
            read.map_err(corrupt)?.map_err(|error| corrupt(fault::root_message(&error)))?;
        Ok(TableFile { meta, footer, statistics: Arc::new(statistics), as_table })
    };
    let files = footers.into_iter().zip(own).map(file).collect::<Result<_>>()?;
    Ok((schema, files))
}

/// The store of a file. A local file gets a store of its own, so that few files are open
/// concurrently.
pub(crate) async fn store_of(located: &Located, meta: &ObjectMeta) -> Result<Arc<dyn ObjectStore>> {
    let files = match &located.source {
        TableStorage::Bucket(store) => return Ok(Arc::clone(store)),
        TableStorage::Local(files) => files,
    };
    let path = file_path(&meta.location).display().to_string();
    let file = files.open(&path).await?;
    let version = meta.version.clone().unwrap_or_default();
    let grant = FileGrant { path, bytes: meta.size, version };
    Ok(Arc::new(GrantedFiles::new(vec![(grant, file)], Arc::default())?))
}

/// A file's name for the user.
pub(crate) fn display_name(located: &Located, meta: &ObjectMeta) -> String {
    shown(located.url.as_str(), &meta.location)
}

/// The table's schema and that of each file.
fn merged_schema(
    located: &Located,
    footers: &[(ObjectMeta, Footer)],
    location: &str,
) -> Result<(SchemaRef, Vec<Schema>)> {
    let corrupt = |meta: &ObjectMeta, why: String| Error::FileCorrupt {
        file: display_name(located, meta),
        why,
    };
    let mut schemas = Vec::with_capacity(footers.len());
    for (meta, footer) in footers {
        let file = footer.metadata.file_metadata();
        let read =
            catch_panic(|| parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()));
        let schema = read.and_then(|schema| schema.map_err(|error| error.to_string()));
        let schema = schema.map_err(|why| corrupt(meta, why))?;
        schemas.push(without_metadata(&schema));
    }
    let names = |index: usize| display_name(located, &footers[index].0);
    for (index, schema) in schemas.iter().enumerate() {
        if let Some(column) = duplicate_column(schema) {
            return Err(Error::DuplicateColumn { file: names(index), column });
        }
    }
    let read: Vec<Schema> = footers.iter().zip(&schemas).map(as_decoded).collect();
    let merged = unify(&read).map_err(|conflict| Error::SchemasDiffer {
        location: location.to_owned(),
        why: conflict.why(names),
    })?;
    let old: HashSet<&str> =
        footers.iter().flat_map(|(_, footer)| int96_columns(&footer.metadata)).collect();
    let views: Vec<FieldRef> = merged
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            // Beside nanoseconds in other files.
            DataType::Timestamp(TimeUnit::Nanosecond, zone)
                if old.contains(field.name().as_str()) =>
            {
                let micros = DataType::Timestamp(INT96_UNIT, zone.clone());
                Arc::new(field.as_ref().clone().with_data_type(micros))
            }
            _ => as_read(field),
        })
        .collect();
    Ok((Arc::new(Schema::new(views)), schemas))
}

/// The schema of a file as the reader decodes it. INT96 is read in microseconds: nanoseconds end in
/// the year 2262, and writers use later dates for "never".
fn as_decoded(((_, footer), schema): (&(ObjectMeta, Footer), &Schema)) -> Schema {
    let parquet = footer.metadata.file_metadata().schema_descr();
    let decoded = Int96Coercer::new(parquet, schema, &INT96_UNIT).coerce();
    decoded.unwrap_or_else(|| schema.clone())
}

/// The columns of INT96 that are not nested.
fn int96_columns(footer: &ParquetMetaData) -> impl Iterator<Item = &str> {
    let columns = footer.file_metadata().schema_descr().root_schema().get_fields().iter();
    let int96 =
        columns.filter(|column| column.is_primitive() && column.get_physical_type() == Type::INT96);
    int96.map(|column| column.name())
}

/// A column name that occurs twice in a file: readers would read only one of the columns.
pub(crate) fn duplicate_column(schema: &Schema) -> Option<String> {
    let mut seen = HashSet::new();
    let mut names = schema.fields().iter().map(|field| field.name());
    names.find(|name| !seen.insert(name.as_str())).cloned()
}

/// The table's schema with the types of a file, which are needed to read its statistics; and the
/// indexes of the columns whose types differ, with their types in the file.
fn as_in_file(schema: &SchemaRef, file: &Schema) -> (SchemaRef, Vec<(usize, DataType)>) {
    let mut differing = Vec::new();
    let own = |(index, field): (usize, &FieldRef)| {
        let own = file.fields().find(field.name()).map(|(_, own)| as_view(own));
        match own {
            Some(own) if own.data_type() != field.data_type() => {
                differing.push((index, own.data_type().clone()));
                own
            }
            _ => Arc::clone(field),
        }
    };
    let fields: Vec<FieldRef> = schema.fields().iter().enumerate().map(own).collect();
    (Arc::new(Schema::new(fields)), differing)
}

/// The statistics of a file, in the types of the table, and whether all of them can be compared with
/// values of the table. For a converted column only the number of nulls is kept.
fn statistics(
    footer: &ParquetMetaData,
    schema: &SchemaRef,
    file: &Schema,
) -> datafusion::error::Result<(Statistics, bool)> {
    let (own, differing) = as_in_file(schema, file);
    let old: HashSet<&str> = int96_columns(footer).collect();
    // In the type that the table has, there are no statistics that could be compared wrongly.
    let unused = |(index, own): &(usize, DataType)| {
        let field = schema.field(*index);
        let half = *own == DataType::Float16 && *field.data_type() == DataType::Float32;
        half || old.contains(field.name().as_str())
    };
    let as_table = differing.iter().all(unused);
    let mut statistics = DFParquetMetadata::statistics_from_parquet_metadata(footer, &own)?;
    for (index, _) in differing {
        if let Some(column) = statistics.column_statistics.get_mut(index) {
            let null_count = column.null_count;
            *column = ColumnStatistics { null_count, ..ColumnStatistics::new_unknown() };
        }
    }
    // Writers leave NaN out of them: the minimum and the maximum of a column of one number and NaN
    // are that number, which must not stand for all of its values.
    for (field, column) in schema.fields().iter().zip(&mut statistics.column_statistics) {
        if field.data_type().is_floating() {
            column.min_value = std::mem::take(&mut column.min_value).to_inexact();
            column.max_value = std::mem::take(&mut column.max_value).to_inexact();
        }
    }
    Ok((statistics, as_table))
}

/// Removes the metadata of columns, which differs between files and does not affect a query. Most
/// columns have no metadata and are shared, not copied.
pub(crate) fn without_metadata(schema: &Schema) -> Schema {
    let clear = |field: &FieldRef| match field.metadata().is_empty() {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_metadata(Default::default())),
    };
    Schema::new(schema.fields().iter().map(clear).collect::<Vec<FieldRef>>())
}

/// A column as it is read: strings as views, and half floats, which neither the codec of plans nor
/// most functions know, as `REAL`.
pub(crate) fn as_read(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Float16 => Arc::new(field.as_ref().clone().with_data_type(DataType::Float32)),
        _ => as_view(field),
    }
}

/// Strings are read as views, which point into the decoded pages and need no copy.
fn as_view(field: &FieldRef) -> FieldRef {
    let view = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(view))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn only_columns_with_metadata_are_copied() {
        let plain = Field::new("a", DataType::Int64, true);
        let note = HashMap::from([("PARQUET:field_id".to_owned(), "1".to_owned())]);
        let noted = Field::new("b", DataType::Int64, true).with_metadata(note);
        let read = Schema::new(vec![plain, noted]);
        let kept = without_metadata(&read);
        assert!(Arc::ptr_eq(&read.fields()[0], &kept.fields()[0]));
        assert_eq!(kept.field(1), &Field::new("b", DataType::Int64, true));
        assert_eq!(duplicate_column(&kept), None);
    }

    #[test]
    fn a_duplicate_column_is_named() {
        let column = |name| Field::new(name, DataType::Int64, true);
        let schema = Schema::new(vec![column("a"), column("b"), column("a")]);
        assert_eq!(duplicate_column(&schema).as_deref(), Some("a"));
    }
}
