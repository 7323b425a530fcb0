//! Reads a text file, or a range of it, as batches.

use std::collections::VecDeque;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use snowmelt_files::{Compression, Format, Kind};
use snowmelt_types::ErrorReport;

use super::blocks::range::StoreFile;
use super::blocks::{Block, BlockFault, BlockReader, newlines_of};
use super::decoders::JsonDecoder;
use super::dialect::quotes::position;
use super::reports::{of_fault, wrong_line, wrong_object};
use super::text::{Decoder, Undecodable};
use super::{
    CsvDecoder, Dialect, Header, MAX_HEADER_BYTES, ObjectLayout, Quotes, Recoder, newlines,
    split_header, without_mark,
};

/// A text file and what is wanted of it.
pub(super) struct TextFile {
    pub(super) stored: StoreFile,
    /// The file's name for the user.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// How a CSV file is written.
    pub(super) dialect: Dialect,
    /// The range of bytes whose lines are read. `None` for the whole file.
    pub(super) range: Option<Range<u64>>,
    pub(super) wanted: SchemaRef,
    /// The most rows of a batch.
    pub(super) rows: usize,
}

impl TextFile {
    /// The rows.
    pub(super) async fn batches(self) -> DfResult<BoxStream<'static, DfResult<RecordBatch>>> {
        let range = self.range.clone().unwrap_or(0..self.stored.size);
        let source = match self.range {
            Some(_) => self.stored.lines(range.clone()),
            None => self.stored.bytes(range.clone()),
        };
        let json = self.kind.format == Format::Json;
        let dialect = (!json).then_some(&self.dialect);
        // An empty file has no compressed text in it either.
        let packed = self.kind.compression;
        let compression = if range.is_empty() { Compression::None } else { packed };
        let begins = range.start == 0;
        let blocks = BlockReader::new(source, begins, compression, dialect, self.frame());
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(fault) => return Err(self.fault(fault).await),
        };
        let decoder = match (json, self.dialect.headerless.map(Header::unnamed), range.start) {
            (true, ..) => Some(JsonDecoder::new(&self.wanted, self.rows)?.into()),
            (false, Some(header), _) => Some(self.decoder(&header)),
            (false, None, 0) => None,
            (false, None, _) => Some(self.decoder(&self.header().await?)),
        };
        let reading = TextReader { file: self, blocks, decoder, ready: VecDeque::new() };
        let batches = stream::try_unfold(reading, |mut reading| async move {
            let next = reading.next().await?;
            Ok(next.map(|batch| (batch, reading)))
        });
        Ok(batches.boxed())
    }

    /// How objects stand in a JSON file, unless each is a line.
    fn frame(&self) -> Option<ObjectLayout> {
        self.dialect.frame.filter(|_| self.kind.format == Format::Json)
    }

    fn quotes(&self) -> Quotes {
        Quotes::new(&self.dialect)
    }

    fn decoder(&self, header: &Header) -> Decoder {
        let given = Header { names: self.dialect.names.clone() };
        let header = if given.names.is_empty() { header } else { &given };
        CsvDecoder::new(header, &self.dialect, &self.wanted, self.rows).into()
    }

    /// The header of a file that is read from its middle.
    async fn header(&self) -> DfResult<Header> {
        let end = self.stored.size.min(MAX_HEADER_BYTES as u64);
        let mut source = self.stored.bytes(0..end);
        let mut recoder = Recoder::of(&self.dialect, self.dialect.skip);
        let mut text = Vec::new();
        while let Some(bytes) = source.try_next().await? {
            text.extend_from_slice(&match &mut recoder {
                Some(recoder) => recoder.next(&bytes),
                None => bytes,
            });
            let records = without_lines(without_mark(&text), self.dialect.skip);
            if let Some(whole) = records.and_then(|records| self.quotes().scan(records))
                && let Some(records) = records.map(|records| &records[..whole])
                && let Some((start, end)) = split_header(records, &self.quotes())
            {
                return self.parsed(&records[start..end]);
            }
        }
        Err(external(wrong_line(&self.name, Some(1), "the header does not end")))
    }

    fn parsed(&self, record: &[u8]) -> DfResult<Header> {
        let header = Header::parse(record, &self.dialect);
        header.map_err(|why| external(wrong_line(&self.name, Some(1), &why)))
    }

    /// The number of lines before the range, to count lines from the beginning of the file.
    async fn lines_before(&self) -> Option<u64> {
        match self.range.as_ref().map_or(0, |range| range.start) {
            0 => Some(0),
            // The line that the byte before the range is in ends before the first line of the range.
            start => newlines_of(self.stored.bytes(0..start - 1)).await.ok().map(|lines| lines + 1),
        }
    }

    async fn fault(&self, fault: BlockFault) -> DataFusionError {
        let before = self.lines_before().await;
        let split = self.range.as_ref().is_some_and(|range| range.end < self.stored.size);
        match (of_fault(&self.name, self.kind.compression, &fault, before, split), fault) {
            (Some(report), _) => external(report),
            (None, BlockFault::Read(error)) => error,
            (None, fault) => DataFusionError::Internal(format!("{fault:?}")),
        }
    }
}

/// Reads the records of a text file.
struct TextReader {
    file: TextFile,
    blocks: BlockReader,
    /// The decoder of the records. `None` before the header.
    decoder: Option<Decoder>,
    ready: VecDeque<RecordBatch>,
}

impl TextReader {
    async fn next(&mut self) -> DfResult<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            let block = match self.blocks.next().await {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(None),
                Err(fault) => return Err(self.file.fault(fault).await),
            };
            if let Err(Undecodable { line, why }) = self.decode(&block)? {
                let before = self.file.lines_before().await;
                let line = before.zip(line).map(|(before, line)| before + block.line + line + 1);
                return Err(external(match self.file.frame() {
                    Some(_) => wrong_object(&self.file.name, line, &why),
                    None => wrong_line(&self.file.name, line, &why),
                }));
            }
        }
    }

    fn decode(&mut self, block: &Block) -> DfResult<Result<(), Undecodable>> {
        let mut from = 0;
        if self.decoder.is_none() {
            let Some((start, end)) = split_header(&block.records, &self.file.quotes()) else {
                return Ok(Ok(()));
            };
            let header = self.file.parsed(&block.records[start..end])?;
            self.decoder = Some(self.file.decoder(&header));
            from = end;
        }
        let Some(decoder) = &mut self.decoder else { return Ok(Ok(())) };
        let decoded = decoder.decode(&block.records[from..]).map_err(|wrong| Undecodable {
            line: wrong.line.map(|line| line + newlines(&block.records[..from])),
            ..wrong
        });
        Ok(decoded.map(|batches| self.ready.extend(batches)))
    }
}

/// Returns the text behind the first `skip` lines; `None` if it has fewer.
pub fn without_lines(text: &[u8], skip: u64) -> Option<&[u8]> {
    let mut rest = text;
    for _ in 0..skip {
        rest = &rest[position(rest, b'\n')? + 1..];
    }
    Some(rest)
}

fn external(report: ErrorReport) -> DataFusionError {
    DataFusionError::External(Box::new(report))
}
