//! Copies the parts of a workbook that are read, once their expanded XML has passed the guard.
//!
//! A workbook is a zip archive whose parts may expand to a thousand times their size, and whose
//! directory may name any number of them. The copy has only parts of which all bytes were seen, still
//! compressed, so the parser of workbooks never expands anything else.

use std::io::{Cursor, Read};

use zip::result::ZipError;
use zip::{ZipArchive, ZipWriter};

use super::guard::Guard;
use super::measure::PartKind;

/// The most bytes of a workbook.
pub const MAX_FILE_BYTES: u64 = 128 << 20;

/// The most bytes of all its expanded parts.
const MAX_EXPANDED_BYTES: u64 = 4 << 30;

/// The most bytes of an expanded part that is neither a sheet nor the table of shared texts.
const MAX_OTHER_BYTES: u64 = 32 << 20;

/// The most parts of a workbook.
const MAX_PARTS: usize = 10_000;

/// The most bytes that the parser may keep of all parts.
const MAX_KEPT_BYTES: u64 = 384 << 20;

/// The first bytes of a zip archive, and of an encrypted workbook.
const ZIP: &[u8] = b"PK\x03\x04";
const COMPOUND: &[u8] = b"\xd0\xcf\x11\xe0";

/// The folder of the relations of sheets, such as to their links, which are many and not needed.
const SHEET_RELATIONS: &str = "worksheets/_rels/";

/// The beginning of the entry of a part in the directory of an archive.
const ENTRY: [u8; 4] = *b"PK\x01\x02";

/// The checked parts of a workbook.
#[derive(Debug)]
pub(super) struct CheckedArchive {
    /// The archive with the copied parts.
    pub(super) parts: Vec<u8>,
    /// Bytes of memory that reading the parts takes.
    pub(super) kept: u64,
}

/// Checks a workbook. An error says why it cannot be read.
pub(super) fn check(file: &[u8]) -> Result<CheckedArchive, String> {
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
    // Parts that share their bytes would be expanded and copied again and again.
    if archive.has_overlapping_entries().map_err(|error| damaged(&error))? {
        return Err("it is damaged: its parts overlap".to_owned());
    }
    let mut copy = ZipWriter::new(Cursor::new(Vec::new()));
    let mut kept = 0;
    let mut expanded = 0;
    let mut copied = 0_u64;
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).map_err(|error| damaged(&error))?;
        let name = part.name().map_err(|error| damaged(&error))?.to_ascii_lowercase();
        let is_xml = name.ends_with(".xml") || name.ends_with(".rels");
        if !is_xml || name.contains(SHEET_RELATIONS) {
            continue;
        }
        let Some(bytes) = expand(&mut part, &mut expanded)? else { continue };
        kept += bytes;
        if kept > MAX_KEPT_BYTES {
            return Err("its texts and styles are too many to be kept".to_owned());
        }
        copied = copied.saturating_add(part.compressed_size());
        if copied > file.len() as u64 {
            return Err("it is damaged: its parts are longer than it is".to_owned());
        }
        drop(part);
        let raw = archive.by_index_raw(index).map_err(|error| damaged(&error))?;
        copy.raw_copy_file(raw).map_err(|error| damaged(&error))?;
    }
    let parts = copy.finish().map_err(|error| damaged(&error))?.into_inner();
    kept += parts.len() as u64;
    Ok(CheckedArchive { parts, kept })
}

/// Expands a part, and forgets it. Returns the bytes that a parser may keep of it, or `None` if the
/// part is not needed.
fn expand(part: &mut impl Read, expanded: &mut u64) -> Result<Option<u64>, String> {
    let mut guard = Guard::default();
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0_u64;
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
        match guard.kind() {
            Some(PartKind::Unneeded) => return Ok(None),
            Some(kind) if bytes > MAX_OTHER_BYTES && !kind.has_values() => {
                let most = MAX_OTHER_BYTES >> 20;
                return Err(format!("its styles or its list of sheets have more than {most} MiB"));
            }
            _ => (),
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::SimpleFileOptions;

    use super::*;

    fn written(parts: &[(&str, &str)]) -> ZipWriter<Cursor<Vec<u8>>> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in parts {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer
    }

    #[test]
    fn parts_that_share_bytes_are_refused() {
        let plain = written(&[("xl/a.xml", "<worksheet/>")]).finish().unwrap().into_inner();
        assert!(check(&plain).is_ok());
        let mut writer = written(&[("xl/a.xml", "<worksheet/>")]);
        writer.shallow_copy_file("xl/a.xml", "xl/b.xml").unwrap();
        let why = check(&writer.finish().unwrap().into_inner()).unwrap_err();
        assert!(why.contains("overlap"), "{why}");
    }

    #[test]
    fn only_needed_parts_are_copied() {
        let names = |parts: &[(&str, &str)]| {
            let checked = check(&written(parts).finish().unwrap().into_inner())?;
            let archive = ZipArchive::new(Cursor::new(checked.parts)).unwrap();
            Ok::<_, String>(archive.file_names().map(|name| name.unwrap().into_owned()).collect())
        };
        let external = "<externalLink><sheetDataSet><sheetData/></sheetDataSet></externalLink>";
        let found = names(&[
            ("xl/workbook.xml", "<workbook/>"),
            ("xl/externalLinks/a.xml", external),
            ("xl/worksheets/_rels/a.xml.rels", "<Relationships/>"),
        ]);
        let names: Vec<String> = found.unwrap();
        assert_eq!(names, ["xl/workbook.xml"]);
    }

    #[test]
    fn a_part_that_is_too_large_is_not_left_out() {
        let spaces = " ".repeat(1 << 20);
        let long = format!("{spaces}<a/>").repeat(33);
        for root in ["styleSheet", "workbook"] {
            // What holds values elsewhere does not waive the limit.
            for before in ["", "<sheetData/>", "<sst/>"] {
                let text = format!("<{root}>{before}{long}</{root}>");
                let file = written(&[("xl/x.xml", &text)]).finish().unwrap().into_inner();
                assert!(check(&file).is_err(), "{root} {before}");
            }
        }
        let text = format!("<worksheet>{long}</worksheet>");
        assert!(check(&written(&[("xl/x.xml", &text)]).finish().unwrap().into_inner()).is_ok());
    }
}
