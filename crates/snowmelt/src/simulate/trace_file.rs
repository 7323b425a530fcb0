//! The file of a trace: as it is, compressed by gzip, or stdin.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use snowmelt_types::{Code, ErrorReport};

use crate::terminal::text;

/// The first bytes of a file that gzip has written.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether a path stands for stdin.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of a trace's file in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

/// Opens the file of a trace. Compressed data is recognised by its first bytes, whatever the file's
/// name.
///
/// # Errors
/// `SM-0110` if it cannot be read.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, ErrorReport> {
    let input: Box<dyn Read> = match is_stdin(path) {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(|error| unreadable(path, &error))?),
    };
    let mut input = BufReader::new(input);
    let begins = input.fill_buf().map_err(|error| unreadable(path, &error))?;
    Ok(match begins.starts_with(&GZIP) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(input))),
        false => Box::new(input),
    })
}

fn unreadable(path: &Path, error: &io::Error) -> ErrorReport {
    let reason = text::reason(error);
    ErrorReport::new(Code::OPTION, format!("{} cannot be read: {reason}", name(path)))
}
