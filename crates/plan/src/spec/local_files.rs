//! Access of the planner to the local files of a query.
//!
//! A query is planned in a sandbox that cannot open paths. There the platform sends descriptors,
//! and it opens only files of the query's locations.

use std::fmt::Debug;
use std::fs::File;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_wire::LocalFile;

use crate::Result;

/// The local files that a query may read.
#[async_trait]
pub trait LocalFiles: Debug + Send + Sync {
    /// The files of a location: at least one, in any order.
    async fn list(&self, location: &str) -> Result<Vec<LocalFile>>;

    /// A listed file, opened for reading.
    async fn open(&self, path: &str) -> Result<File>;

    /// The footers of files that earlier queries have kept, each named with its version: in the same
    /// order, `None` for one that is not known.
    async fn recall_footers(&self, files: Vec<String>) -> Vec<Option<Bytes>> {
        vec![None; files.len()]
    }

    /// Keeps the footers of files for later queries, each named with its version.
    fn keep_footers(&self, _footers: Vec<(String, Bytes)>) {}
}

/// Files that this process opens itself, with its own permissions.
#[derive(Clone, Debug)]
pub struct HostFiles {
    /// Base folder of relative locations.
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
