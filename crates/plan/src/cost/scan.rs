//! The requests that a task sends for the parts of files that it scans, counted as the reader sends
//! them (DataFusion's Parquet opener, and `scan::reader`):
//!
//! - a file whose statistics contradict the filter: none;
//! - the footer of each other file: none if the task is sent it; otherwise once for each task, in one
//!   request to a bucket and in two to a local file;
//! - the page index, if a filter may use it: one for each part of a file;
//! - Bloom filters of columns that the filter compares with constants, or a join with few keys: one
//!   for each row group and column, two if the file does not say how long they are;
//! - each row group that is left: one for each run of column chunks with gaps of at most 1 MiB, and
//!   more of the last one of a part if these are long.
//!
//! Not known before the query runs: how many row groups the keys of a join leave out, and which
//! pages the page index leaves out. Both can only make the requests fewer.

use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::physical_plan::parquet::PagePruningAccessPlanFilter;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_optimizer::pruning::FilePruner;
use datafusion::physical_plan::metrics::Count;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use snowmelt_execute::scan::{Footer, LeftGroups, Pruning, Requests};

use super::reads::Reads;
use super::task_footers::TaskFooters;
use crate::tables::read_bytes;

/// Bytes of a Bloom filter's header, which tells its length.
const BLOOM_HEADER: u64 = 20;

/// A filter that a join fills with the keys of its build side before its probe side is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) id: u64,
    /// True if the filter has so few keys that they are compared one by one.
    pub(super) few_keys: bool,
}

/// A scan as a task sees it.
pub(super) struct Scan<'s> {
    config: &'s FileScanConfig,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    pruning: Pruning,
    pages: bool,
    // The join's filter is only known when it runs, so that no row group surely passes it.
    joined: bool,
    // Columns that are compared with the keys of a join.
    compared: Vec<String>,
    columns: Vec<String>,
}

impl<'s> Scan<'s> {
    /// Creates a scan. `filled` are the filters that joins of the same stage fill before the scan
    /// begins.
    pub(super) fn new(config: &'s FileScanConfig, filled: &[Filled]) -> Self {
        let predicate = config.file_source().filter();
        let schema = config.file_schema();
        let pruning = Pruning::new(predicate.clone(), schema);
        let joins =
            predicate.as_ref().map(|predicate| joins_of(predicate, filled)).unwrap_or_default();
        let compared = joins.iter().filter(|(filter, _)| filter.few_keys);
        let compared = compared.filter_map(|(_, column)| column.clone()).collect();
        let joined = !joins.is_empty();
        let of_pages = |predicate| PagePruningAccessPlanFilter::new(predicate, Arc::clone(schema));
        let pages =
            predicate.as_ref().is_some_and(|predicate| of_pages(predicate).filter_number() > 0);
        let pages = pages || joined;
        let columns = columns(config);
        Self { config, predicate, pruning, pages, joined, compared, columns }
    }

    /// Returns the requests and bytes that a task reads of one part of a file.
    pub(super) fn reads(&self, part: &PartitionedFile, opened: &mut TaskFooters<'_>) -> Reads {
        let Some(footer) = part.extension::<Footer>() else {
            // Other formats are streams from their first byte to their last.
            return Reads { requests: 1, bytes: read_bytes(part), rows: 0 };
        };
        if self.is_pruned(part) {
            return Reads::default();
        }
        let url = self.config.object_store_url.as_str();
        let (metadata, mut reads) = opened.open(url, &part.object_meta.location, footer);
        let footer = metadata.as_ref();
        let LeftGroups { groups, is_whole } = self.pruning.row_groups(part.range.as_ref(), footer);
        if self.pages && (self.joined || !is_whole.iter().all(|whole| *whole)) {
            reads.add(page_index(footer, &groups));
        }
        for (place, group) in groups.iter().enumerate() {
            let group = footer.row_group(*group);
            reads.add(self.bloom_filters(group));
            let ranges = self.chunks(group).map(|chunk| {
                let (start, length) = chunk.byte_range();
                start..start + length
            });
            let is_last = place + 1 == groups.len();
            for range in Requests::new(&ranges.collect::<Vec<_>>(), is_last).ranges {
                reads.add(Reads { requests: 1, bytes: range.end - range.start, rows: 0 });
            }
            reads.rows += group.num_rows().max(0) as u64;
        }
        reads
    }

    fn is_pruned(&self, part: &PartitionedFile) -> bool {
        let Some(predicate) = &self.predicate else { return false };
        let schema = self.config.file_schema();
        let pruner = FilePruner::try_new(Arc::clone(predicate), schema, part, Count::new());
        pruner.is_some_and(|mut pruner| pruner.should_prune().unwrap_or(false))
    }

    fn bloom_filters(&self, group: &RowGroupMetaData) -> Reads {
        let mut compared = self.pruning.literal_columns();
        compared.extend_from_slice(&self.compared);
        let filters = group.columns().iter().filter(|chunk| compared.contains(&top_name(chunk)));
        let mut reads = Reads::default();
        for chunk in filters.filter(|chunk| chunk.bloom_filter_offset().is_some()) {
            reads.add(match chunk.bloom_filter_length() {
                Some(length) => Reads { requests: 1, bytes: length.max(0) as u64, rows: 0 },
                None => Reads { requests: 2, bytes: BLOOM_HEADER, rows: 0 },
            });
        }
        reads
    }

    fn chunks<'g>(
        &'g self,
        group: &'g RowGroupMetaData,
    ) -> impl Iterator<Item = &'g ColumnChunkMetaData> {
        group.columns().iter().filter(|chunk| self.columns.contains(&top_name(chunk)))
    }
}

/// The column of the table that a chunk belongs to.
fn top_name(chunk: &ColumnChunkMetaData) -> String {
    chunk.column_path().parts().first().cloned().unwrap_or_default()
}

/// The columns of the files that a scan reads.
fn columns(config: &FileScanConfig) -> Vec<String> {
    let schema = config.file_schema();
    let name = |index: usize| schema.fields().get(index).map(|field| field.name().clone());
    match config.file_source().projection() {
        Some(read) => read.column_indices().into_iter().filter_map(name).collect(),
        None => (0..schema.fields().len()).filter_map(name).collect(),
    }
}

/// The filters of joins in a predicate, each with its column if it has only one.
fn joins_of(predicate: &Arc<dyn PhysicalExpr>, filled: &[Filled]) -> Vec<(Filled, Option<String>)> {
    let of_join = |part: &Arc<dyn PhysicalExpr>| {
        let id = part.expression_id().filter(|_| part.is::<DynamicFilterPhysicalExpr>())?;
        let filter = filled.iter().find(|filter| filter.id == id)?;
        let columns = collect_columns(part);
        let only = columns.iter().next().filter(|_| columns.len() == 1);
        Some((*filter, only.map(|column| column.name().to_owned())))
    };
    split_conjunction(predicate).into_iter().filter_map(of_join).collect()
}

fn end_of_index(chunk: &ColumnChunkMetaData) -> Option<u64> {
    let offset = u64::try_from(chunk.offset_index_offset()?).ok()?;
    Some(offset + u64::try_from(chunk.offset_index_length()?).ok()?)
}

/// Returns the reads of the page index of the row groups in a footer, which is read whole.
fn page_index(footer: &ParquetMetaData, groups: &[usize]) -> Reads {
    let has_index = |group: &usize| {
        let mut chunks = footer.row_group(*group).columns().iter();
        chunks.any(|chunk| chunk.column_index_offset().is_some() && end_of_index(chunk).is_some())
    };
    if !groups.iter().any(has_index) {
        return Reads::default();
    }
    let chunks = || footer.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let starts = chunks().filter_map(|chunk| u64::try_from(chunk.column_index_offset()?).ok());
    let start = starts.min().unwrap_or(0);
    let end = chunks().filter_map(end_of_index).max().unwrap_or(start);
    Reads { requests: 1, bytes: end.saturating_sub(start), rows: 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use bytes::Bytes;
    use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
    use datafusion::datasource::source::DataSourceExec;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataWriter;
    use parquet::file::properties::WriterProperties;
    use snowmelt_execute::context::execution_config;
    use snowmelt_execute::scan::{
        Counters, CountingStore, Footers, StoreFooters, read_footer, with_own_parquet_reader,
    };
    use snowmelt_wire::{ObjectFooter, S3Access};

    use super::*;

    const ROWS: i64 = 200_000;

    /// A file of ten row groups with increasing values of `a`; `b`, between `a` and `c`, is larger
    /// than a gap that is read.
    fn file(bloom: bool) -> Vec<u8> {
        let wide = |row: i64| format!("{:064}", row.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(Int64Array::from_iter_values(0..ROWS))),
            ("b", Arc::new(StringArray::from_iter_values((0..ROWS).map(wide)))),
            ("c", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % 7)))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROWS as usize / 10))
            .set_bloom_filter_enabled(bloom)
            .set_dictionary_enabled(false)
            .build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    }

    /// Counts the requests of a scan before and while it runs, and compares them, in three cases:
    /// the task is sent no footer, only the length of the footer, or all of it. Returns the
    /// requests of the second case.
    async fn check(bloom: bool, columns: &[usize], filter: Option<(&str, Operator, i64)>) -> u64 {
        let unknown = check_sent(bloom, columns, filter, |_| None).await;
        let length = |footer: &Footer| ObjectFooter { length: footer.length, metadata: None };
        let one = check_sent(bloom, columns, filter, |footer| Some(length(footer))).await;
        let whole =
            |footer: &Footer| ObjectFooter { metadata: Some(encode(footer)), ..length(footer) };
        let none = check_sent(bloom, columns, filter, |footer| Some(whole(footer))).await;
        assert_eq!((unknown, none), (one + 1, one - 1));
        one
    }

    fn encode(footer: &Footer) -> Bytes {
        let mut bytes = Vec::new();
        ParquetMetaDataWriter::new(&mut bytes, &footer.metadata).finish().unwrap();
        bytes.truncate(bytes.len() - 8);
        bytes.into()
    }

    async fn check_sent(
        bloom: bool,
        columns: &[usize],
        filter: Option<(&str, Operator, i64)>,
        sent: impl FnOnce(&Footer) -> Option<ObjectFooter>,
    ) -> u64 {
        let store = InMemory::new();
        let counters = Arc::new(Counters::default());
        let location: Path = "t.parquet".into();
        store.put(&location, file(bloom).into()).await.unwrap();
        let meta = store.head(&location).await.unwrap();
        let footer = read_footer(&store, &meta).await.unwrap();
        let columns_of = footer.metadata.file_metadata().schema_descr();
        let schema = parquet::arrow::parquet_to_arrow_schema(columns_of, None).unwrap();
        let store = CountingStore::new(store, Arc::clone(&counters), Arc::default());
        let url = ObjectStoreUrl::parse("s3://b").unwrap();
        let session = SessionContext::new_with_config(execution_config(1, 8192));
        session.runtime_env().register_object_store(url.as_ref(), Arc::new(store));
        let schema = Arc::new(schema);
        let mut source = ParquetSource::new(Arc::clone(&schema));
        if let Some((column, operator, value)) = filter {
            let column = col(column, &schema).unwrap();
            source = source.with_predicate(binary(column, operator, lit(value), &schema).unwrap());
        }
        let part = PartitionedFile::new_from_meta(meta).with_extension(footer.clone());
        let config = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(vec![FileGroup::new(vec![part.clone()])])
            .with_projection_indices(Some(columns.to_vec()))
            .unwrap()
            .build();
        let sent = sent(&footer).map(|sent| ("t.parquet".to_owned(), sent));
        let access = S3Access { footers: sent.into_iter().collect(), ..S3Access::default() };
        let footers = Footers::new(&access.footers, Arc::clone(&counters));
        let footers = StoreFooters::from([("s3://b/".to_owned(), Arc::new(footers))]);
        let buckets = BTreeMap::from([("b".to_owned(), access)]);
        let before = Scan::new(&config, &[]).reads(&part, &mut TaskFooters::new(&buckets));
        let plan = DataSourceExec::from_data_source(config);
        let plan =
            with_own_parquet_reader(plan, &session.runtime_env(), &footers, 1 << 20).unwrap();
        collect(plan, session.task_ctx()).await.unwrap();
        let (bytes, requests) = counters.read();
        assert_eq!((before.requests, before.bytes), (requests, bytes), "{columns:?} {filter:?}");
        requests
    }

    #[tokio::test]
    async fn requests_are_counted_as_the_reader_sends_them() {
        // One for the footer, and one for each of ten row groups.
        assert_eq!(check(false, &[0], None).await, 11);
        // Two columns with a wide one between them.
        assert_eq!(check(false, &[0, 2], None).await, 21);
        assert_eq!(check(false, &[0, 1, 2], None).await, 11);
        // Statistics leave three row groups, the page index is read.
        assert_eq!(check(false, &[0], Some(("a", Operator::Lt, 50_000))).await, 5);
        // All rows of the row groups that are left pass: no page index.
        assert_eq!(check(false, &[0], Some(("a", Operator::Lt, 40_000))).await, 3);
        // A Bloom filter for each row group that statistics leave.
        assert!(check(true, &[2], Some(("c", Operator::Eq, 3))).await > 11);
    }
}
