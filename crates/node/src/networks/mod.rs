//! The networks of jobs on this host.
//!
//! | part | file |
//! |---|---|
//! | the network of one job, for the instances that run its ranks | `network` |
//! | namespaces that wait for their job | `precreated`, `fresh` |

mod fresh;
pub(crate) mod network;
pub(crate) mod precreated;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_network::Networks;
use snowmelt_sandbox::Spawner;
use tokio::sync::Semaphore;

use crate::enforcement::EnforcementChoice;
use crate::imports::ImportCache;
use crate::{Error, Result};
use precreated::Precreated;

/// What the networks of jobs need of a node.
#[derive(Debug)]
pub(crate) struct JobNetworks {
    spawner: Spawner,
    imports: ImportCache,
    control_group: String,
    folder: PathBuf,
    enforcement: EnforcementChoice,
    // Opened in advance, or by the first job with a network. Held for that and for a lookup.
    networks: Mutex<Option<Arc<Networks>>>,
    /// A network for the next job of programs, and how many may be pre-created.
    precreated: Precreated,
    bound: Arc<Semaphore>,
}

impl JobNetworks {
    /// Records of networks go to a folder; the control group is above those of all functions.
    pub fn new(
        spawner: Spawner,
        imports: ImportCache,
        (control_group, folder): (String, PathBuf),
        enforcement: EnforcementChoice,
    ) -> Self {
        let (networks, precreated) = (Mutex::default(), Precreated::default());
        let bound = precreated::bound();
        Self { spawner, imports, control_group, folder, enforcement, networks, precreated, bound }
    }

    fn if_opened(&self) -> Option<Arc<Networks>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends those of this host, when no function runs any more.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        let own = Arc::clone(self);
        // It may be being opened, and its threads come to their ends.
        blocking(move || {
            let networks = &mut own.networks.lock().unwrap_or_else(PoisonError::into_inner);
            drop(networks.take());
        })
        .await
    }

    /// Those of this host, which are looked after from the first call on; blocks.
    pub fn opened(&self) -> Result<Arc<Networks>> {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(networks) = &*networks {
            return Ok(Arc::clone(networks));
        }
        let options = snowmelt_network::Options::new(self.folder.join("leases"));
        let opened = self.enforcement.open(&self.control_group, options)?;
        *networks = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Job {
        step: "wait for the kernel".to_owned(),
        source: io::Error::other(error),
    })
}
