//! The footers of a table's files: schema, statistics and row groups, each read once.
//!
//! A file that is truncated or no Parquet is found here, by name, before any worker starts.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Statistics;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use snowmelt_wire::FileGrant;

use super::footer::{self, Unreadable};
use super::location::{Located, Source};
use crate::scan::{GrantedFiles, file_path};
use crate::{Error, Result, fault};

/// Footers that are read at once.
const CONCURRENT_FOOTERS: usize = 32;

/// A file of a table with what its footer says.
#[derive(Clone, Debug)]
pub(super) struct TableFile {
    pub(super) meta: ObjectMeta,
    pub(super) footer: Arc<ParquetMetaData>,
    pub(super) statistics: Arc<Statistics>,
}

/// Reads the footers of all files and the schema that they share.
pub(super) async fn read(located: &Located, location: &str) -> Result<(SchemaRef, Vec<TableFile>)> {
    // Boxed one by one: a stream of unnamed futures could not be sent to another thread.
    let reads: Vec<BoxFuture<'_, _>> =
        located.files.iter().map(|meta| footer_of(located, meta).boxed()).collect();
    let footers: Vec<(ObjectMeta, Arc<ParquetMetaData>)> =
        futures::stream::iter(reads).buffered(CONCURRENT_FOOTERS).try_collect().await?;
    let schema = merged_schema(located, &footers, location)?;
    let file = |(meta, footer): (ObjectMeta, Arc<ParquetMetaData>)| {
        let corrupt = |why| Error::FileCorrupt { file: shown(located, &meta), why };
        let read = footer::guarded(|| {
            DFParquetMetadata::statistics_from_parquet_metadata(&footer, &schema)
        });
        let statistics = read.map_err(corrupt)?.map_err(|error| corrupt(fault::plain(&error)))?;
        Ok(TableFile { meta, footer, statistics: Arc::new(statistics) })
    };
    let files = footers.into_iter().map(file).collect::<Result<_>>()?;
    Ok((schema, files))
}

async fn footer_of(
    located: &Located,
    meta: &ObjectMeta,
) -> Result<(ObjectMeta, Arc<ParquetMetaData>)> {
    let store = store_of(located, meta).await?;
    let read = footer::read(store.as_ref(), meta).await;
    let file = || shown(located, meta);
    match read {
        Ok(footer) => Ok((meta.clone(), footer)),
        Err(Unreadable::Corrupt(why)) => Err(Error::FileCorrupt { file: file(), why }),
        Err(Unreadable::Store(object_store::Error::Precondition { .. })) => {
            Err(Error::FileChanged { file: file() })
        }
        Err(Unreadable::Store(source)) => {
            Err(Error::Storage { location: file(), source, anonymous: located.anonymous })
        }
    }
}

/// The store that holds a file: for a local one, a store of that file alone, so that few are open
/// at once.
async fn store_of(located: &Located, meta: &ObjectMeta) -> Result<Arc<dyn ObjectStore>> {
    let files = match &located.source {
        Source::Bucket(store) => return Ok(Arc::clone(store)),
        Source::Local(files) => files,
    };
    let path = file_path(&meta.location).display().to_string();
    let file = files.open(&path).await?;
    let version = meta.version.clone().unwrap_or_default();
    let grant = FileGrant { path, bytes: meta.size, version };
    Ok(Arc::new(GrantedFiles::new(vec![(grant, file)], Arc::default())?))
}

/// A file's name as its user knows it.
fn shown(located: &Located, meta: &ObjectMeta) -> String {
    if located.url.as_str().starts_with("file:") {
        return file_path(&meta.location).display().to_string();
    }
    format!("{}{}", located.url.as_str(), meta.location)
}

fn merged_schema(
    located: &Located,
    footers: &[(ObjectMeta, Arc<ParquetMetaData>)],
    location: &str,
) -> Result<SchemaRef> {
    let corrupt =
        |meta: &ObjectMeta, why: String| Error::FileCorrupt { file: shown(located, meta), why };
    let mut schemas = Vec::with_capacity(footers.len());
    for (meta, footer) in footers {
        let file = footer.file_metadata();
        let read = footer::guarded(|| {
            parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())
        });
        let schema = read.and_then(|schema| schema.map_err(|error| error.to_string()));
        let schema = schema.map_err(|why| corrupt(meta, why))?;
        schemas.push(without_metadata(&schema));
    }
    let merged = Schema::try_merge(schemas).map_err(|error| Error::SchemasDiffer {
        location: location.to_owned(),
        why: error.to_string(),
    })?;
    let views: Vec<FieldRef> = merged.fields().iter().map(as_view).collect();
    Ok(Arc::new(Schema::new(views)))
}

/// What a writer noted beside the columns differs between files and means nothing to a query.
fn without_metadata(schema: &Schema) -> Schema {
    let clear = |field: &FieldRef| field.as_ref().clone().with_metadata(Default::default());
    Schema::new(schema.fields().iter().map(clear).collect::<Vec<Field>>())
}

/// Strings are read as views, which point into the decoded pages instead of being copied out.
fn as_view(field: &FieldRef) -> FieldRef {
    let view = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(view))
}
