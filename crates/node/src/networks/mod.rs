//! The networks of jobs on this host.
//!
//! | part | file |
//! |---|---|
//! | the network of one job, for the instances that run its ranks | `network` |
//! | namespaces for jobs, made in advance where a job may follow | `creation` |
//! | the networks of this process or of a daemon | `opened_networks` |
//! | the choice of how addresses are enforced | `enforcement` |

mod creation;
pub(crate) mod enforcement;
pub(crate) mod network;
mod opened_networks;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_broker::Broker;
use snowmelt_kernel::process::DaemonUser;
use snowmelt_kernel::rootless;
use snowmelt_network::HostNetworks;
use snowmelt_sandbox::{PlatformProcess, Spawner};
use tokio::sync::Semaphore;

use crate::import_cache::ImportCache;
use crate::namespaces::{self, Precreated};
use crate::{Error, Result};
use enforcement::EnforcementChoice;
use opened_networks::OpenedNetworks;

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
    networks: Mutex<Option<OpenedNetworks>>,
    /// The program of the daemon that makes networks for a server without the rights of root.
    program: PathBuf,
    /// The place for a pre-created network for the next job of programs. `bound` counts the
    /// networks that may be pre-created on the node.
    precreated: Precreated,
    bound: Arc<Semaphore>,
}

impl JobNetworks {
    /// Makes the networks of a node; opens nothing yet. Records of networks go to `folder`;
    /// `control_group` is the parent of the groups of all functions; `program` is this one.
    pub fn new(
        spawner: Spawner,
        imports: ImportCache,
        control_group: String,
        folder: PathBuf,
        enforcement: EnforcementChoice,
        program: PathBuf,
    ) -> Self {
        let networks = Mutex::default();
        let precreated = Precreated::default();
        let bound = namespaces::bound();
        Self {
            spawner,
            imports,
            control_group,
            folder,
            enforcement,
            networks,
            program,
            precreated,
            bound,
        }
    }

    fn if_opened(&self) -> Option<Arc<HostNetworks>> {
        let opened = self.opening();
        opened.as_ref().map(|opened| Arc::clone(&opened.networks))
    }

    fn opening(&self) -> MutexGuard<'_, Option<OpenedNetworks>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the networks of this host, when no function runs any more.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        let own = Arc::clone(self);
        // Another thread may be opening the networks, and ending their threads takes time.
        blocking(move || {
            drop(own.precreated.take());
            let opened = own.opening().take();
            opened.into_iter().for_each(OpenedNetworks::close);
        })
        .await
    }

    /// Returns the networks of this host, which the first call opens; blocks. Those of a daemon that
    /// has ended are opened again by another one.
    pub fn opened(&self) -> Result<Arc<HostNetworks>> {
        self.opened_with(|opened| Arc::clone(&opened.networks))
    }

    /// Returns what `take` takes of the networks of this host, as [`Self::opened`].
    fn opened_with<T>(&self, take: impl FnOnce(&OpenedNetworks) -> T) -> Result<T> {
        let mut networks = self.opening();
        if let Some(opened) = networks.as_ref().filter(|opened| !opened.networks.is_over()) {
            return Ok(take(opened));
        }
        if networks.take().is_some() {
            tracing::warn!("the daemon of networks has ended; another one is started");
        }
        if rootless::entered().is_some() {
            return Err(Error::NeedsRoot { what: "make the network of a job" });
        }
        let options = snowmelt_network::Options::new(self.folder.join("leases"));
        let opened = match Broker::installed() {
            None => OpenedNetworks::own(self.enforcement, &self.control_group, options)?,
            Some(_) => {
                let choice = self.enforcement;
                OpenedNetworks::by_daemon(&self.program, choice, &self.control_group, options)?
            }
        };
        let taken = take(&opened);
        *networks = Some(opened);
        Ok(taken)
    }
}

/// Runs a network daemon on standard input until its node has ended. Must be called before the process
/// has a second thread and before it opens any file.
pub fn network_daemon_main(user: Option<DaemonUser>) -> ExitCode {
    snowmelt_network::network_daemon_main(user, || {
        PlatformProcess::NetworkDaemon.restrict_system_calls().map_err(io::Error::other)
    })
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Job {
        step: "wait for the kernel".to_owned(),
        source: io::Error::other(error),
    })
}
