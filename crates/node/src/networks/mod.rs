//! The networks of jobs on this host.
//!
//! | part | file |
//! |---|---|
//! | the network of one job, for the instances that run its ranks | `network` |
//! | namespaces for jobs, made in advance where a job may follow | `creation` |
//! | the choice of how addresses are enforced | `enforcement` |

mod creation;
pub(crate) mod enforcement;
pub(crate) mod network;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_broker::Broker;
use snowmelt_kernel::rootless;
use snowmelt_network::Networks;
use snowmelt_sandbox::Spawner;
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::Semaphore;

use crate::import_cache::ImportCache;
use crate::namespaces::{self, Precreated};
use crate::{Error, Result};
use enforcement::EnforcementChoice;

/// The networks of jobs on a host, and the parts of the node that they need.
#[derive(Debug)]
pub(crate) struct JobNetworks {
    spawner: Spawner,
    imports: ImportCache,
    control_group: String,
    folder: PathBuf,
    enforcement: EnforcementChoice,
    // The networks are opened in advance, or by the first job with a network. The lock is held
    // while they are opened and for a lookup.
    networks: Mutex<Option<Arc<Networks>>>,
    /// The place for a pre-created network for the next job of programs. `bound` counts the
    /// networks that may be pre-created on the node.
    precreated: Precreated,
    bound: Arc<Semaphore>,
}

impl JobNetworks {
    /// Makes the networks of a node; opens nothing yet. Records of networks go to `folder`;
    /// `control_group` is the parent of the groups of all functions.
    pub fn new(
        spawner: Spawner,
        imports: ImportCache,
        control_group: String,
        folder: PathBuf,
        enforcement: EnforcementChoice,
    ) -> Self {
        let networks = Mutex::default();
        let precreated = Precreated::default();
        let bound = namespaces::bound();
        Self { spawner, imports, control_group, folder, enforcement, networks, precreated, bound }
    }

    fn if_opened(&self) -> Option<Arc<Networks>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the networks of this host, when no function runs any more.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        let own = Arc::clone(self);
        // Another thread may be opening the networks, and ending their threads takes time.
        blocking(move || {
            let networks = &mut own.networks.lock().unwrap_or_else(PoisonError::into_inner);
            drop(networks.take());
        })
        .await
    }

    /// Returns the networks of this host, which the first call opens; blocks.
    pub fn opened(&self) -> Result<Arc<Networks>> {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(networks) = &*networks {
            return Ok(Arc::clone(networks));
        }
        if Broker::installed().is_some() {
            return Err(Error::Report(Box::new(no_networks())));
        }
        if rootless::entered().is_some() {
            return Err(Error::NeedsRoot { what: "make the network of a job" });
        }
        let options = snowmelt_network::Options::new(self.folder.join("leases"));
        let opened = self.enforcement.open(&self.control_group, options)?;
        *networks = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

/// Returns why a server that is not root makes no networks.
fn no_networks() -> ErrorReport {
    let message = "a server that has given up root (`server.user`) makes no networks of jobs";
    ErrorReport::new(Code::OPTION, message)
        .hint("run bursts without --network, or on a host whose server stays root")
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Job {
        step: "wait for the kernel".to_owned(),
        source: io::Error::other(error),
    })
}
