//! Reads the row groups of a file, the next one while one is decoded.
//!
//! Invariant: a row group is read ahead only if it will surely be asked for, unless the query ends
//! before. So reading ahead adds no requests.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::common::runtime::SpawnedTask;
use futures::future::try_join_all;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use super::{Counters, LeftGroups, Requests};

/// A file in a bucket.
#[derive(Clone, Debug)]
pub(super) struct RemoteFile {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) location: Path,
    pub(super) counters: Arc<Counters>,
}

impl RemoteFile {
    /// Reads ranges at once. `is_last` is true if nothing else can be read at the same time.
    async fn read(&self, ranges: &[Range<u64>], is_last: bool) -> Result<Vec<Bytes>> {
        let requests = Requests::new(ranges, is_last);
        self.counters.count_ranges(&requests);
        let request = |range: &Range<u64>| self.store.get_range(&self.location, range.clone());
        let answers = try_join_all(requests.ranges.iter().map(request)).await;
        let answers = answers.map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(ranges.iter().map(|range| part(range, &requests.ranges, &answers)).collect())
    }
}

/// A range from the answers to the requests that cover it.
fn part(range: &Range<u64>, requests: &[Range<u64>], answers: &[Bytes]) -> Bytes {
    let pieces = requests.iter().zip(answers).filter_map(|(request, answer)| {
        let start = range.start.max(request.start);
        let end = range.end.min(request.end);
        let at = |offset: u64| (offset - request.start) as usize;
        (start < end).then(|| answer.slice(at(start)..at(end).min(answer.len())))
    });
    let mut pieces: Vec<Bytes> = pieces.collect();
    match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => pieces
            .iter()
            .fold(BytesMut::new(), |mut whole, piece| {
                whole.extend_from_slice(piece);
                whole
            })
            .freeze(),
    }
}

/// The row groups of a file that will be asked for.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) left: LeftGroups,
    /// False if row groups may be left out while the file is read.
    pub(super) is_certain: bool,
}

/// The row group after one that is read.
struct Next {
    ranges: Vec<Range<u64>>,
    is_last: bool,
    is_certain: bool,
}

impl Expected {
    /// The place of the row group whose whole column chunks are asked for, and the columns.
    fn find(&self, ranges: &[Range<u64>]) -> Option<(usize, Vec<usize>)> {
        let first = ranges.first()?.start;
        let begins = |group: &usize| {
            let columns = self.metadata.row_group(*group).columns();
            columns.iter().any(|column| column.byte_range().0 == first)
        };
        let place = self.left.groups.iter().position(begins)?;
        let columns = self.metadata.row_group(self.left.groups[place]).columns();
        let column =
            |range: &Range<u64>| columns.iter().position(|column| chunk_range(column) == *range);
        Some((place, ranges.iter().map(column).collect::<Option<Vec<_>>>()?))
    }

    fn after(&self, place: usize, columns: &[usize]) -> Option<Next> {
        let next = place + 1;
        let group = self.metadata.row_group(*self.left.groups.get(next)?);
        let range = |column: &usize| chunk_range(group.column(*column));
        Some(Next {
            ranges: columns.iter().map(range).collect(),
            is_last: next + 1 == self.left.groups.len(),
            is_certain: self.is_certain && (self.left.is_whole[next] || cannot_be_pruned(group)),
        })
    }
}

/// True if the file has nothing that could leave out pages or all of a row group.
fn cannot_be_pruned(group: &RowGroupMetaData) -> bool {
    group.columns().iter().all(|column| {
        column.column_index_offset().is_none() && column.bloom_filter_offset().is_none()
    })
}

fn chunk_range(column: &ColumnChunkMetaData) -> Range<u64> {
    let (start, length) = column.byte_range();
    start..start + length
}

/// A row group that is read before it is asked for.
#[derive(Debug)]
struct Ahead {
    ranges: Vec<Range<u64>>,
    read: SpawnedTask<Result<Vec<Bytes>>>,
}

/// Reads row groups one after another.
#[derive(Debug)]
pub(super) struct RowGroups {
    file: RemoteFile,
    /// The most bytes that are read ahead.
    most: u64,
    ahead: Option<Ahead>,
}

impl RowGroups {
    pub(super) fn new(file: RemoteFile, most: u64) -> Self {
        Self { file, most, ahead: None }
    }

    /// Reads the ranges that are asked for, and begins with the row group that will be asked for
    /// next.
    pub(super) async fn read(
        &mut self,
        ranges: Vec<Range<u64>>,
        expected: &Expected,
    ) -> Result<Vec<Bytes>> {
        let found = expected.find(&ranges);
        let next = found.as_ref().and_then(|(place, columns)| expected.after(*place, columns));
        let is_last = found.is_some() && next.is_none();
        let ahead = self.ahead.take().filter(|ahead| ahead.ranges == ranges);
        if let Some(next) = next.filter(|next| next.is_certain) {
            self.ahead = self.begin(next);
        }
        match ahead {
            Some(ahead) => match ahead.read.join().await {
                Ok(read) => read,
                Err(error) => Err(ParquetError::External(Box::new(error))),
            },
            None => {
                let _counted = self.file.counters.row_group();
                self.file.read(&ranges, is_last).await
            }
        }
    }

    /// Begins to read ahead. `None` if there are too many bytes, because they are not counted with
    /// the memory of operators.
    fn begin(&self, next: Next) -> Option<Ahead> {
        let bytes: u64 = next.ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > self.most {
            return None;
        }
        let file = self.file.clone();
        let ranges = next.ranges.clone();
        let counted = file.counters.row_group();
        let read = SpawnedTask::spawn(async move {
            let read = file.read(&next.ranges, next.is_last).await;
            drop(counted);
            read
        });
        Some(Ahead { ranges, read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_from_one_answer_or_joined_from_several() {
        let requests = [10..14, 14..18, 30..32];
        let answers = ["abcd", "efgh", "xy"].map(|text| Bytes::from_static(text.as_bytes()));
        for (range, expected) in
            [(11..13, "bc"), (10..18, "abcdefgh"), (13..15, "de"), (30..32, "xy"), (31..31, "")]
        {
            assert_eq!(part(&range, &requests, &answers), expected.as_bytes(), "{range:?}");
        }
    }
}
