//! The file of the store: its mode, how it is opened, and how it is opened again after a failure.
//!
//! A process that holds the file open has a lock on a second file, so that others do not wait for
//! it as they wait for a transaction.
//!
//! After a failed write redb refuses every operation until the file is opened again. Without this,
//! a server whose disk was full once could not write until it is restarted.
//!
//! Invariant: a new file gets its name once it is a database, so that an empty file is a damaged
//! one. A file that cannot be read stays as it is.

use std::fs::{OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::redb::{Database, DatabaseError};

use super::convert::{Convert, convert};
use super::write_failure::WriteFailure;
use crate::{Error, Result};

/// The maximum time that a process waits for the transaction of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two attempts to open the file.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The size of redb's cache in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// The number of files that this process has created, which tells their names apart.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The database file of a store.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    convert: Option<Arc<dyn Convert>>,
    /// The open database, if the file is held open. The database is absent before the first
    /// transaction and after a failure.
    held: Option<Mutex<OpenDatabase>>,
}

#[derive(Debug, Default)]
struct OpenDatabase {
    database: Option<Arc<Database>>,
    lock: Option<std::fs::File>,
    /// Whether every page was read once and had its checksum.
    checked: bool,
}

impl DatabaseFile {
    pub fn new(path: PathBuf, convert: Option<Arc<dyn Convert>>, hold: bool) -> Self {
        Self { path, convert, held: hold.then(Mutex::default) }
    }

    /// The path of the file, for errors.
    pub fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a file to read.
    pub fn exists(&self) -> bool {
        self.held.is_some() || self.path.exists()
    }

    /// Runs a transaction.
    pub fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, WriteFailure>) -> Result<T> {
        let database = self.database()?;
        let done = unless_damaged(&self.path, || work(&database)).inspect_err(|_| {
            self.close(&database);
        })?;
        done.map_err(|failed| match failed {
            WriteFailure::Refused(error) => error,
            WriteFailure::File(error) => {
                self.close(&database);
                typed(&self.path, *error)
            }
        })
    }

    fn database(&self) -> Result<Arc<Database>> {
        let Some(held) = &self.held else { return Ok(Arc::new(self.open(false)?)) };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &held.database {
            return Ok(Arc::clone(database));
        }
        if held.lock.is_none() {
            held.lock = Some(lock(&self.path)?);
        }
        let database = Arc::new(self.open(!held.checked)?);
        held.checked = true;
        held.database = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Closes a database that failed, so that the next transaction opens the file again.
    fn close(&self, failed: &Arc<Database>) {
        let Some(held) = &self.held else { return };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.database.as_ref().is_some_and(|database| Arc::ptr_eq(database, failed)) {
            held.database = None;
        }
    }

    fn open(&self, check: bool) -> Result<Database> {
        let database = open_when_free(&self.path, self.held.is_none(), check)?;
        if let Some(older) = &self.convert {
            convert(&database, &**older).map_err(|error| typed(&self.path, error))?;
        }
        Ok(database)
    }
}

/// Opens a file once no transaction of another process has it open. A process that `visits` the
/// file does not wait for a process that holds it open. A `check` reads the whole file: redb trusts
/// the pages of a file that was closed, and panics over some that are wrong.
fn open_when_free(path: &Path, visits: bool, check: bool) -> Result<Database> {
    let waits = || !(visits && is_held(path));
    when_free(path, waits, || {
        if !path.try_exists().map_err(|error| typed(path, error.into()))? {
            create(path)?;
        }
        opened(path, check)
    })
}

/// Opens an existing file; `None` while another process has it open.
fn opened(path: &Path, check: bool) -> Result<Option<Database>> {
    let file = private(path).map_err(|error| typed(path, error.into()))?;
    if file.metadata().map_err(|error| typed(path, error.into()))?.len() == 0 {
        return Err(corrupt(path, "the file is empty"));
    }
    drop(file);
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check);
    match unless_damaged(path, || builder.open(path))? {
        Ok(database) => Ok(Some(database)),
        Err(DatabaseError::DatabaseAlreadyOpen) => Ok(None),
        Err(error) => Err(typed(path, error.into())),
    }
}

/// Makes an empty database, unless another process is faster.
fn create(path: &Path) -> Result<()> {
    let failed = |error: io::Error| typed(path, error.into());
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    let made = beside(path, &format!(".new-{}-{number}", std::process::id()));
    let done = private(&made).map_err(failed).and_then(|_| {
        let database = Database::builder().create(&made);
        drop(database.map_err(|error| typed(path, error.into()))?);
        match std::fs::hard_link(&made, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        }
    });
    let _ = std::fs::remove_file(&made);
    done
}

/// Opens a file, reads every page of it and closes it.
pub(super) fn check(path: &Path) -> Result<()> {
    let busy = || Error::Busy { place: path.display().to_string() };
    opened(path, true)?.ok_or_else(busy).map(drop)
}

/// Runs work on the file, and turns a panic into an error: redb reports by a panic that a page is
/// not what it has to be.
fn unless_damaged<T>(path: &Path, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| corrupt(path, "a page of it is damaged"))
}

/// Tries until there is a value, while another process has the file or lock. Gives up after
/// [`BUSY_TIMEOUT`], or as soon as `waits` is false.
fn when_free<T>(
    path: &Path,
    waits: impl Fn() -> bool,
    attempt: impl Fn() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        match attempt()? {
            Some(value) => return Ok(value),
            None if begun.elapsed() < BUSY_TIMEOUT && waits() => std::thread::sleep(BUSY_PAUSE),
            None => return Err(Error::Busy { place: path.display().to_string() }),
        }
    }
}

/// The file that is locked by the process that holds a store's file open.
fn lock_path(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// The path with a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Locks a store's file for a process that holds it open.
fn lock(path: &Path) -> Result<std::fs::File> {
    let file = private(&lock_path(path)).map_err(|error| typed(path, error.into()))?;
    when_free(
        path,
        || true,
        || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            // Another process looks whether it is locked.
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(typed(path, error.into())),
        },
    )?;
    Ok(file)
}

/// True if a process holds a store's file open.
fn is_held(path: &Path) -> bool {
    let file = std::fs::File::open(lock_path(path));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Creates the file with the mode 0600, or sets this mode: the file contains environments of
/// functions and events of calls.
pub(super) fn private(path: &Path) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.mode() & 0o7777 != 0o600 && found.uid() == rustix::process::geteuid().as_raw() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn corrupt(path: &Path, what: &str) -> Error {
    Error::Corrupt { place: path.display().to_string(), what: what.to_owned() }
}

pub(super) fn typed(path: &Path, error: ::redb::Error) -> Error {
    use io::ErrorKind::{InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
    let place = path.display().to_string();
    match error {
        ::redb::Error::Io(source) if matches!(source.kind(), StorageFull | QuotaExceeded) => {
            Error::Full { place, source }
        }
        ::redb::Error::Io(source) if source.kind() == InvalidData => {
            Error::Corrupt { place, what: "the file is not that of a store".to_owned() }
        }
        ::redb::Error::Io(source) if source.kind() == UnexpectedEof => {
            Error::Corrupt { place, what: "the file is too short".to_owned() }
        }
        ::redb::Error::Io(source) => Error::Io { place, source },
        ::redb::Error::PreviousIo | ::redb::Error::DatabaseClosed => {
            Error::Io { place, source: io::Error::other(error.to_string()) }
        }
        error => Error::Corrupt { place, what: error.to_string() },
    }
}
