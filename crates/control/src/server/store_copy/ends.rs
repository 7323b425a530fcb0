//! The two stores of a copy: opened so that no server uses them meanwhile.
//!
//! Invariant: a state folder has the lock that servers take, and in etcd this process leads. A
//! transaction of another leader, or of this one when it leads no more, is refused.

use std::path::PathBuf;
use std::sync::Arc;

use snowmelt_kernel::lock::Lock;
use snowmelt_store::Store;
use snowmelt_types::{Code, ErrorReport, Report};

use super::super::standby::{self, Leading};
use super::super::{ServerUser, StoreSettings};
use crate::access::permissions;
use crate::state::backups;
use crate::state::records::hold_file;

/// A store of a platform.
#[derive(Clone, Debug)]
pub enum StoreEnd {
    /// The file of a state folder.
    Folder(PathBuf),
    /// Records in etcd, and the folder that all controls share.
    Etcd(StoreSettings),
}

impl StoreEnd {
    /// Whether the records are in etcd.
    pub fn is_etcd(&self) -> bool {
        matches!(self, Self::Etcd(_))
    }
}

/// A store that no server uses as long as this lives.
pub(super) struct OpenEnd {
    pub store: Arc<dyn Store>,
    /// The folder of the files beside the records.
    pub folder: PathBuf,
    /// The store in words.
    pub place: String,
    leading: Option<Leading>,
    _lock: Option<Lock>,
}

impl OpenEnd {
    /// Opens the store that is copied.
    ///
    /// # Errors
    /// `SM-0505` for a folder without records, `SM-0504` and `SM-0529` for a store that is in use.
    pub async fn of_source(end: &StoreEnd) -> Result<Self, ErrorReport> {
        let missing = match end {
            StoreEnd::Folder(folder) => !backups::state(folder).is_file(),
            StoreEnd::Etcd(settings) => !settings.folder.is_dir(),
        };
        if missing {
            let message = match end {
                StoreEnd::Folder(folder) => format!("there are no records in {}", folder.display()),
                StoreEnd::Etcd(settings) => {
                    format!("there is no shared folder {}", settings.folder.display())
                }
            };
            return Err(ErrorReport::new(Code::STATE, message));
        }
        Self::open(end).await
    }

    /// Opens the store that gets the copy, and makes its folder.
    ///
    /// # Errors
    /// `SM-0505` for a folder of somebody else, `SM-0504` and `SM-0529` for a store that is in use.
    pub async fn of_target(end: &StoreEnd, user: Option<&ServerUser>) -> Result<Self, ErrorReport> {
        let becomes = user.map(|user| user.user);
        match end {
            StoreEnd::Folder(folder) => permissions::private_folder(folder)?,
            StoreEnd::Etcd(settings) => permissions::shared_folder(&settings.folder, becomes)?,
        }
        Self::open(end).await
    }

    async fn open(end: &StoreEnd) -> Result<Self, ErrorReport> {
        match end {
            StoreEnd::Folder(folder) => {
                let lock = permissions::server_lock(folder)?;
                let path = backups::state(folder);
                let place = path.display().to_string();
                let store = Arc::new(hold_file(path).await?);
                let folder = folder.clone();
                Ok(Self { store, folder, place, leading: None, _lock: Some(lock) })
            }
            StoreEnd::Etcd(settings) => {
                let leading = standby::lead_alone(settings, "snowmelt store copy").await?;
                let store = Arc::new(leading.store());
                let place = format!("{} (prefix {})", settings.etcd.place(), settings.etcd.prefix);
                let folder = settings.folder.clone();
                Ok(Self { store, folder, place, leading: Some(leading), _lock: None })
            }
        }
    }

    /// Returns once it is sure that no other process has used the store until now.
    pub async fn sure(&self) -> Result<(), ErrorReport> {
        let Some(leading) = &self.leading else { return Ok(()) };
        leading.watch().sure().await.map_err(|error| error.report())
    }

    /// Gives the store back.
    pub async fn close(self) {
        if let Some(leading) = self.leading {
            leading.resign().await;
        }
    }

    /// A store without a lock.
    #[cfg(test)]
    pub fn of_test(store: Arc<dyn Store>, folder: &std::path::Path) -> Self {
        let place = folder.display().to_string();
        Self { store, folder: folder.to_owned(), place, leading: None, _lock: None }
    }
}
