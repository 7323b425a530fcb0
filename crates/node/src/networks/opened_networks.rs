//! The networks of a host by whoever makes them: this process, or a daemon with the rights for it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use snowmelt_broker::StartedDaemon;
use snowmelt_kernel::packet;
use snowmelt_network::{HostNetworks, NetworkDaemon, Networks, Options};

use super::enforcement::EnforcementChoice;
use crate::process::daemon::DaemonProcess;
use crate::times::NETWORKS_END_TIMEOUT;
use crate::{Error, Result};

/// The open networks of a host.
#[derive(Debug)]
pub(super) struct OpenedNetworks {
    pub networks: Arc<HostNetworks>,
    daemon: Option<DaemonProcess>,
}

impl OpenedNetworks {
    /// Opens networks of this process.
    pub fn own(choice: EnforcementChoice, control_group: &str, options: Options) -> Result<Self> {
        let open = |options| Networks::open(options).map(|own| HostNetworks::Own(Arc::new(own)));
        let networks = Arc::new(choice.open(control_group, &options, open)?);
        Ok(Self { networks, daemon: None })
    }

    /// Starts a daemon, and opens networks in it.
    pub fn by_daemon(
        program: &Path,
        choice: EnforcementChoice,
        control_group: &str,
        options: Options,
    ) -> Result<Self> {
        let start = || {
            let (ours, theirs) = packet::pair()?;
            let daemon = DaemonProcess::start(StartedDaemon::Networks, program, theirs)?;
            Ok((ours, daemon))
        };
        let failed = |source: io::Error| Error::Job {
            step: "start the daemon of networks".to_owned(),
            source,
        };
        let started = start().map_err(failed)?;
        let (control, mut daemon) = started;
        let open = |options| NetworkDaemon::open(&control, options).map(HostNetworks::Daemon);
        match choice.open(control_group, &options, open) {
            Ok(networks) => Ok(Self { networks: Arc::new(networks), daemon: Some(daemon) }),
            Err(error) => {
                daemon.end();
                Err(error)
            }
        }
    }

    /// Returns the pidfd of the daemon, which is readable once the daemon has ended; `None` for
    /// networks of this process.
    pub fn daemon_pidfd(&self) -> Result<Option<OwnedFd>> {
        let pidfd = self.daemon.as_ref().map(DaemonProcess::pidfd).transpose();
        let step = "watch the daemon of networks".to_owned();
        pidfd.map_err(|source| Error::Job { step, source })
    }

    /// Ends the networks, and waits until their daemon has removed them.
    pub fn close(self) {
        let Self { networks, daemon } = self;
        // The end of its last connection ends the daemon.
        drop(networks);
        let Some(mut daemon) = daemon else { return };
        if !daemon.ends_within(NETWORKS_END_TIMEOUT) {
            tracing::warn!("the daemon of networks is killed: a job still has a network");
            daemon.end();
        }
    }
}
