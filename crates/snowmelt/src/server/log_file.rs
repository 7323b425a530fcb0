//! The log of a server in the background, which `snowmelt up` opens and all processes of the server
//! write to: its length is bounded, and the part before is kept beside it.
//!
//! Invariant: the file stays the same, because several processes have it open. It is copied and
//! then cut. If a process is killed in between, the copied part is in both files, and nothing is
//! lost.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The length in bytes above which a log becomes the previous one. The former previous log is
/// removed.
const MAX_BYTES: u64 = 16 << 20;

/// The interval between two checks of the log's length.
const INTERVAL: Duration = Duration::from_secs(10);

/// The log of a state folder.
pub(super) fn path(state: &Path) -> PathBuf {
    state.join("snowmelt.log")
}

/// Keeps the log of this process bounded as long as it lives.
pub(super) fn keep_bounded(state: &Path) -> io::Result<()> {
    let path = path(state);
    let turning = move || {
        loop {
            if let Err(error) = turn(&path, MAX_BYTES) {
                tracing::warn!(%error, "the log of the server cannot be turned");
            }
            std::thread::sleep(INTERVAL);
        }
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(turning).map(drop)
}

/// Makes a log the previous one if it is too long. Returns false if it is not.
pub(super) fn turn(path: &Path, max_bytes: u64) -> io::Result<bool> {
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        found => found?.len(),
    };
    if length <= max_bytes {
        return Ok(false);
    }
    let mut log = File::options().read(true).write(true).open(path)?;
    let before = path.with_extension("1.log");
    let copied = copy(&mut log, &before);
    if copied.is_err() {
        // The disk is full: the previous one makes room, and the last lines matter most.
        let _ = fs::remove_file(&before);
        log.seek(SeekFrom::End(-i64::try_from(max_bytes / 2).unwrap_or(0)))?;
        let _ = copy(&mut log, &before);
    }
    log.set_len(0)?;
    copied.map(|()| true)
}

/// Copies the rest of a file to another one, which is complete then.
fn copy(log: &mut File, before: &Path) -> io::Result<()> {
    let partial = before.with_extension("partial");
    let mut made = || -> io::Result<()> {
        let mut options = File::options();
        let mut copy =
            options.create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
        io::copy(log, &mut copy)?;
        fs::rename(&partial, before)?;
        // What was written meanwhile.
        io::copy(log, &mut copy).map(drop)
    };
    made().inspect_err(|_| drop(fs::remove_file(&partial)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_becomes_the_previous_one_for_all_who_write_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = path(folder.path());
        let before = folder.path().join("snowmelt.1.log");
        assert!(!turn(&log, 10).unwrap(), "there is none");
        let open = || File::options().create(true).append(true).open(&log).unwrap();
        let mut server = open();
        let mut spawner = open();
        server.write_all(b"short\n").unwrap();
        assert!(!turn(&log, 10).unwrap());
        spawner.write_all(b"and longer\n").unwrap();
        assert!(turn(&log, 10).unwrap());
        assert_eq!(fs::read_to_string(&before).unwrap(), "short\nand longer\n");
        server.write_all(b"one\n").unwrap();
        spawner.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n", "it has no hole");
        server.write_all(b"three\n").unwrap();
        assert!(turn(&log, 10).unwrap());
        assert_eq!(fs::read_to_string(&before).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
