//! The source that takes the place of DataFusion's.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    ArrowSource, CsvSource, FileOpenFuture, FileOpener, FileScanConfig, FileScanConfigBuilder,
    FileSource, JsonSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use futures::{FutureExt, StreamExt};
use object_store::ObjectStore;
use snowmelt_files::{Compression, Format, Kind};

use super::Dialect;
use super::arrow_file::ArrowFile;
use super::blocks::range::StoreFile;
use super::sheet::SheetFile;
use super::text_file::TextFile;
use crate::context::BATCH_ROWS;
use crate::scan::paths::shown;
use crate::tree::file_scan;

/// Replaces the reader of a scan, unless it is one of Parquet files.
pub(super) fn replace(
    node: Arc<dyn ExecutionPlan>,
) -> DfResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let own = file_scan(&node).and_then(|scan| Some((scan, OwnSource::replacing(scan)?)));
    let Some((scan, own)) = own else { return Ok(Transformed::no(node)) };
    let config = FileScanConfigBuilder::from(scan.clone()).with_source(Arc::new(own)).build();
    Ok(Transformed::yes(DataSourceExec::from_data_source(config)))
}

/// A source with the readers of this module.
#[derive(Clone)]
struct OwnSource {
    format: Format,
    /// The name that DataFusion has for the format.
    file_type: String,
    schema: TableSchema,
    projection: SplitProjection,
    rows: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl OwnSource {
    fn replacing(scan: &FileScanConfig) -> Option<Self> {
        let source = scan.file_source();
        let format = match source.downcast_ref::<CsvSource>() {
            Some(csv) if csv.delimiter() == b'\t' => Format::Tsv,
            Some(_) => Format::Csv,
            None if source.is::<JsonSource>() => Format::Json,
            None if source.is::<ArrowSource>() => Format::Arrow,
            None => return None,
        };
        let schema = source.table_schema().clone();
        let projection = match source.projection() {
            Some(projection) => SplitProjection::new(schema.file_schema(), projection),
            None => SplitProjection::unprojected(&schema),
        };
        Some(Self {
            format,
            file_type: source.file_type().to_owned(),
            schema,
            projection,
            rows: BATCH_ROWS,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl FileSource for OwnSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _partition: usize,
    ) -> DfResult<Arc<dyn FileOpener>> {
        let file_schema = self.schema.file_schema();
        let wanted = Arc::new(file_schema.project(&self.projection.file_indices)?);
        let format = self.format;
        let rows = self.rows;
        let url = config.object_store_url.clone();
        let all = Arc::clone(file_schema);
        let indices = self.projection.file_indices.clone();
        let opener = Arc::new(Opener { format, store, url, wanted, all, indices, rows });
        ProjectionOpener::try_new(self.projection.clone(), opener, file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.schema
    }

    fn with_batch_size(&self, rows: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { rows, ..self.clone() })
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        &self.file_type
    }

    fn fmt_extra(&self, _how: DisplayFormatType, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        datafusion::physical_plan::apply_expression_roots(self.projection.source.iter(), visit)
    }
}

struct Opener {
    format: Format,
    store: Arc<dyn ObjectStore>,
    url: ObjectStoreUrl,
    wanted: SchemaRef,
    /// All columns of the table's files, and the indexes of the wanted ones.
    all: SchemaRef,
    indices: Vec<usize>,
    rows: usize,
}

impl FileOpener for Opener {
    fn open(&self, file: PartitionedFile) -> DfResult<FileOpenFuture> {
        let range = file.range.as_ref().map(bytes_of).transpose()?;
        let mut dialect = Dialect::received(&file, self.format)?;
        let store = Arc::clone(&self.store);
        let meta = file.object_meta;
        let wanted = Arc::clone(&self.wanted);
        let rows = self.rows;
        let name = shown(self.url.as_str(), &meta.location);
        if self.format == Format::Arrow {
            let file = ArrowFile { store, meta, name, range, wanted, rows };
            return Ok(file.batches().boxed());
        }
        if let Some(place) = dialect.sheet.take() {
            let file = SheetFile { store, meta, name, place, wanted, rows };
            return Ok(file.batches().boxed());
        }
        // The codec does not send the compression of a scan, and the files of one may differ in it.
        let compression = Compression::of(Path::new(meta.location.as_ref()));
        let kind = Kind { format: self.format, compression };
        let stored = StoreFile { store, location: meta.location, size: meta.size };
        if !dialect.ignores_errors {
            let file = TextFile { stored, name, kind, dialect, range, wanted, rows };
            return Ok(file.batches().boxed());
        }
        // Which records fit must not depend on the columns that a query uses.
        let wanted = Arc::clone(&self.all);
        let indices = self.indices.clone();
        let file = TextFile { stored, name, kind, dialect, range, wanted, rows };
        let projected =
            move |batch: RecordBatch| -> DfResult<RecordBatch> { Ok(batch.project(&indices)?) };
        let read = async move {
            let batches = file.batches().await?;
            Ok(batches.map(move |batch| batch.and_then(&projected)).boxed())
        };
        Ok(read.boxed())
    }
}

fn bytes_of(range: &datafusion::datasource::listing::FileRange) -> DfResult<Range<u64>> {
    match (u64::try_from(range.start), u64::try_from(range.end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(start..end),
        _ => {
            Err(DataFusionError::Internal(format!("{}..{} is not a range", range.start, range.end)))
        }
    }
}
