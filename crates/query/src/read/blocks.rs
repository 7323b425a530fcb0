//! Cuts the bytes of a text into blocks of whole records.
//!
//! A block has at least one record and, unless it is the last one, [`BLOCK_BYTES`]. So memory is
//! bounded, and a record that cannot be decoded is found by looking at its block again.

use datafusion::error::{DataFusionError, Result as DfResult};
use futures::TryStreamExt;
use snowmelt_files::Compression;

use super::inflate::{Inflated, Inflater};
use super::range::ByteStream;
use super::{MAX_RECORD_BYTES, Quotes, without_mark};

/// A block has at least so many bytes, if there are.
const BLOCK_BYTES: usize = 256 << 10;

/// Some whole records.
#[derive(Debug)]
pub(super) struct Block {
    /// Ends with a line break.
    pub(super) records: Vec<u8>,
    /// Line breaks before it.
    pub(super) line: u64,
}

/// Why there is no next block.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store failed.
    Read(DataFusionError),
    /// The file cannot be decompressed.
    Inflate(std::io::Error),
    /// The record that begins in this line is too long.
    Long(u64),
    /// The text ends in a quotation, in a record that begins in this line.
    Open(u64),
}

/// Reads a text block by block.
pub(super) struct Blocks {
    source: ByteStream,
    inflater: Option<Inflater>,
    /// `None` if every line is a record.
    quotes: Option<Quotes>,
    buffer: Vec<u8>,
    /// The end of the last whole record in the buffer.
    whole: usize,
    line: u64,
    began: bool,
    ended: bool,
}

impl Blocks {
    /// `beginning` if the text is the beginning of its file, where a byte order mark may be.
    pub(super) fn new(
        source: ByteStream,
        beginning: bool,
        compression: Compression,
        quotes: Option<Quotes>,
    ) -> Result<Self, Fault> {
        Ok(Self {
            source,
            inflater: Inflater::new(compression).map_err(Fault::Inflate)?,
            quotes,
            buffer: Vec::new(),
            whole: 0,
            line: 0,
            began: !beginning,
            ended: false,
        })
    }

    /// The next block, if there is one.
    pub(super) async fn next(&mut self) -> Result<Option<Block>, Fault> {
        while !self.ended && (self.whole == 0 || self.buffer.len() < BLOCK_BYTES) {
            match self.text().await? {
                Some(bytes) => self.add(&bytes),
                None => self.end()?,
            }
            if self.buffer.len() - self.whole > MAX_RECORD_BYTES {
                return Err(Fault::Long(self.line + newlines(&self.buffer[..self.whole])));
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

    async fn text(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        let Some(inflater) = &mut self.inflater else {
            return self.source.try_next().await.map_err(Fault::Read);
        };
        loop {
            match inflater.next().map_err(Fault::Inflate)? {
                Inflated::Bytes(bytes) => return Ok(Some(bytes)),
                Inflated::End => return Ok(None),
                Inflated::Hungry => match self.source.try_next().await.map_err(Fault::Read)? {
                    Some(bytes) => inflater.feed(bytes),
                    None => inflater.end(),
                },
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let from = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        if !self.began && self.buffer.len() >= 3 {
            self.began = true;
            let mark = self.buffer.len() - without_mark(&self.buffer).len();
            self.buffer.drain(..mark);
            return self.scan(0);
        }
        if self.began {
            self.scan(from);
        }
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

    /// The rest of the text is its last record.
    fn end(&mut self) -> Result<(), Fault> {
        self.ended = true;
        if !self.began {
            self.began = true;
            self.scan(0);
        }
        if self.quotes.as_ref().is_some_and(Quotes::is_open) {
            return Err(Fault::Open(self.line + newlines(&self.buffer[..self.whole])));
        }
        if self.whole < self.buffer.len() {
            self.buffer.push(b'\n');
            self.whole = self.buffer.len();
        }
        Ok(())
    }
}

/// The number of line breaks in a text.
pub(crate) fn newlines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The number of line breaks in the text that a stream gives.
pub(super) async fn newlines_of(mut source: ByteStream) -> DfResult<u64> {
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

    use super::*;

    async fn blocks(parts: &[&str], quotes: bool) -> Result<Vec<String>, Fault> {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from((*part).to_owned()))).collect();
        let quotes = quotes.then(|| Quotes::new(b','));
        let mut blocks = Blocks::new(stream::iter(parts).boxed(), true, Compression::None, quotes)?;
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
    async fn an_open_quotation_and_a_long_record_are_faults() {
        let open = blocks(&["a\n1\n\"x\n", "y"], true).await;
        assert!(matches!(open, Err(Fault::Open(2))), "{open:?}");
        let long = "x".repeat(MAX_RECORD_BYTES);
        let long = blocks(&["a\n", &long, "y"], false).await;
        assert!(matches!(long, Err(Fault::Long(1))), "{long:?}");
    }
}
