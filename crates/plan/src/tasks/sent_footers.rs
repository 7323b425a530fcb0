//! The footers that a task is sent, so that its worker need not read them: planning has read them
//! already.

use std::collections::BTreeMap;

use bytes::Bytes;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use object_store::path::Path;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData};
use snowmelt_execute::process::catch_panic;
use snowmelt_execute::scan::{Footer, first_byte};
use snowmelt_wire::ObjectFooter;

/// The most bytes of metadata of one file that are sent.
const FILE_BYTES: usize = 256 << 10;

/// The most bytes of metadata that a task is sent.
const TASK_BYTES: usize = 1 << 20;

/// The length of the metadata and the magic number, which are not sent.
const TRAILER: usize = 8;

/// The objects of a bucket that a task reads, with their footers and the parts that it reads.
#[derive(Debug, Default)]
pub(crate) struct SentFooters {
    files: BTreeMap<Path, (Footer, Vec<FileRange>)>,
}

impl SentFooters {
    /// Adds a part of an object. An object without an entity tag is left out: its footer could be of
    /// another version than what the worker reads.
    pub(crate) fn add(&mut self, part: &PartitionedFile) {
        let meta = &part.object_meta;
        let Some(footer) = part.extension::<Footer>().filter(|_| meta.e_tag.is_some()) else {
            return;
        };
        let file = self.files.entry(meta.location.clone());
        let (_, ranges) = file.or_insert_with(|| (footer.clone(), Vec::new()));
        let whole = || FileRange { start: 0, end: meta.size as i64 };
        ranges.push(part.range.clone().unwrap_or_else(whole));
    }

    /// Encodes the footers for the task, by key of the file. `left` is the number of bytes that may
    /// still be sent to the task.
    pub(crate) fn encode(self, left: &mut Allowance) -> BTreeMap<String, ObjectFooter> {
        let encode = |(path, (footer, ranges)): (Path, (Footer, Vec<FileRange>))| {
            let metadata = left.take(|| encoded(&footer, &ranges));
            (path.to_string(), ObjectFooter { length: footer.length, metadata })
        };
        self.files.into_iter().map(encode).collect()
    }
}

/// Bytes of metadata that a task may still be sent.
#[derive(Debug)]
pub(crate) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(TASK_BYTES)
    }
}

impl Allowance {
    fn take(&mut self, encode: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if self.0 == 0 {
            return None;
        }
        let bytes = encode().filter(|bytes| bytes.len() <= FILE_BYTES)?;
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            // What follows is not even encoded.
            None => self.0 = 0,
        }
        (self.0 > 0).then_some(bytes)
    }
}

/// The metadata of the row groups that begin in these ranges: a reader reads no others.
fn encoded(footer: &Footer, ranges: &[FileRange]) -> Option<Bytes> {
    let is_read = |group: &&RowGroupMetaData| {
        let start = first_byte(group);
        ranges.iter().any(|range| (range.start..range.end).contains(&start))
    };
    let groups: Vec<_> = footer.metadata.row_groups().iter().filter(is_read).cloned().collect();
    let metadata = ParquetMetaData::new(footer.metadata.file_metadata().clone(), groups);
    let encode = || {
        let mut bytes = Vec::new();
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().ok()?;
        bytes.truncate(bytes.len().checked_sub(TRAILER)?);
        Some(Bytes::from(bytes))
    };
    catch_panic(encode).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::WriterProperties;

    use super::*;

    fn footer() -> Footer {
        let columns: [(&str, ArrayRef); 2] = [
            ("a", Arc::new(Int64Array::from_iter_values(0..1000))),
            ("b", Arc::new(StringArray::from_iter_values((0..1000).map(|n| format!("s{n}"))))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(100))
            .set_bloom_filter_enabled(true)
            .build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let length = bytes.len();
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes)).unwrap();
        Footer { metadata: Arc::new(metadata), length: length as u64 }
    }

    #[test]
    fn only_the_row_groups_of_the_task_are_sent_unchanged() {
        let footer = footer();
        let groups = footer.metadata.row_groups();
        let range = |index: usize| FileRange {
            start: first_byte(&groups[index]),
            end: first_byte(&groups[index + 1]),
        };
        let sent = encoded(&footer, &[range(2), range(5)]).unwrap();
        let sent = ParquetMetaDataReader::decode_metadata(&sent).unwrap();
        // They tell which encodings there are, which no reader here uses.
        let without_encodings = |group: &RowGroupMetaData| {
            let column = |column: &parquet::file::metadata::ColumnChunkMetaData| {
                let column = column.clone().into_builder().clear_page_encoding_stats();
                column.build().unwrap()
            };
            let columns = group.columns().iter().map(column).collect();
            group.clone().into_builder().set_column_metadata(columns).build().unwrap()
        };
        let expected: Vec<_> = [2, 5].map(|group| without_encodings(&groups[group])).into();
        let found: Vec<_> = sent.row_groups().iter().map(without_encodings).collect();
        assert_eq!(found, expected);
        let found = sent.file_metadata();
        let original = footer.metadata.file_metadata();
        assert_eq!(found.key_value_metadata(), original.key_value_metadata());
        assert_eq!(found.schema_descr(), original.schema_descr());
    }

    #[test]
    fn what_does_not_fit_is_read_by_the_worker() {
        let mut left = Allowance::default();
        let bytes = |length: usize| move || Some(Bytes::from(vec![0; length]));
        assert!(left.take(bytes(FILE_BYTES + 1)).is_none());
        assert!((0..3).all(|_| left.take(bytes(FILE_BYTES)).is_some()));
        assert!(left.take(bytes(FILE_BYTES - 1)).is_some() && left.take(bytes(2)).is_none());
        assert!(left.take(|| unreachable!("encoded for nothing")).is_none());
    }
}
