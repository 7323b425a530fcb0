//! Reads the Parquet files of a task. DataFusion's opener decides what is read of a file and decodes
//! it; here are the requests.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileMetrics, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as DfResult;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use super::row_groups::{Expected, RemoteFile, RowGroups};
use super::{Footers, Pruning};
use crate::tree::file_scan;

/// The footers of each store that a task reads, by the store's URL.
pub type StoreFooters = HashMap<String, Arc<Footers>>;

/// Replaces what the Parquet scans of a plan read their files with. The operators above keep their
/// properties: with them they share filters with the scans. A row group of at most `most_ahead` bytes
/// is read ahead.
pub fn with_own_parquet_reader(
    node: Arc<dyn ExecutionPlan>,
    runtime: &RuntimeEnv,
    footers: &StoreFooters,
    most_ahead: u64,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = file_scan(&node) {
        let own = own_source(scan, runtime, footers, most_ahead)?;
        return Ok(own.map_or(node, |scan| DataSourceExec::from_data_source(scan)));
    }
    let before = node.children();
    let replaced = |child: &&Arc<dyn ExecutionPlan>| {
        with_own_parquet_reader(Arc::clone(child), runtime, footers, most_ahead)
    };
    let children = before.iter().map(replaced).collect::<DfResult<Vec<_>>>()?;
    if children.iter().zip(before).all(|(after, before)| Arc::ptr_eq(after, before)) {
        return Ok(node);
    }
    let same = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    node.replace_children(children, same)
}

/// Gives a Parquet source its own reader. `None` for other formats.
fn own_source(
    scan: &FileScanConfig,
    runtime: &RuntimeEnv,
    footers: &StoreFooters,
    most_ahead: u64,
) -> DfResult<Option<FileScanConfig>> {
    let Some(source) = scan.file_source().downcast_ref::<ParquetSource>() else { return Ok(None) };
    let url = &scan.object_store_url;
    let Some(footers) = footers.get(url.as_str()) else { return Ok(None) };
    let readers = ReaderFactory {
        store: runtime.object_store(url)?,
        footers: Arc::clone(footers),
        schema: Arc::clone(scan.file_schema()),
        filter: source.filter(),
        is_limited: scan.limit.is_some(),
        is_remote: url.as_str().starts_with("s3://"),
        most_ahead,
    };
    let source = source.clone().with_parquet_file_reader_factory(Arc::new(readers));
    let scan = FileScanConfigBuilder::from(scan.clone()).with_source(Arc::new(source));
    Ok(Some(scan.build()))
}

/// Opens the files of a scan.
#[derive(Clone, Debug)]
struct ReaderFactory {
    store: Arc<dyn ObjectStore>,
    footers: Arc<Footers>,
    /// The columns of the files.
    schema: SchemaRef,
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// True if the scan may end before all of its files are read.
    is_limited: bool,
    is_remote: bool,
    /// The most bytes of a row group that is read ahead.
    most_ahead: u64,
}

impl ParquetFileReaderFactory for ReaderFactory {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> DfResult<Box<dyn AsyncFileReader + Send>> {
        let location = file.object_meta.location.clone();
        let metrics = ParquetFileMetrics::new(partition_index, location.as_ref(), metrics);
        let row_groups = self.is_remote.then(|| {
            let store = Arc::clone(&self.store);
            let counters = Arc::clone(self.footers.counters());
            RowGroups::new(RemoteFile { store, location, counters }, self.most_ahead)
        });
        Ok(Box::new(ScanReader {
            readers: self.clone(),
            file,
            metrics,
            row_groups,
            expected: None,
        }))
    }
}

/// Reads one file.
struct ScanReader {
    readers: ReaderFactory,
    file: PartitionedFile,
    metrics: ParquetFileMetrics,
    /// The reader of row groups. `None` for a local file, whose reads run on the calling thread.
    row_groups: Option<RowGroups>,
    expected: Option<Arc<Expected>>,
}

impl ScanReader {
    /// The row groups of the file that will be asked for.
    async fn expected(&mut self) -> Result<Arc<Expected>> {
        if let Some(expected) = &self.expected {
            return Ok(Arc::clone(expected));
        }
        let ReaderFactory { footers, store, filter, schema, .. } = &self.readers;
        let metadata =
            footers.get(store.as_ref(), &self.file.object_meta, PageIndexPolicy::Skip).await?;
        let changes = filter.as_ref().is_some_and(|filter| {
            matches!(DynamicFilterTracking::classify(filter), DynamicFilterTracking::Watching(_))
        });
        let pruning = Pruning::new(filter.clone(), schema);
        let left = pruning.row_groups(self.file.range.as_ref(), &metadata);
        let is_certain = !changes && !self.readers.is_limited;
        let expected = Arc::new(Expected { metadata, left, is_certain });
        self.expected = Some(Arc::clone(&expected));
        Ok(expected)
    }
}

impl AsyncFileReader for ScanReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.metrics.bytes_scanned.add((range.end - range.start) as usize);
        let read = async move {
            let location = &self.file.object_meta.location;
            let bytes = self.readers.store.get_range(location, range).await;
            bytes.map_err(|error| ParquetError::External(Box::new(error)))
        };
        read.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.metrics.bytes_scanned.add(total as usize);
        let read = async move {
            if self.row_groups.is_some() {
                let expected = self.expected().await?;
                if let Some(row_groups) = &mut self.row_groups {
                    return row_groups.read(ranges, &expected).await;
                }
            }
            let location = &self.file.object_meta.location;
            let bytes = self.readers.store.get_ranges(location, &ranges).await;
            bytes.map_err(|error| ParquetError::External(Box::new(error)))
        };
        read.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        let pages = options.map_or(PageIndexPolicy::Skip, ArrowReaderOptions::column_index_policy);
        let ReaderFactory { footers, store, .. } = &self.readers;
        footers.get(store.as_ref(), &self.file.object_meta, pages).boxed()
    }
}

impl Drop for ScanReader {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.scan_efficiency_ratio.add_part(metrics.bytes_scanned.value());
        // Not added: a file may be read in several parts.
        metrics.scan_efficiency_ratio.set_total(self.file.object_meta.size as usize);
    }
}
