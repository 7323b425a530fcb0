//! DataFusion's table provider for CSV, JSON and Arrow files.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::CsvOptions;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    ArrowSource, CsvSource, FileGroup, FileScanConfigBuilder, FileSource, JsonSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as DfResult;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_files::{Compression, Format, Kind};

use super::super::hive::FolderColumns;
use super::super::location::Located;
use super::super::split::{self, Unit};
use super::super::table::{ReadBytes, TableInfo};
use super::TableFile;
use crate::Result;
use crate::read::delimiter;

/// A table of files of one format, other than Parquet.
#[derive(Debug)]
pub(in super::super) struct FilesTable {
    format: Format,
    /// The columns of the files, followed by those of their folders.
    schema: TableSchema,
    folder_columns: FolderColumns,
    url: ObjectStoreUrl,
    files: Vec<TableFile>,
    workers: usize,
}

impl FilesTable {
    /// Reads the columns of the files of a location.
    pub(in super::super) async fn open(
        located: Located,
        location: &str,
        format: Format,
        workers: u32,
    ) -> Result<Self> {
        let (schema, files) = super::read(&located, location, format).await?;
        let paths = files.iter().map(|file| &file.meta.location);
        let folder_columns = FolderColumns::find(paths, &schema);
        let columns = folder_columns.columns.clone();
        let schema = TableSchema::builder(schema).with_table_partition_cols(columns).build();
        let workers = workers.max(1) as usize;
        Ok(Self { format, schema, folder_columns, url: located.url, files, workers })
    }

    pub(in super::super) fn info(&self, name: &str) -> TableInfo {
        let row_groups = self.files.iter().map(|file| file.pieces.len()).sum();
        TableInfo { name: name.to_owned(), files: self.files.len(), row_groups }
    }

    /// The files in groups, one for each partition. For a limit files are not divided: whether a
    /// line break where a text is divided ends a record is known only when the part before it has
    /// been read to its end.
    fn file_groups(&self, limit: Option<usize>) -> Vec<FileGroup> {
        let text = self.format != Format::Arrow;
        let units = self.files.iter().enumerate().flat_map(|(file, found)| {
            let pieces = found.pieces.iter().map(move |piece| Unit {
                file,
                start: piece.range.start as i64,
                end: piece.range.end as i64,
                bytes: piece.bytes,
            });
            let size = found.meta.size;
            let whole = Unit { file, start: 0, end: size as i64, bytes: size };
            let whole = (text && limit.is_some()).then_some(whole);
            let pieces = pieces.filter(move |_| whole.is_none());
            whole.into_iter().chain(pieces)
        });
        let distributed = split::distribute(&units.collect::<Vec<_>>(), self.workers);
        let group = |units: Vec<Unit>| FileGroup::new(units.iter().map(|u| self.part(u)).collect());
        distributed.into_iter().map(group).collect()
    }

    fn part(&self, unit: &Unit) -> PartitionedFile {
        let meta = &self.files[unit.file].meta;
        let values = self.folder_columns.values.get(unit.file).cloned().unwrap_or_default();
        let part = PartitionedFile::new_from_meta(meta.clone())
            .with_partition_values(values)
            .with_extension(ReadBytes(unit.bytes));
        match unit.start == 0 && unit.end as u64 == meta.size {
            true => part,
            false => part.with_range(unit.start, unit.end),
        }
    }

    fn source(&self) -> Arc<dyn FileSource> {
        let schema = self.schema.clone();
        match self.format {
            Format::Arrow => Arc::new(ArrowSource::new_file_source(schema)),
            Format::Json => Arc::new(JsonSource::new(schema)),
            format => {
                let options = CsvOptions {
                    has_header: Some(true),
                    delimiter: delimiter(format),
                    newlines_in_values: Some(self.files.iter().any(is_kept_whole)),
                    truncated_rows: Some(false),
                    ..CsvOptions::default()
                };
                Arc::new(CsvSource::new(schema).with_csv_options(options))
            }
        }
    }
}

/// True if a text file would be divided, but has line breaks in values.
fn is_kept_whole(file: &TableFile) -> bool {
    let kind = Kind::of(Path::new(file.meta.location.as_ref()));
    let plain = kind.is_none_or(|kind| kind.compression == Compression::None);
    plain && file.pieces.len() < super::pieces::of_lines(file.meta.size).len()
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let config = FileScanConfigBuilder::new(self.url.clone(), self.source())
            .with_file_groups(self.file_groups(limit))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
