//! Files that only their user may read, replaced as a whole, and locks between processes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use snowmelt_types::{Code, ErrorReport};

/// How long another process may hold a lock: longer than an issuer may take for a renewal.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a lock is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Reads a file; `None` if it is missing.
pub(super) fn read(path: &Path) -> Result<Option<String>, ErrorReport> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// Writes a file with the mode 0600 in the place of an earlier one, whole or not at all.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), ErrorReport> {
    // A link stays one, and its file is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let replaced = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        make_folder(folder)?;
        // Its mode is 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    replaced().map_err(|error| failed(&path, &error))
}

/// Removes a file; returns whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, ErrorReport> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Holds a lock until the file is dropped. No other process has it meanwhile.
pub(super) async fn lock(path: &Path) -> Result<File, ErrorReport> {
    let opened = || -> io::Result<File> {
        make_folder(path.parent().unwrap_or(Path::new("/")))?;
        OpenOptions::new().create(true).append(true).mode(0o600).open(path)
    };
    let file = opened().map_err(|error| failed(path, &error))?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                tokio::time::sleep(LOCK_INTERVAL).await;
            }
            Err(error) => return Err(failed(path, &error.into())),
        }
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn failed(path: &Path, error: &io::Error) -> ErrorReport {
    let message = format!("the file {} cannot be used: {error}", path.display());
    ErrorReport::new(Code::OPTION, message)
}
