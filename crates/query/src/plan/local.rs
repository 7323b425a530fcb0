//! The local files of a query, as the planner may open them.
//!
//! A plan is made in a sandbox that can open no path: there the files come as descriptors from the
//! platform, which opens only files of the query's locations.

use std::fmt::Debug;
use std::fs::File;
use std::path::PathBuf;

use async_trait::async_trait;
use snowmelt_wire::LocalFile;

use crate::Result;

/// The local files that a query may read.
#[async_trait]
pub trait LocalFiles: Debug + Send + Sync {
    /// The Parquet files of a location: at least one, in any order.
    async fn list(&self, location: &str) -> Result<Vec<LocalFile>>;

    /// A listed file, opened for reading.
    async fn open(&self, path: &str) -> Result<File>;
}

/// Files that this process opens by itself, with its own rights.
#[derive(Clone, Debug)]
pub struct HostFiles {
    /// Folder against which relative locations are read.
    pub folder: PathBuf,
}

#[async_trait]
impl LocalFiles for HostFiles {
    async fn list(&self, location: &str) -> Result<Vec<LocalFile>> {
        Ok(snowmelt_files::find(location, &self.folder)?)
    }

    async fn open(&self, path: &str) -> Result<File> {
        File::open(path)
            .map_err(|source| snowmelt_files::Error::Io { path: path.into(), source }.into())
    }
}
