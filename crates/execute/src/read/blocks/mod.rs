//! Cuts the bytes of a text into blocks of whole records.
//!
//! A block has at least one record and, unless it is the last one, [`BLOCK_BYTES`]. So memory is
//! bounded, and a record that cannot be decoded is found by looking at its block again.

pub(super) mod comments;
pub(super) mod framer;
pub(super) mod inflate;
pub(super) mod range;
pub(super) mod recode;

use datafusion::error::{DataFusionError, Result as DfResult};
use futures::TryStreamExt;
use snowmelt_files::Compression;

use super::dialect::quotes::position;
use super::{Dialect, Framer, MAX_RECORD_BYTES, ObjectLayout, QuoteFault, Quotes, without_mark};
use inflate::{Inflated, Inflater};
use range::ByteStream;
use recode::Recoder;

/// The least bytes of a block, if the text has as many.
const BLOCK_BYTES: usize = 256 << 10;

/// Some whole records.
#[derive(Debug)]
pub(crate) struct Block {
    /// The text of the records, which ends with a line break.
    pub(crate) records: Vec<u8>,
    /// Number of line breaks before the block.
    pub(crate) line: u64,
}

/// Why there is no next block.
#[derive(Debug)]
pub(crate) enum BlockFault {
    /// The store failed.
    Read(DataFusionError),
    /// The file cannot be decompressed.
    Inflate(std::io::Error),
    /// A record is too long: the number of the line in which it begins.
    Long(u64),
    /// The text ends in a quotation: the number of the line in which its record begins.
    Open(u64),
    /// The end of a value is not known: the number of the line in which its record begins, and why.
    Quotes(u64, QuoteFault),
    /// An object cannot be read: the number of objects before it, and the reason.
    Frame(u64, &'static str),
}

/// Reads a text block by block.
pub(crate) struct BlockReader {
    source: ByteStream,
    inflater: Option<Inflater>,
    /// The conversion to UTF-8. `None` if the text needs none.
    recoder: Option<Recoder>,
    /// Puts each object on a line. `None` unless the text has JSON objects that are not lines.
    framer: Option<Framer>,
    /// Finds the ends of records. `None` if every line is a record.
    quotes: Option<Quotes>,
    /// Number of lines that are still to be skipped.
    skip: u64,
    buffer: Vec<u8>,
    /// The end of the last whole record in the buffer.
    whole: usize,
    line: u64,
    began: bool,
    ended: bool,
}

impl BlockReader {
    /// Creates a reader of a text. `beginning` is true if the text is the beginning of its file,
    /// where a byte order mark may be. Without a dialect, every line is a record.
    pub(crate) fn new(
        source: ByteStream,
        beginning: bool,
        compression: Compression,
        dialect: Option<&Dialect>,
        frame: Option<ObjectLayout>,
    ) -> Result<Self, BlockFault> {
        let skip = dialect.filter(|_| beginning).map_or(0, |dialect| dialect.skip);
        Ok(Self {
            source,
            inflater: Inflater::new(compression).map_err(BlockFault::Inflate)?,
            recoder: dialect.and_then(|dialect| Recoder::of(dialect, skip)),
            framer: frame.map(Framer::new),
            quotes: dialect.map(Quotes::new),
            skip,
            buffer: Vec::new(),
            whole: 0,
            line: 0,
            began: !beginning,
            ended: false,
        })
    }

    /// The next block, if there is one.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, BlockFault> {
        while !self.ended && (self.whole == 0 || self.buffer.len() < BLOCK_BYTES) {
            match (self.text().await?, &mut self.recoder) {
                (Some(bytes), _) if self.framer.is_some() => self.frame(Some(&bytes))?,
                (Some(bytes), None) => self.add(&bytes),
                (Some(bytes), Some(recoder)) => {
                    let text = recoder.next(&bytes);
                    self.add(&text);
                }
                (None, _) => {
                    self.frame(None)?;
                    self.end()?;
                }
            }
            if let Some(fault) = self.quotes.as_ref().and_then(Quotes::fault) {
                let line = self.line + newlines(&self.buffer[..self.whole]);
                return Err(BlockFault::Quotes(line, fault));
            }
            if self.buffer.len() - self.whole > MAX_RECORD_BYTES {
                return Err(BlockFault::Long(self.line + newlines(&self.buffer[..self.whole])));
            }
        }
        if self.whole == 0 {
            return Ok(None);
        }
        let rest = self.buffer.split_off(self.whole);
        let records = std::mem::replace(&mut self.buffer, rest);
        self.whole = 0;
        let block = Block { line: self.line, records };
        self.line += newlines(&block.records);
        Ok(Some(block))
    }

    async fn text(&mut self) -> Result<Option<bytes::Bytes>, BlockFault> {
        let Some(inflater) = &mut self.inflater else {
            return self.source.try_next().await.map_err(BlockFault::Read);
        };
        loop {
            match inflater.next().map_err(BlockFault::Inflate)? {
                Inflated::Bytes(bytes) => return Ok(Some(bytes)),
                Inflated::End => return Ok(None),
                Inflated::Hungry => match self.source.try_next().await.map_err(BlockFault::Read)? {
                    Some(bytes) => inflater.feed(bytes),
                    None => inflater.end(),
                },
            }
        }
    }

    /// Adds the objects of the next bytes, or of the end of the text.
    fn frame(&mut self, bytes: Option<&[u8]>) -> Result<(), BlockFault> {
        let Some(framer) = &mut self.framer else { return Ok(()) };
        let mut text = Vec::new();
        let read = match bytes {
            Some(bytes) => framer.next(bytes, &mut text),
            None => framer.end(&mut text),
        };
        self.add(&text);
        read.map_err(|why| BlockFault::Frame(self.line + newlines(&self.buffer), why))
    }

    fn add(&mut self, bytes: &[u8]) {
        let from = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        if self.began && self.skip == 0 {
            return self.scan(from);
        }
        if self.buffer.len() >= 3 && self.begin() {
            self.scan(0);
        }
    }

    /// Removes the byte order mark and the skipped lines before the records. False if there is more
    /// to remove.
    fn begin(&mut self) -> bool {
        let mut before = match self.began {
            true => 0,
            false => self.buffer.len() - without_mark(&self.buffer).len(),
        };
        self.began = true;
        while self.skip > 0 {
            let Some(end) = position(&self.buffer[before..], b'\n') else { break };
            before += end + 1;
            self.skip -= 1;
            self.line += 1;
        }
        self.buffer.drain(..before);
        self.skip == 0
    }

    fn scan(&mut self, from: usize) {
        let bytes = &self.buffer[from..];
        let end = match &mut self.quotes {
            Some(quotes) => quotes.scan(bytes),
            None => bytes.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1),
        };
        if let Some(end) = end {
            self.whole = from + end;
        }
    }

    /// Ends the text: its rest is the last record.
    fn end(&mut self) -> Result<(), BlockFault> {
        self.ended = true;
        let left = self.recoder.as_mut().map(Recoder::end).unwrap_or_default();
        self.add(&left);
        if !self.began || self.skip > 0 {
            if !self.begin() {
                self.buffer.clear();
            }
            self.scan(0);
        }
        if self.quotes.as_ref().is_some_and(Quotes::is_open) {
            return Err(BlockFault::Open(self.line + newlines(&self.buffer[..self.whole])));
        }
        if self.whole < self.buffer.len() {
            self.buffer.push(b'\n');
            self.whole = self.buffer.len();
        }
        Ok(())
    }
}

/// The number of line breaks in a text.
pub fn newlines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The number of line breaks in the text that a stream gives.
pub(crate) async fn newlines_of(mut source: ByteStream) -> DfResult<u64> {
    let mut count = 0;
    while let Some(bytes) = source.try_next().await? {
        count += newlines(&bytes);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use snowmelt_files::Format;

    use super::*;
    use crate::read::Encoding;

    async fn blocks(parts: &[&str], csv: bool) -> Result<Vec<String>, BlockFault> {
        let dialect = Dialect::of(Format::Csv);
        blocks_of(parts, csv.then_some(&dialect)).await
    }

    async fn blocks_of(
        parts: &[&str],
        dialect: Option<&Dialect>,
    ) -> Result<Vec<String>, BlockFault> {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from((*part).to_owned()))).collect();
        let source = stream::iter(parts).boxed();
        let mut blocks = BlockReader::new(source, true, Compression::None, dialect, None)?;
        let mut found = Vec::new();
        while let Some(block) = blocks.next().await? {
            found.push(format!("{}:{}", block.line, String::from_utf8(block.records).unwrap()));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn blocks_end_with_records() {
        let long = "x".repeat(BLOCK_BYTES);
        let found = blocks(&["a,\"b\n", "\"\n", &long, "\nlast"], true).await.unwrap();
        let expected = ["0:a,\"b\n\"\n".to_owned(), format!("2:{long}\n"), "3:last\n".to_owned()];
        assert!(found == expected);
        assert_eq!(blocks(&["\u{feff}a", "\n"], false).await.unwrap(), ["0:a\n"]);
        assert_eq!(blocks(&["x"], true).await.unwrap(), ["0:x\n"]);
        assert!(blocks(&[], true).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn lines_before_the_records_are_skipped_and_counted() {
        let dialect = Dialect { skip: 2, ..Dialect::of(Format::Csv) };
        for parts in [&["\u{feff}\"x\ny\na,b\n1", ",2\n"][..], &["\u{feff}\"x", "\n\na,b", "\n1,2"]]
        {
            let found = blocks_of(parts, Some(&dialect)).await.unwrap();
            assert_eq!(found.concat(), "2:a,b\n1,2\n", "{parts:?}");
        }
        assert!(blocks_of(&["x\n", "y"], Some(&dialect)).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn other_texts_become_utf_8() {
        let dialect = Dialect { encoding: Encoding::Utf16Le, ..Dialect::of(Format::Csv) };
        let found = blocks_of(&["a\0\n\0b", "\0\n\0c", "\0"], Some(&dialect)).await.unwrap();
        assert_eq!(found, ["0:a\nb\nc\n"]);
    }

    #[tokio::test]
    async fn a_mark_that_may_be_escaped_is_a_fault() {
        let escaped = blocks(&["a,b\n1,2\n3,\"x \\\"y\\\"\"\n4,5\n"], true).await;
        assert!(matches!(escaped, Err(BlockFault::Quotes(2, QuoteFault::Escaped))), "{escaped:?}");
    }

    #[tokio::test]
    async fn an_open_quotation_and_a_long_record_are_faults() {
        let open = blocks(&["a\n1\n\"x\n", "y"], true).await;
        assert!(matches!(open, Err(BlockFault::Open(2))), "{open:?}");
        let long = "x".repeat(MAX_RECORD_BYTES);
        let long = blocks(&["a\n", &long, "y"], false).await;
        assert!(matches!(long, Err(BlockFault::Long(1))), "{long:?}");
    }
}
