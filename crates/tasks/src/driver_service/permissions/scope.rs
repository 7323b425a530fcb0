//! The requests that one driver may make.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_node::files::regular_file;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{FileGrant, RequestFailure};

use super::allowance::Allowance;
use super::locations::Locations;
use crate::file_rights::{FileOpener, FileRights};
use crate::host::FooterScope;

/// The requests that one driver may make, and has made.
#[derive(Debug)]
pub(in crate::driver_service) struct DriverScope {
    /// The folder against which relative locations are read.
    pub folder: PathBuf,
    /// Opens files with the rights of who runs the query.
    pub files: Arc<FileOpener>,
    pub locations: Locations,
    /// True if the query's sandboxes have a network, because it names a bucket or an HTTP server,
    /// or exchanges rows through a bucket.
    pub network: bool,
    pub allowance: Mutex<Allowance>,
    /// The tenant and credentials whose footers of earlier queries the driver may have.
    pub footers: FooterScope,
    /// The folder of secrets of functions, which no query reads.
    pub secrets: Option<PathBuf>,
    /// The file that was opened for the driver last; `None` once the query is planned.
    pub reading: Mutex<Option<String>>,
}

impl DriverScope {
    pub fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reading(&self) -> MutexGuard<'_, Option<String>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file: a driver or worker is granted descriptors, never paths, so it reads files that
    /// its own user could not, and nothing else.
    pub fn open_listed(&self, path: &str) -> Result<File, RequestFailure> {
        if !self.allowance().is_listed(path) {
            return Err(refused("it asked for a file that the query does not name"));
        }
        let file = self.files.open(Path::new(path)).map_err(RequestFailure::of)?;
        match &self.secrets {
            Some(folder) if regular_file::is_below(&file, folder) => Err(secret(path)),
            _ => Ok(file),
        }
    }

    /// Checks that the files of a task may be opened, on any host.
    pub fn check_granted(&self, files: &[FileGrant]) -> Result<(), RequestFailure> {
        let allowance = self.allowance();
        files.iter().try_for_each(|file| allowance.grant(file)).map_err(refused)?;
        // What others may read is for the kernel to say, where the file is opened with their rights.
        if *self.files.rights() != FileRights::Server {
            return Ok(());
        }
        let Some(folder) = self.secrets.as_ref().and_then(|secret| secret.canonicalize().ok())
        else {
            return Ok(());
        };
        // Another host may have a copy of it.
        let is_secret = |file: &&FileGrant| {
            Path::new(&file.path).canonicalize().is_ok_and(|real| real.starts_with(&folder))
        };
        files.iter().find(is_secret).map_or(Ok(()), |file| Err(secret(&file.path)))
    }
}

fn secret(path: &str) -> RequestFailure {
    let message = format!("{path} is in the folder of secrets, which queries do not read");
    RequestFailure::of(ErrorReport::new(Code::FUNCTION_SECRET, message))
}

/// Returns the error for a request that a correct driver never makes.
pub(in crate::driver_service) fn refused(why: &str) -> RequestFailure {
    RequestFailure::of(ErrorReport::new(
        Code::PROTOCOL,
        format!("the driver of the query was refused: {why}"),
    ))
}
