//! The common state of the steps of an installation.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_types::ByteSize;

use super::counts::EnvironmentCounters;
use crate::storage::{FileLock, LockMode, PackageStore, files};
use crate::{Python, Result};

/// The state of an installer.
#[derive(Debug)]
pub(crate) struct InstallerState {
    pub(crate) store: PackageStore,
    pub(crate) python: Python,
    pub(crate) uv: Option<PathBuf>,
    pub(crate) installed: Vec<PathBuf>,
    pub(crate) refresh: bool,
    pub(crate) resolve_limit: Duration,
    pub(crate) install_limit: Duration,
    pub(crate) max_size: ByteSize,
    pub(crate) counts: EnvironmentCounters,
}

impl InstallerState {
    /// Takes a lock that prevents the cache from being removed while uv uses it. The cache folder
    /// is private, because uv creates world-writable files in it.
    pub(crate) async fn use_cache(&self) -> Result<FileLock> {
        let held = FileLock::acquire(&self.store.cache_lock(), LockMode::Shared, || ()).await?;
        files::make_folder(&self.store.cache(), 0o700)?;
        Ok(held)
    }
}
