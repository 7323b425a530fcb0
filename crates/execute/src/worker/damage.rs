//! Finds the file, row group and column of a damaged page.
//!
//! The reader's error names the problem of such a page, but not its location. So the pages
//! of a partition whose reading has failed are read once more, column by column, until one fails.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;
use object_store::ObjectStoreExt;
use parquet::column::page::PageReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::process::catch_panic;
use crate::scan::paths::shown;
use crate::scan::{first_byte, read_footer};
use crate::tree::visit_scans;

/// A page that cannot be read.
pub(super) struct Damage {
    pub(super) file: String,
    /// Column and row group, and the problem of the page.
    pub(super) why: String,
}

/// The first damaged page of some partitions, among the columns that the plan reads.
pub(super) async fn find(
    plan: &Arc<dyn ExecutionPlan>,
    partitions: &[u32],
    context: &TaskContext,
) -> Option<Damage> {
    let mut parts = Vec::new();
    visit_scans(plan, partitions, &mut |scan, groups| {
        parts.extend(groups.iter().flat_map(|group| parts_of(scan, *group as usize)));
    });
    for part in parts {
        if let Some(damage) = part.damage(context).await {
            return Some(damage);
        }
    }
    None
}

/// A part of a file and the columns that are read of it.
struct FilePart {
    url: ObjectStoreUrl,
    file: PartitionedFile,
    /// The names of the columns that are read. `None` means all columns.
    columns: Option<HashSet<String>>,
}

fn parts_of(scan: &FileScanConfig, group: usize) -> Vec<FilePart> {
    let schema = scan.file_schema();
    let name = |index: usize| schema.fields().get(index).map(|field| field.name().clone());
    let columns = scan.file_source().projection();
    let columns: Option<HashSet<String>> =
        columns.map(|column| column.column_indices().into_iter().filter_map(name).collect());
    let files = scan.file_groups.get(group).map(|group| group.files()).unwrap_or_default();
    let part = |file: &PartitionedFile| FilePart {
        url: scan.object_store_url.clone(),
        file: file.clone(),
        columns: columns.clone(),
    };
    files.iter().map(part).collect()
}

impl FilePart {
    async fn damage(&self, context: &TaskContext) -> Option<Damage> {
        let store = context.runtime_env().object_store(&self.url).ok()?;
        let meta = &self.file.object_meta;
        let footer = read_footer(store.as_ref(), meta).await.ok()?;
        for (index, group) in footer.metadata.row_groups().iter().enumerate() {
            let range = self.file.range.as_ref();
            let start = first_byte(group);
            if range.is_some_and(|range| !(range.start..range.end).contains(&start)) {
                continue;
            }
            for column in group.columns().iter().filter(|column| self.reads(column)) {
                let (start, length) = column.byte_range();
                let bytes = store.get_range(&meta.location, start..start + length).await.ok()?;
                let chunk = Chunk { start, bytes };
                if let Some(why) = page_error(chunk, column, group.num_rows()) {
                    let name = column.column_path().parts().join(".");
                    let why = format!("a page of column `{name}` in row group {index} {why}");
                    return Some(Damage { file: self.display_name(), why });
                }
            }
        }
        None
    }

    fn reads(&self, column: &ColumnChunkMetaData) -> bool {
        let root = column.column_path().parts().first();
        self.columns.as_ref().is_none_or(|read| root.is_some_and(|root| read.contains(root)))
    }

    fn display_name(&self) -> String {
        shown(self.url.as_str(), &self.file.object_meta.location)
    }
}

/// The problem of the first damaged page of a column chunk, if any.
fn page_error(chunk: Chunk, column: &ColumnChunkMetaData, rows: i64) -> Option<String> {
    let read = catch_panic(|| -> ParquetResult<()> {
        let rows = usize::try_from(rows).unwrap_or_default();
        let mut pages = SerializedPageReader::new(Arc::new(chunk), column, rows, None)?;
        while pages.get_next_page()?.is_some() {}
        Ok(())
    });
    match read {
        Ok(Ok(())) => None,
        Ok(Err(error)) if error.to_string().contains("CRC") => {
            Some("does not match its checksum".to_owned())
        }
        Ok(Err(error)) => Some(format!("is damaged: {error}")),
        Err(_) => Some("is damaged".to_owned()),
    }
}

/// The bytes of a column chunk, with their offset in the file.
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    fn rest(&self, start: u64) -> ParquetResult<Bytes> {
        let offset = start.checked_sub(self.start).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.filter(|offset| *offset <= self.bytes.len());
        let outside = || ParquetError::EOF("it lies outside of its column".to_owned());
        Ok(self.bytes.slice(offset.ok_or_else(outside)?..))
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.rest(start).map(Bytes::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut bytes = self.rest(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF("it ends outside of its column".to_owned()));
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}
