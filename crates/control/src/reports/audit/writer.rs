//! The thread that writes the files of the audit.
//!
//! Invariants: a file has whole lines, but for the last one while it is written. Lines are written
//! within some ten milliseconds, and are on the disk within a second. A write that failed is tried
//! again, with the same lines, until it succeeds or the server ends; what comes meanwhile waits in
//! the queue, and is counted when that is full.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use snowmelt_kernel::lock::{Lock, LockMode};
use snowmelt_types::{Code, ErrorReport};

use super::chain::{CURRENT, ChainHead, LinePlace, closed_name, files};
use super::event::AuditEvent;
use super::{AuditSettings, AuditState};

/// The time after which what was written is on the disk.
const SYNC_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a write that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long lines are gathered that are written at once. Woken by each line, the thread would take
/// more time from calls than the lines cost.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// The most lines that are written at once.
const MAX_AT_ONCE: usize = 1024;

/// Why lines are not there.
const QUEUE_FULL: &str = "more lines waited than the queue holds";
const TORN: &str = "the last line was incomplete when the server started";

/// The writer of the files.
pub(super) struct Writer {
    settings: AuditSettings,
    state: Arc<AuditState>,
    file: File,
    /// The bytes of whole lines in the file.
    length: u64,
    /// The number of the first line of the file; none while it is empty.
    first: Option<u64>,
    head: ChainHead,
    /// Whether the last write failed, and may have written a part.
    is_partial: bool,
    unsynced_since: Option<Instant>,
    // One server for each folder: two would cut each other's lines.
    _lock: Lock,
}

impl Writer {
    /// Opens the files of a folder, and goes on after their last line.
    pub fn open(settings: AuditSettings, state: Arc<AuditState>) -> Result<Self, ErrorReport> {
        let failed = |error: io::Error| {
            let folder = settings.folder.display();
            ErrorReport::new(Code::AUDIT, format!("cannot write the audit in {folder}: {error}"))
                .hint("make room, or name another folder: audit.folder (SNOWMELT_AUDIT_FOLDER)")
        };
        prepare(&settings.folder).map_err(failed)?;
        let lock = File::open(&settings.folder);
        let lock = lock.and_then(|folder| Lock::attempt(folder, LockMode::Exclusive));
        let lock = lock.map_err(failed)?.ok_or_else(|| {
            let folder = settings.folder.display();
            ErrorReport::new(Code::AUDIT, format!("another server writes the audit in {folder}"))
                .hint("name a folder for each server: audit.folder (SNOWMELT_AUDIT_FOLDER)")
        })?;
        let file = create(&settings.folder.join(CURRENT)).map_err(failed)?;
        let (first, head, torn) = go_on(&settings.folder, &file).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut writer = Self {
            settings,
            state,
            file,
            length,
            first,
            head,
            is_partial: true,
            unsynced_since: None,
            _lock: lock,
        };
        if torn {
            let gap = writer.lines(&[AuditEvent::gap(1, TORN)]);
            writer.append(&gap).map_err(|error| {
                ErrorReport::new(Code::AUDIT, format!("cannot write the audit: {error}"))
            })?;
        }
        Ok(writer)
    }

    /// Writes what comes until nobody sends any more.
    pub fn run(mut self, events: &Receiver<AuditEvent>) {
        let mut is_over = false;
        let mut has_many = false;
        while !is_over {
            let mut some = Vec::new();
            match events.recv_timeout(SYNC_TIMEOUT) {
                Ok(event) => {
                    some.push(event);
                    if !has_many && !self.state.is_closing.load(Ordering::Relaxed) {
                        std::thread::sleep(GATHERED_FOR);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => is_over = true,
            }
            some.extend(events.try_iter().take(MAX_AT_ONCE));
            has_many = some.len() > MAX_AT_ONCE;
            some.extend(self.state.logins.due(is_over));
            let lost = self.state.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                some.push(AuditEvent::gap(lost, QUEUE_FULL));
            }
            if !some.is_empty() {
                self.write(&some);
            }
            self.sync(is_over);
        }
    }

    /// Writes lines, and tries again until they are written, or the server ends.
    fn write(&mut self, events: &[AuditEvent]) {
        let head = self.head.clone();
        let first = self.first;
        let lines = self.lines(events);
        while let Err(error) = self.append(&lines) {
            if !self.state.is_failing.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "the audit cannot be written; it is tried again");
            }
            if self.state.is_closing.load(Ordering::Relaxed) {
                tracing::error!(lines = events.len(), "the last lines of the audit are lost");
                // What is written after all follows the last line that is there.
                self.head = head;
                self.first = first;
                self.state.lost.fetch_add(events.len() as u64, Ordering::Relaxed);
                return;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        if self.state.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the audit is written again");
        }
        self.state.written.notify_one();
    }

    /// Returns the next lines of the chain.
    fn lines(&mut self, events: &[AuditEvent]) -> String {
        let mut lines = String::new();
        for event in events {
            self.first.get_or_insert(self.head.seq + 1);
            match self.head.next(event) {
                Ok(line) => {
                    lines.push_str(&line);
                    lines.push('\n');
                }
                Err(error) => tracing::error!(%error, "a line of the audit cannot be made"),
            }
        }
        lines
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.is_partial {
            // A part of it may have been written before the disk was full.
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::Start(self.length))?;
        }
        self.is_partial = true;
        self.file.write_all(lines.as_bytes())?;
        self.is_partial = false;
        self.length += lines.len() as u64;
        self.unsynced_since.get_or_insert_with(Instant::now);
        if self.length >= self.settings.file_size.bytes().max(1)
            && let Err(error) = self.rotate()
        {
            tracing::warn!(%error, "the file of the audit goes on, a new one cannot be made");
        }
        Ok(())
    }

    /// Closes the file and begins the next one.
    fn rotate(&mut self) -> io::Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        self.file.sync_all()?;
        let folder = &self.settings.folder;
        let current = folder.join(CURRENT);
        let closed = folder.join(closed_name(first));
        std::fs::rename(&current, &closed)?;
        self.file = create(&current).inspect_err(|_| {
            // The next attempt finds it under its name.
            let _ = std::fs::rename(&closed, &current);
        })?;
        self.length = 0;
        self.first = None;
        self.unsynced_since = None;
        File::open(folder)?.sync_all()?;
        let keep = self.settings.files as usize;
        if keep > 0 {
            let all = files(folder)?;
            // The last one is the one that is written.
            let many = all.len().saturating_sub(keep + 1);
            all.iter().take(many).try_for_each(std::fs::remove_file)?;
        }
        Ok(())
    }

    fn sync(&mut self, at_once: bool) {
        let is_due = |since: Instant| at_once || since.elapsed() >= SYNC_TIMEOUT;
        if self.unsynced_since.is_some_and(is_due) {
            self.unsynced_since = None;
            if let Err(error) = self.file.sync_data() {
                tracing::error!(%error, "the audit may not be on the disk");
            }
        }
    }
}

/// Makes the folder, which only the server's user enters.
fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file =
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    // One that was there may have been open to others.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Finds the first line of the file, the end of the chain, and whether a line was incomplete, which
/// is removed.
fn go_on(folder: &Path, file: &File) -> io::Result<(Option<u64>, ChainHead, bool)> {
    let found = read(file)?;
    if found.whole < file.metadata()?.len() {
        file.set_len(found.whole)?;
    }
    let is_torn = found.is_torn;
    if let Some(head) = found.head {
        return Ok((found.first, head, is_torn));
    }
    // The file is empty: the chain ends in the one before it.
    let closed: Vec<PathBuf> = files(folder)?;
    let before = closed.iter().rev().find(|path| !path.ends_with(CURRENT));
    let head = match before {
        Some(path) => read(&File::open(path)?)?.head.unwrap_or_default(),
        None => ChainHead::default(),
    };
    Ok((None, head, is_torn))
}

#[derive(Default)]
struct FoundLines {
    first: Option<u64>,
    head: Option<ChainHead>,
    /// The bytes of whole lines.
    whole: u64,
    is_torn: bool,
}

fn read(file: &File) -> io::Result<FoundLines> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut found = FoundLines::default();
    let mut last = String::new();
    let mut text = Vec::new();
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let Some(line) = text.strip_suffix(b"\n") else {
            found.is_torn = true;
            break;
        };
        found.whole += text.len() as u64;
        last = String::from_utf8_lossy(line).into_owned();
        if found.first.is_none() {
            found.first = serde_json::from_str(&last).ok().map(|place: LinePlace| place.seq);
        }
    }
    if found.whole > 0 {
        let no_line = || io::Error::other("the last line is not one of the audit");
        found.head = Some(ChainHead::of_line(&last).ok_or_else(no_line)?);
    }
    Ok(found)
}
