//! Enforces addresses by seccomp notifier, where no cgroup BPF program can: the sandbox's calls
//! that name an address wait for an answer. Each sandbox installs a filter of its own and sends its
//! listener to the spawner.
//!
//! Sending it is itself a call that would have to wait, so it goes through the *handover
//! descriptor*: a copy of the sandbox's socket pair with the spawner, at the first number beyond
//! its limit of descriptors, for which the filter makes an exception.
//!
//! Invariant: when a sandbox runs its program, the handover descriptor and the listener are closed,
//! and its limit keeps any descriptor of its own from having that number.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{Resource, getrlimit};
use snowmelt_kernel::notify;
use snowmelt_kernel::seccomp::Program;

use super::stage::Stage;
use super::sync::{self, Said};
use crate::root::Fault;
use crate::spec::{CHANNEL_FD, NetworkId};

/// The inputs of a sandbox's address notifier.
pub(super) struct Guard {
    /// The number of the handover descriptor, which is also the sandbox's limit of descriptors.
    pub door: u32,
    /// The filter that makes its calls wait.
    pub filter: Program,
}

/// The seccomp listener of a sandbox.
pub(super) enum Heard {
    /// It has no address notifier.
    Unguarded,
    /// It has not sent its listener yet.
    Awaited,
    /// It has sent this listener.
    By(OwnedFd),
}

impl Guard {
    /// For a sandbox of this network with this limit of descriptors; `None` if the network has no
    /// notifier.
    pub fn of(
        stage: &Stage,
        network: Option<NetworkId>,
        open_files: u64,
    ) -> io::Result<Option<Self>> {
        let network = network.and_then(|id| stage.networks.get(&id));
        if network.is_none_or(|network| !network.is_guarded) {
            return Ok(None);
        }
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        // One less than the maximum, so that there is room for the handover descriptor.
        let door = open_files.min(most).min(RawFd::MAX as u64).saturating_sub(1) as u32;
        if door <= CHANNEL_FD as u32 + 1 {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(Some(Self { door, filter: notify::address_filter(Some(door)) }))
    }
}

impl Heard {
    /// The initial state for a new sandbox.
    pub fn of(guard: Option<&Guard>) -> Self {
        if guard.is_some() { Self::Awaited } else { Self::Unguarded }
    }

    /// The descriptor to pass to the server.
    pub fn listener(&self) -> Option<&OwnedFd> {
        match self {
            Self::By(listener) => Some(listener),
            Self::Unguarded | Self::Awaited => None,
        }
    }

    /// Takes the listener that a program has sent before its exec.
    pub fn receive(&mut self, sync: &OwnedFd) {
        if let (Self::Awaited, Some(Said::Heard(listener))) = (&self, sync::hear_now(sync)) {
            *self = Self::By(listener);
        }
    }

    /// Why its sandbox must not run: its address would not be enforced.
    pub fn fault(&self) -> Option<Fault> {
        let step = || "hand over the seccomp listener".to_owned();
        let fault = || Fault { step: step(), source: rustix::io::Errno::PROTO.into() };
        matches!(self, Self::Awaited).then(fault)
    }
}
