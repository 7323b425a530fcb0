//! Copies of a store's file, made of one snapshot while the file is in use.
//!
//! A copy of the bytes would not be consistent, as the pages of the file change meanwhile. So the
//! entries are copied. The copy is a store's file as well.

use std::io;
use std::path::Path;

use ::redb::{Database, ReadableDatabase};

use super::file::{DatabaseFile, beside, private, typed};
use super::rows::{self, WriteTables};
use super::write_failure::WriteFailure;
use crate::{Result, Revision};

/// Reads every page of a file that no process has open, and closes it.
///
/// # Errors
/// [`crate::Error::Corrupt`] if the file is not what a store has written.
pub fn check(path: &Path) -> Result<()> {
    super::file::check(path)
}

/// Writes a snapshot to a new file.
pub(super) fn copy(from: &DatabaseFile, to: &Path) -> Result<Revision> {
    let failed = |error: io::Error| typed(to, error.into());
    let partial = beside(to, ".partial");
    // What a process that was killed has left.
    let _ = std::fs::remove_file(&partial);
    let done = (|| {
        drop(private(&partial).map_err(failed)?);
        let copy = Database::builder().create(&partial);
        let copy = copy.map_err(|error| typed(to, error.into()))?;
        let at = from.run(|database| Ok(filled(database, &copy)))?;
        let at = at.map_err(|failure| match failure {
            WriteFailure::Refused(error) => error,
            // Only what is read can be damaged.
            WriteFailure::File(error) if matches!(*error, ::redb::Error::Corrupted(_)) => {
                typed(from.path(), *error)
            }
            WriteFailure::File(error) => typed(to, *error),
        })?;
        drop(copy);
        named(&partial, to).map_err(failed)?;
        Ok(at)
    })();
    let _ = std::fs::remove_file(&partial);
    done
}

fn filled(from: &Database, to: &Database) -> Result<Revision, WriteFailure> {
    let read = from.begin_read()?;
    let write = to.begin_write()?;
    let mut opened = WriteTables::of(&write)?;
    let at = rows::copy(&read, &mut opened)?;
    drop(opened);
    write.commit()?;
    Ok(at)
}

/// Gives a complete file its name, which no file may have yet.
fn named(partial: &Path, name: &Path) -> io::Result<()> {
    std::fs::File::open(partial)?.sync_all()?;
    std::fs::hard_link(partial, name)?;
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
