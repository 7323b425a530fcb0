//! The target of a result: stdout, or a file that gets its name when it is complete.
//!
//! Invariant: a regular file is written under a temporary name in the same folder and renamed;
//! other files (`/dev/null`, a named pipe) are written in place and never replaced.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::error::ArrowError;
use snowmelt_types::{Code, ErrorReport};
use tempfile::{NamedTempFile, TempPath};

use crate::terminal::text;

/// Size of the write buffer.
const BUFFER: usize = 256 << 10;

/// A file or stdout, to which a result is written.
pub struct ResultTarget {
    writer: BufWriter<File>,
    // The temporary file with its final name; dropping it removes it.
    pending: Option<(TempPath, PathBuf)>,
    failures: TargetError,
}

/// The last I/O error of a target, kept because format libraries wrap errors.
#[derive(Clone)]
pub struct TargetError {
    name: String,
    last: Arc<Mutex<Option<io::Error>>>,
}

impl ResultTarget {
    /// Opens a file, or stdout.
    ///
    /// # Errors
    /// `SM-0114` if it cannot be opened, `SM-0506` for a full disk.
    pub fn open(file: Option<&Path>) -> Result<Self, ErrorReport> {
        let name = file.map_or_else(|| "stdout".to_owned(), |file| file.display().to_string());
        let failures = TargetError { name, last: Arc::default() };
        let opened = match file {
            None => stdout().map(|file| (file, None)),
            Some(path) => open_file(path),
        };
        match opened {
            Ok((file, pending)) => {
                Ok(Self { writer: BufWriter::with_capacity(BUFFER, file), pending, failures })
            }
            Err(error) => Err(failures.describe(&error)),
        }
    }

    /// A handle to this target's errors.
    pub fn failures(&self) -> TargetError {
        self.failures.clone()
    }

    /// Flushes the buffer and gives the file its final name.
    pub fn commit(mut self) -> io::Result<()> {
        self.flush()?;
        let Some((temporary, name)) = self.pending.take() else { return Ok(()) };
        let persisted = temporary.persist(name).map_err(|error| error.error);
        persisted.map_err(|error| self.failures.note(error))
    }
}

impl Write for ResultTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes).map_err(|error| self.failures.note(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().map_err(|error| self.failures.note(error))
    }
}

impl Drop for ResultTarget {
    // Removes the temporary file of a target that was not committed.
    fn drop(&mut self) {
        self.pending = None;
    }
}

impl TargetError {
    /// True if the reader of stdout closed the pipe.
    pub fn reader_gone(&self) -> bool {
        self.lock().as_ref().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    }

    /// The error report: of the system's error if there is one, else of `error`.
    pub fn report(&self, error: &ArrowError) -> ErrorReport {
        match &*self.lock() {
            Some(cause) => self.describe(cause),
            None => {
                ErrorReport::new(Code::OUTPUT, format!("the result cannot be written: {error}"))
                    .hint("cast the column in the query, or choose another format with -o")
            }
        }
    }

    fn describe(&self, error: &io::Error) -> ErrorReport {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let code = if full { Code::DISK_FULL } else { Code::OUTPUT };
        ErrorReport::new(code, format!("{} cannot be written: {}", self.name, text::reason(error)))
    }

    fn note(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        let shown = io::Error::new(kind, error.to_string());
        *self.lock() = Some(error);
        shown
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<io::Error>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A duplicated descriptor bypasses std's line buffer, which would split large writes into lines.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

type OpenFile = (File, Option<(TempPath, PathBuf)>);

fn open_file(path: &Path) -> io::Result<OpenFile> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Ok((File::options().write(true).open(&path)?, None));
    }
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mode = std::fs::metadata(&path).map_or(0o666, |found| found.permissions().mode());
    let prefix = format!(".{}.", name.to_string_lossy());
    let temporary: NamedTempFile = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    let (file, temporary) = temporary.into_parts();
    Ok((file, Some((temporary, path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_gets_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer.csv");
        let mut target = ResultTarget::open(Some(&path)).unwrap();
        target.write_all(b"a\n1\n").unwrap();
        assert!(!path.exists());
        target.commit().unwrap();
        assert_eq!(names(folder.path()), ["answer.csv"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"a\n1\n");
    }

    #[test]
    fn a_dropped_target_leaves_no_temporary_file_and_keeps_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer.csv");
        std::fs::write(&path, "old").unwrap();
        let mut target = ResultTarget::open(Some(&path)).unwrap();
        target.write_all(&vec![b'x'; 2 * BUFFER]).unwrap();
        drop(target);
        assert_eq!(names(folder.path()), ["answer.csv"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    }

    #[test]
    fn a_device_is_written_in_place() {
        let mut target = ResultTarget::open(Some(Path::new("/dev/null"))).unwrap();
        target.write_all(b"gone").unwrap();
        target.commit().unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_full_device_is_reported_as_a_full_disk() {
        let mut target = ResultTarget::open(Some(Path::new("/dev/full"))).unwrap();
        target.write_all(b"x").unwrap();
        let failures = target.failures();
        let error = target.commit().unwrap_err();
        assert_eq!(failures.report(&error.into()).code, Code::DISK_FULL.code);
    }
}
