//! The lines of the files from some line on, for the collector.
//!
//! Invariant: a file is known by the number of its first line, whatever its name is now. Lines
//! whose file was removed before they were read are counted.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::chain::{LinePlace, files};

/// The most bytes that are read at once.
const MAX_READ: u64 = 1 << 20;

/// The longest line.
const MAX_LINE: u64 = 1 << 20;

/// The place of the next line: the first line of its file, the bytes before it, and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FollowerPlace {
    first: u64,
    offset: u64,
    pub next: u64,
}

/// Lines, and where those after them begin.
#[derive(Debug, Default)]
pub(super) struct FollowedLines {
    pub text: Vec<u8>,
    /// The lines before them that are not there any more.
    pub lost: u64,
    pub after: FollowerPlace,
}

/// Reads lines from a place on; none where there are no further ones yet.
pub(super) fn read(folder: &Path, from: FollowerPlace) -> io::Result<FollowedLines> {
    let mut known = Vec::new();
    for path in files(folder)? {
        if let Some(first) = first_line(&path)? {
            known.push((first, path));
        }
    }
    let mut at = from;
    let mut lost = 0;
    if !known.iter().any(|(first, _)| *first == at.first) {
        let Some((first, _)) = known.first() else { return Ok(none(from)) };
        lost = first.saturating_sub(at.next.max(1));
        at = FollowerPlace { first: *first, offset: 0, next: *first };
    }
    loop {
        let file = known.iter().find(|(first, _)| *first == at.first);
        let Some((_, path)) = file else { return Ok(none(from)) };
        let text = whole_lines(path, at.offset)?;
        if text.is_empty() {
            let next = known.iter().map(|(first, _)| *first).find(|first| *first > at.first);
            let Some(first) = next else { return Ok(FollowedLines { lost, ..none(at) }) };
            at = FollowerPlace { first, offset: 0, next: first };
            continue;
        }
        let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        let after =
            FollowerPlace { offset: at.offset + text.len() as u64, next: at.next + lines, ..at };
        return Ok(FollowedLines { text, lost, after });
    }
}

fn none(at: FollowerPlace) -> FollowedLines {
    FollowedLines { after: at, ..FollowedLines::default() }
}

fn first_line(path: &PathBuf) -> io::Result<Option<u64>> {
    let file = match File::open(path) {
        Ok(file) => file,
        // It was closed or removed meanwhile, and is found again by its new name.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut line = String::new();
    BufReader::new(file).take(MAX_LINE).read_line(&mut line)?;
    Ok(serde_json::from_str(line.trim_end()).ok().map(|place: LinePlace| place.seq))
}

fn whole_lines(path: &PathBuf, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.take(MAX_READ).read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text.truncate(whole);
    Ok(text)
}
