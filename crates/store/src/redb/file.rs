//! The file of the store: its mode, how it is opened, and how it is opened again after a failure.
//!
//! After a failed write redb refuses every operation until the file is opened again. Without this,
//! a server whose disk was full once could not write until it is restarted.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::redb::{Database, DatabaseError};

use super::convert::{Convert, convert};
use super::failed::Failed;
use crate::{Error, Result};

/// The maximum time that a process waits for the transaction of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two attempts to open the file.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The cache of redb.
const CACHE_BYTES: usize = 32 << 20;

/// A store's file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    convert: Option<Arc<dyn Convert>>,
    /// Present if the file is held open; the database is absent before the first transaction and
    /// after a failure.
    held: Option<Mutex<Option<Arc<Database>>>>,
}

impl File {
    pub fn new(path: PathBuf, convert: Option<Arc<dyn Convert>>, hold: bool) -> Self {
        Self { path, convert, held: hold.then(Mutex::default) }
    }

    /// Its path, for errors.
    pub fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether there is a file to read.
    pub fn exists(&self) -> bool {
        self.held.is_some() || self.path.exists()
    }

    /// Runs a transaction.
    pub fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, Failed>) -> Result<T> {
        let database = self.database()?;
        let done = work(&database);
        done.map_err(|failed| match failed {
            Failed::Refused(error) => error,
            Failed::File(error) => {
                self.close(&database);
                typed(&self.path, *error)
            }
        })
    }

    fn database(&self) -> Result<Arc<Database>> {
        let Some(held) = &self.held else { return Ok(Arc::new(self.open()?)) };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &*held {
            return Ok(Arc::clone(database));
        }
        let database = Arc::new(self.open()?);
        *held = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Closes a database that failed, so that the next transaction opens the file again.
    fn close(&self, failed: &Arc<Database>) {
        let Some(held) = &self.held else { return };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|database| Arc::ptr_eq(database, failed)) {
            *held = None;
        }
    }

    fn open(&self) -> Result<Database> {
        let database = open_when_free(&self.path)?;
        if let Some(older) = &self.convert {
            convert(&database, &**older).map_err(|error| typed(&self.path, error))?;
        }
        Ok(database)
    }
}

fn open_when_free(path: &Path) -> Result<Database> {
    let begun = Instant::now();
    let place = || path.display().to_string();
    loop {
        private(path).map_err(|error| typed(path, error.into()))?;
        match Database::builder().set_cache_size(CACHE_BYTES).create(path) {
            Ok(database) => return Ok(database),
            Err(DatabaseError::DatabaseAlreadyOpen) if begun.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(Error::Busy { place: place() }),
            Err(error) => return Err(typed(path, error.into())),
        }
    }
}

/// Creates the file with the mode 0600, or sets this mode: the file contains environments of
/// functions and events of calls.
fn private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.mode() & 0o7777 != 0o600 && found.uid() == rustix::process::geteuid().as_raw() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn typed(path: &Path, error: ::redb::Error) -> Error {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let place = path.display().to_string();
    match error {
        ::redb::Error::Io(source) if matches!(source.kind(), StorageFull | QuotaExceeded) => {
            Error::Full { place, source }
        }
        ::redb::Error::Io(source) => Error::Io { place, source },
        ::redb::Error::PreviousIo | ::redb::Error::DatabaseClosed => {
            Error::Io { place, source: io::Error::other(error.to_string()) }
        }
        error => Error::Corrupt { place, what: error.to_string() },
    }
}
