//! Members of a tar stream: headers combined with their long names and extended headers.
//!
//! The `tar` crate parses the fields of a header. The framing is parsed here, because that crate's
//! extended headers split values at newlines, and a capability may contain one. Sparse members are
//! refused.

use std::io::{self, Read, Seek, SeekFrom};

use tar::{EntryType, Header};

use super::LayerLimits;
use super::pax::{self, PaxRecords};
use crate::{Error, Result};

const RECORD: usize = 512;

/// A member with its long names and extended headers applied.
pub(crate) struct ArchiveMember {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub size: u64,
    pub header: Header,
    pub records: PaxRecords,
}

/// A tar stream that is read once.
pub(crate) struct Archive<R> {
    stream: R,
    limits: LayerLimits,
    global: PaxRecords,
    /// Remaining bytes of the current member, and its padding.
    left: u64,
    padding: u64,
    read: u64,
}

impl<R: Read> Archive<R> {
    pub fn new(stream: R, limits: LayerLimits) -> Self {
        Self { stream, limits, global: PaxRecords::new(), left: 0, padding: 0, read: 0 }
    }

    /// Reads the next member; skips the rest of the current one.
    pub fn next(&mut self) -> Result<Option<ArchiveMember>> {
        let mut path = None;
        let mut link = None;
        let mut records = PaxRecords::new();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                let alone = path.is_some() || link.is_some() || !records.is_empty();
                return if alone {
                    Err(wrong("it ends after an extended header"))
                } else {
                    Ok(None)
                };
            };
            let size = size_of(&header)?;
            let kind = header.entry_type();
            match kind {
                EntryType::XGlobalHeader => {
                    let more = pax::parse(&self.extension(size)?)?;
                    self.global.extend(more);
                    // Each header is small, but they accumulate in memory.
                    let kept = self.global.iter().map(|(key, value)| key.len() + value.len());
                    let kept = kept.sum::<usize>() as u64;
                    let most = self.limits.header_bytes;
                    LayerLimits::check(kept, most, "the global headers of a layer", "bytes")?;
                }
                EntryType::XHeader => records = pax::parse(&self.extension(size)?)?,
                EntryType::GNULongName => path = Some(self.long(size)?),
                EntryType::GNULongLink => link = Some(self.long(size)?),
                EntryType::GNUSparse => return Err(wrong("it has a sparse member")),
                _ => return self.member(header, path, link, records).map(Some),
            }
        }
    }

    /// Reads from the content of the current member.
    pub fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.read_some(&mut buffer[..most])?;
        if count == 0 {
            return Err(wrong("it ends inside a member"));
        }
        self.left -= count as u64;
        Ok(count)
    }

    /// Reads to the end of the stream, which may contain only padding, and returns the stream.
    pub fn finish(mut self) -> Result<R> {
        let mut buffer = vec![0; 64 << 10];
        while self.read_some(&mut buffer)? > 0 {}
        Ok(self.stream)
    }

    fn member(
        &mut self,
        header: Header,
        path: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
        records: PaxRecords,
    ) -> Result<ArchiveMember> {
        let mut all = self.global.clone();
        all.extend(records);
        // An empty value resets a field; an attribute may be empty.
        all.retain(|key, value| !value.is_empty() || key.starts_with(pax::XATTR));
        if all.keys().any(|key| key.starts_with(b"GNU.sparse.")) {
            return Err(wrong("it has a sparse member"));
        }
        let size = match number(&all, "size")? {
            Some(size) => size,
            None => size_of(&header)?,
        };
        let path = all.get(&b"path"[..]).cloned().or(path);
        let link = all.get(&b"linkpath"[..]).cloned().or(link);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        // Links and folders have no content, even if the header has a size.
        let has_content = matches!(header.entry_type(), EntryType::Regular | EntryType::Continuous);
        self.begin(if has_content { size } else { 0 });
        Ok(ArchiveMember {
            path,
            link: link.unwrap_or_default(),
            size: self.left,
            header,
            records: all,
        })
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (RECORD as u64 - size % RECORD as u64) % RECORD as u64;
    }

    fn skip(&mut self) -> Result<()> {
        let mut buffer = [0; 8 << 10];
        while self.left > 0 {
            self.read_content(&mut buffer)?;
        }
        self.left = std::mem::take(&mut self.padding);
        while self.left > 0 {
            self.read_content(&mut buffer)?;
        }
        Ok(())
    }

    /// Reads the next header; `None` at a record of zeros or at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut record = [0; RECORD];
        let count = self.fill(&mut record)?;
        if count == 0 || record.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if count < RECORD {
            return Err(wrong("it ends inside a header"));
        }
        let header = Header::from_byte_slice(&record).clone();
        let sum: u32 =
            record[..148].iter().chain(&record[156..]).map(|byte| u32::from(*byte)).sum();
        match header.cksum() {
            Ok(found) if found == sum + 8 * 32 => Ok(Some(header)),
            _ => Err(wrong("a header has a wrong checksum")),
        }
    }

    /// Reads the content of a header that describes the following member.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>> {
        LayerLimits::check(size, self.limits.header_bytes, "a header in a layer", "bytes")?;
        self.begin(size);
        let mut content = vec![0; size as usize];
        let mut at = 0;
        while at < content.len() {
            at += self.read_content(&mut content[at..])?;
        }
        Ok(content)
    }

    /// Reads a long name of GNU tar, terminated by a zero byte.
    fn long(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut name = self.extension(size)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        while at < buffer.len() {
            match self.read_some(&mut buffer[at..])? {
                0 => break,
                count => at += count,
            }
        }
        Ok(at)
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome.map_err(unreadable)?,
            }
        };
        self.read += count as u64;
        LayerLimits::check(self.read, self.limits.bytes, "a layer", "uncompressed bytes")?;
        Ok(count)
    }
}

impl<R: Read + Seek> Archive<R> {
    /// Returns the offset of the current member's content.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Skips the content of the current member without reading it.
    pub fn jump(&mut self) -> Result<()> {
        let bytes =
            std::mem::take(&mut self.left).saturating_add(std::mem::take(&mut self.padding));
        let by = i64::try_from(bytes).map_err(|_| wrong("a size is larger than any file"))?;
        self.stream.seek(SeekFrom::Current(by)).map_err(unreadable)?;
        self.read = self.read.saturating_add(bytes);
        Ok(())
    }
}

/// Returns the size in a header. A blank field is zero: some writers leave it blank for links.
fn size_of(header: &Header) -> Result<u64> {
    if header.as_old().size.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(0);
    }
    header.entry_size().map_err(|_| wrong("a size is not a number"))
}

/// Parses a decimal number of an extended header.
pub(super) fn number(records: &PaxRecords, key: &str) -> Result<Option<u64>> {
    let Some(value) = records.get(key.as_bytes()) else { return Ok(None) };
    let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    parsed.map(Some).ok_or_else(|| wrong(&format!("the record `{key}` is not a number")))
}

/// Converts an error of reading. If the layer's origin returned it, the kind of the error is kept.
pub(super) fn unreadable(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| wrong(&error.to_string()))
}

pub(super) fn wrong(reason: &str) -> Error {
    Error::refused("a layer", format!("its archive cannot be read: {reason}"))
}
