//! The enforcement of addresses by seccomp notifier, where no cgroup BPF program can do it: the
//! sandbox's calls that name an address wait for an answer. Each sandbox installs a filter of its
//! own and sends its listener to the spawner.
//!
//! Sending the listener is itself a call that would have to wait, so it goes through the *handover
//! descriptor*: a copy of the sandbox's socket pair with the spawner, at the first number beyond
//! its limit of descriptors, for which the filter makes an exception.
//!
//! Invariant: when a sandbox runs its program, the handover descriptor and the listener are closed,
//! and its limit keeps any descriptor of its own from having that number.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{Resource, getrlimit};
use snowmelt_kernel::notify;
use snowmelt_kernel::seccomp::FilterProgram;

use super::sync::{self, ChildMessage};
use crate::fault::StepFault;
use crate::namespaces::Namespaces;
use crate::spec::{CHANNEL_FD, NetworkId};

/// The inputs of a sandbox's address notifier.
pub(in crate::spawner) struct NotifierSetup {
    /// The number of the handover descriptor, which is also the sandbox's limit of descriptors.
    pub handover_fd: u32,
    /// The filter that makes the sandbox's calls wait.
    pub filter: FilterProgram,
}

/// The seccomp listener of a sandbox.
pub(in crate::spawner) enum NotifierListener {
    /// The sandbox has no address notifier.
    Unused,
    /// The sandbox has not sent its listener yet.
    Pending,
    /// The sandbox has sent this listener.
    Received(OwnedFd),
}

impl NotifierSetup {
    /// Makes the notifier for a sandbox of this network with this limit of descriptors; `None` if
    /// the network has no notifier.
    pub fn of(
        namespaces: &Namespaces,
        network: Option<NetworkId>,
        open_files: u64,
    ) -> io::Result<Option<Self>> {
        let network = network.and_then(|id| namespaces.networks.get(&id));
        if network.is_none_or(|network| !network.has_notifier) {
            return Ok(None);
        }
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        // One less than the maximum, so that there is room for the handover descriptor.
        let handover_fd = open_files.min(most).min(RawFd::MAX as u64).saturating_sub(1) as u32;
        if handover_fd <= CHANNEL_FD as u32 + 1 {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(Some(Self { handover_fd, filter: notify::address_filter(Some(handover_fd)) }))
    }
}

impl NotifierListener {
    /// The initial state for a new sandbox.
    pub fn of(notifier: Option<&NotifierSetup>) -> Self {
        if notifier.is_some() { Self::Pending } else { Self::Unused }
    }

    /// The descriptor to pass to the server.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            Self::Received(listener) => Some(listener),
            Self::Unused | Self::Pending => None,
        }
    }

    /// Takes the listener that a program has sent before its exec.
    pub fn receive(&mut self, sync: &OwnedFd) {
        if let (Self::Pending, Some(ChildMessage::Listener(listener))) =
            (&self, sync::try_receive(sync))
        {
            *self = Self::Received(listener);
        }
    }

    /// Returns the reason why the sandbox must not run, if its address would not be enforced.
    pub fn fault(&self) -> Option<StepFault> {
        let step = || "hand over the seccomp listener".to_owned();
        let fault = || StepFault { step: step(), source: rustix::io::Errno::PROTO.into() };
        matches!(self, Self::Pending).then(fault)
    }
}
