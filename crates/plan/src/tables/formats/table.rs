//! DataFusion's table provider for CSV, JSON and Arrow files and workbooks.

use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions as SourceOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    ArrowSource, CsvSource, FileGroup, FileScanConfigBuilder, FileSource, JsonSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as DfResult;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use snowmelt_execute::read::Dialect;
use snowmelt_files::{Compression, Format};

use super::{ReadOptions, TableFile, prune};
use crate::Result;
use crate::tables::files::{FileTable, FolderColumns, columns_beside};
use crate::tables::info::{ReadBytes, TableInfo, version_of};
use crate::tables::locations::Located;
use crate::tables::split::{self, Unit};

/// A table of files of one format, other than Parquet.
#[derive(Debug)]
pub(crate) struct FilesTable {
    format: Format,
    /// The columns of the files, followed by those of their folders.
    schema: TableSchema,
    folder_columns: FolderColumns,
    url: ObjectStoreUrl,
    files: Vec<TableFile>,
    workers: usize,
    /// True if the query may end before it has read all rows.
    ends_early: bool,
}

impl FilesTable {
    /// Reads the columns of the files of a location.
    pub(crate) async fn open(
        located: Located,
        location: &str,
        format: Format,
        options: ReadOptions<'_>,
        filename: Option<&str>,
        workers: u32,
        ends_early: bool,
    ) -> Result<Self> {
        let (schema, files) = super::read(&located, location, format, options).await?;
        let metas = files.iter().map(|file| &file.meta);
        let folder_columns = columns_beside(metas, &schema, &located.url, filename)?;
        let columns = folder_columns.columns.clone();
        let schema = TableSchema::builder(schema).with_table_partition_cols(columns).build();
        let workers = workers.max(1) as usize;
        let url = located.url;
        Ok(Self { format, schema, folder_columns, url, files, workers, ends_early })
    }

    pub(crate) fn info(&self, name: &str) -> TableInfo {
        let row_groups = self.files.iter().map(|file| file.pieces.len()).sum();
        let version = version_of(self.files.iter().map(|file| &file.meta));
        TableInfo { name: name.to_owned(), files: self.files.len(), row_groups, version }
    }

    /// The files in groups, one for each partition. Whether a line break where a text is divided
    /// ends a record is known only when the part before it has been read to its end. So a query
    /// that may end earlier does not divide them.
    fn file_groups(&self, kept: &[bool]) -> DfResult<Vec<FileGroup>> {
        let divided = self.format == Format::Arrow || !self.ends_early;
        let files = self.files.iter().enumerate();
        let files = files.filter(|(file, _)| kept.get(*file).copied().unwrap_or(true));
        let units = files.flat_map(|(file, found)| {
            let pieces = found.pieces.iter().map(move |piece| Unit {
                file,
                start: piece.range.start as i64,
                end: piece.range.end as i64,
                bytes: piece.bytes,
            });
            let size = found.meta.size;
            let whole = Unit { file, start: 0, end: size as i64, bytes: size };
            let whole = (!divided).then_some(whole);
            let pieces = pieces.filter(move |_| whole.is_none());
            whole.into_iter().chain(pieces)
        });
        let distributed = split::distribute(&units.collect::<Vec<_>>(), self.workers);
        let group = |units: Vec<Unit>| {
            let parts = units.iter().map(|unit| self.part(unit));
            Ok(FileGroup::new(parts.collect::<DfResult<_>>()?))
        };
        distributed.into_iter().map(group).collect()
    }

    fn part(&self, unit: &Unit) -> DfResult<PartitionedFile> {
        let TableFile { meta, dialect, .. } = &self.files[unit.file];
        let values = self.folder_columns.values.get(unit.file).cloned().unwrap_or_default();
        let part = PartitionedFile::new_from_meta(meta.clone())
            .with_partition_values(values)
            .with_extension(ReadBytes(unit.bytes));
        let part = match unit.start == 0 && unit.end as u64 == meta.size {
            true => part,
            false => part.with_range(unit.start, unit.end),
        };
        match dialect {
            Some(dialect) => dialect.sent_with(part),
            None => Ok(part),
        }
    }

    fn source(&self) -> Arc<dyn FileSource> {
        let schema = self.schema.clone();
        match self.format {
            Format::Arrow => Arc::new(ArrowSource::new_file_source(schema)),
            Format::Json => Arc::new(JsonSource::new(schema)),
            format => {
                let options = SourceOptions {
                    has_header: Some(true),
                    delimiter: Dialect::of(format).delimiter,
                    newlines_in_values: Some(self.files.iter().any(is_kept_whole)),
                    truncated_rows: Some(false),
                    ..SourceOptions::default()
                };
                Arc::new(CsvSource::new(schema).with_csv_options(options))
            }
        }
    }
}

/// True if a text file would be divided, but has line breaks in values.
fn is_kept_whole(file: &TableFile) -> bool {
    let plain = Compression::of(Path::new(file.meta.location.as_ref())) == Compression::None;
    plain && file.pieces.len() < super::pieces::of_lines(file.meta.size).len()
}

impl FileTable for FilesTable {
    fn schema(&self) -> &TableSchema {
        &self.schema
    }

    fn support(&self, filter: &Expr) -> TableProviderFilterPushDown {
        // A filter that leaves out files also stays in the plan.
        match prune::is_of_folders(filter, &self.folder_columns) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        }
    }

    fn scan(
        &self,
        state: &dyn Session,
        _: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> DfResult<FileScanConfigBuilder> {
        // A filter that cannot be evaluated fails when the query runs, if it does.
        let kept = prune::kept(&self.folder_columns, filters, state).unwrap_or_default();
        Ok(FileScanConfigBuilder::new(self.url.clone(), self.source())
            .with_file_groups(self.file_groups(&kept)?))
    }
}
