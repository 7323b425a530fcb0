//! Copies the parts of a workbook that are read, once their expanded XML has passed the guard.
//!
//! A workbook is a zip archive whose parts may expand to a thousand times their size, and whose
//! directory may name any number of them. The copy has only parts of which all bytes were seen, still
//! compressed, so the parser of workbooks never expands anything else.

use std::io::{Cursor, Read};

use zip::result::ZipError;
use zip::{ZipArchive, ZipWriter};

use super::guard::Guard;

/// The most bytes of a workbook.
pub(crate) const MAX_FILE_BYTES: u64 = 128 << 20;

/// The most bytes of all its expanded parts.
const MAX_EXPANDED_BYTES: u64 = 4 << 30;

/// The most bytes of an expanded part that is neither a sheet nor the table of shared texts. Larger
/// ones (caches of pivot tables, notes) are not needed.
const MAX_OTHER_BYTES: u64 = 32 << 20;

/// The most parts.
const MAX_PARTS: usize = 10_000;

/// The most bytes that the parser may keep of all parts.
const MAX_KEPT_BYTES: u64 = 384 << 20;

/// What a zip archive and an encrypted workbook begin with.
const ZIP: &[u8] = b"PK\x03\x04";
const COMPOUND: &[u8] = b"\xd0\xcf\x11\xe0";

/// The beginning of the entry of a part in the directory of an archive.
const ENTRY: [u8; 4] = *b"PK\x01\x02";

/// The checked parts of a workbook.
#[derive(Debug)]
pub(super) struct Checked {
    /// An archive.
    pub(super) parts: Vec<u8>,
    /// The bytes that reading them takes.
    pub(super) kept: u64,
}

/// Checks a workbook. An error is why it cannot be read.
pub(super) fn check(file: &[u8]) -> Result<Checked, String> {
    if file.starts_with(COMPOUND) {
        return Err("it is protected by a password, or a workbook of Excel 97 (.xls)".to_owned());
    }
    if !file.starts_with(ZIP) {
        return Err("it does not begin as a workbook (.xlsx) does".to_owned());
    }
    // The directory is kept in memory before it can be counted.
    if file.windows(ENTRY.len()).filter(|bytes| *bytes == ENTRY).count() > MAX_PARTS {
        return Err(format!("it has more than {MAX_PARTS} parts"));
    }
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(|error| damaged(&error))?;
    let mut copy = ZipWriter::new(Cursor::new(Vec::new()));
    let (mut kept, mut expanded) = (0, 0);
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).map_err(|error| damaged(&error))?;
        let name = part.name().map_err(|error| damaged(&error))?.to_ascii_lowercase();
        if !name.ends_with(".xml") && !name.ends_with(".rels") {
            continue;
        }
        let Some(bytes) = expand(&mut part, &mut expanded)? else { continue };
        kept += bytes;
        if kept > MAX_KEPT_BYTES {
            return Err("its texts and styles are too many to be kept".to_owned());
        }
        drop(part);
        let raw = archive.by_index_raw(index).map_err(|error| damaged(&error))?;
        copy.raw_copy_file(raw).map_err(|error| damaged(&error))?;
    }
    let parts = copy.finish().map_err(|error| damaged(&error))?.into_inner();
    kept += parts.len() as u64;
    Ok(Checked { parts, kept })
}

/// Expands a part, and forgets it: the bytes that a parser may keep, or `None` if it is not needed.
fn expand(part: &mut impl Read, expanded: &mut u64) -> Result<Option<u64>, String> {
    let (mut guard, mut buffer, mut bytes) = (Guard::default(), vec![0; 64 << 10], 0_u64);
    loop {
        let read = match part.read(&mut buffer) {
            Ok(0) => return guard.end().map(Some),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("it is damaged: {error}")),
        };
        (bytes, *expanded) = (bytes + read as u64, *expanded + read as u64);
        if *expanded > MAX_EXPANDED_BYTES {
            let most = MAX_EXPANDED_BYTES >> 30;
            return Err(format!("it has more than {most} GiB when it is expanded"));
        }
        guard.push(&buffer[..read])?;
        if bytes > MAX_OTHER_BYTES && !guard.has_values() {
            return Ok(None);
        }
    }
}

fn damaged(error: &ZipError) -> String {
    match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => {
            "it is protected by a password".to_owned()
        }
        other => format!("it is damaged: {other}"),
    }
}
