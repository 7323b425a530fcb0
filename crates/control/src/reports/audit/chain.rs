//! The chain of lines: each has its number and the digest of the line before it.
//!
//! Invariant: a line that is removed, changed or put in shows at the line after it. The last lines
//! can be removed unseen by whoever may write the files; a collector has them.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, Digest, ErrorReport, Report};

/// The name of the file that is written.
pub(super) const CURRENT: &str = "audit.jsonl";

/// The digest that the first line of all has of the line before it.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a chain: the number and the digest of its last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChainHead {
    pub seq: u64,
    pub digest: String,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { seq: 0, digest: NOTHING.to_owned() }
    }
}

#[derive(Serialize)]
struct ChainedLine<'a, E> {
    seq: u64,
    #[serde(flatten)]
    event: &'a E,
    prev: &'a str,
}

/// The place of a line in the chain.
#[derive(Debug, Deserialize)]
pub(super) struct LinePlace {
    pub seq: u64,
    pub prev: String,
}

impl ChainHead {
    /// Makes the next line, without its end.
    pub fn next(&mut self, event: &impl Serialize) -> serde_json::Result<String> {
        let seq = self.seq + 1;
        let line = serde_json::to_string(&ChainedLine { seq, event, prev: &self.digest })?;
        *self = Self::of(seq, &line);
        Ok(line)
    }

    fn of(seq: u64, line: &str) -> Self {
        Self { seq, digest: Digest::of(line).as_str().to_owned() }
    }

    /// Reads the head from the last line of a file.
    pub fn of_line(line: &str) -> Option<Self> {
        let place: LinePlace = serde_json::from_str(line).ok()?;
        Some(Self::of(place.seq, line))
    }
}

/// Returns the name of a file that is closed, by its first line.
pub(super) fn closed_name(first: u64) -> String {
    format!("audit-{first:020}.jsonl")
}

/// Returns the files of a folder, the oldest first.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut closed = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("audit-") && name.ends_with(".jsonl") {
            closed.push(path);
        }
    }
    closed.sort();
    let current = folder.join(CURRENT);
    closed.extend(current.exists().then_some(current));
    Ok(closed)
}

/// The result of a check of the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditCheck {
    /// The number of lines.
    pub lines: u64,
    /// The number of the first line: above 1 where older files were removed.
    pub first: u64,
    /// The number of the last line.
    pub last: u64,
    /// The digest of the last line.
    pub digest: String,
    /// Whether the last line is incomplete: it is being written, or was when the server ended.
    pub is_torn: bool,
}

/// The first place at which the chain is broken, or why the files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditBreak {
    /// A line does not follow the one before it.
    #[error("{}, line {line}: {why}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line in it, from 1.
        line: u64,
        /// The reason why it does not follow.
        why: String,
    },
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Report for AuditBreak {
    fn report(&self) -> ErrorReport {
        match self {
            Self::Line { .. } => ErrorReport::new(Code::AUDIT_BROKEN, self.to_string()).hint(
                "compare the lines around it with those of the collector or of a copy of the files",
            ),
            Self::File { .. } => ErrorReport::new(Code::AUDIT, self.to_string()),
        }
    }
}

/// Checks that each line in the files of a folder follows the one before it.
///
/// # Errors
/// The first line that does not.
pub fn verify(folder: &Path) -> Result<AuditCheck, AuditBreak> {
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |error| AuditBreak::File { path, error }
    };
    let mut checking = Checking::default();
    for path in files(folder).map_err(unread(folder))? {
        let mut file = BufReader::new(File::open(&path).map_err(unread(&path))?);
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            if file.read_until(b'\n', &mut text).map_err(unread(&path))? == 0 {
                break;
            }
            checking.line(&text).map_err(|why| {
                let file = path.clone();
                AuditBreak::Line { file, line: number, why }
            })?;
        }
    }
    let Checking { head, lines, first, is_torn } = checking;
    let ChainHead { seq: last, digest } = head;
    Ok(AuditCheck { lines, first, last, digest, is_torn })
}

#[derive(Default)]
struct Checking {
    head: ChainHead,
    lines: u64,
    first: u64,
    is_torn: bool,
}

impl Checking {
    fn line(&mut self, text: &[u8]) -> Result<(), String> {
        if self.is_torn {
            return Err("the line before it is incomplete".to_owned());
        }
        let Some(line) = text.strip_suffix(b"\n") else {
            self.is_torn = true;
            return Ok(());
        };
        let line = std::str::from_utf8(line).map_err(|_| "the line is no text".to_owned())?;
        let place: Result<LinePlace, _> = serde_json::from_str(line);
        let place = place.map_err(|_| "the line has no number and digest".to_owned())?;
        let is_first = self.lines == 0;
        if is_first {
            self.first = place.seq;
        }
        // The first line there is follows one that was removed with its file, or none.
        let begins = is_first && place.seq > 1;
        if !begins && place.seq != self.head.seq + 1 {
            let last = self.head.seq;
            return Err(format!(
                "line {} of the chain follows line {last}: lines are missing or were put in",
                place.seq
            ));
        }
        if !begins && place.prev != self.head.digest {
            return Err(format!(
                "line {} of the chain has another digest of line {} than that has: one of the two \
                 was changed",
                place.seq, self.head.seq
            ));
        }
        self.head = ChainHead::of(place.seq, line);
        self.lines += 1;
        Ok(())
    }
}
