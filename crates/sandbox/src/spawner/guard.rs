//! Sandboxes whose calls that name an address wait for an answer, where no control group can hold
//! them to theirs: each installs a filter of its own, and hands what is heard by it to the spawner.
//!
//! Such a message is itself one that would have to wait, so it goes through a *door*: a copy of the
//! sandbox's pair with the spawner at the first number that its limit of descriptors does not
//! reach, for which the filter makes an exception.
//!
//! Invariant: when a sandbox runs anything, the door and the listener are closed, and by its limit
//! no descriptor of its own can ever be at the door's number.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{Resource, getrlimit};
use snowmelt_kernel::notify;
use snowmelt_kernel::seccomp::Program;

use super::stage::Stage;
use super::sync::{self, Said};
use crate::root::Fault;
use crate::spec::{CHANNEL_FD, NetworkId};

/// What a sandbox needs to be guarded.
pub(super) struct Guard {
    /// Where its pair with the spawner is while it installs the filter: its limit of descriptors.
    pub door: u32,
    /// What has its calls wait.
    pub filter: Program,
}

/// What the calls of a sandbox are answered by.
pub(super) enum Heard {
    /// They do not wait.
    Unguarded,
    /// It has not handed it over yet.
    Awaited,
    /// It has.
    By(OwnedFd),
}

impl Guard {
    /// For a sandbox of this network, with so many descriptors at most; none if it needs none.
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
        // One less than there may be, so that there is room for the door.
        let door = open_files.min(most).min(RawFd::MAX as u64).saturating_sub(1) as u32;
        if door <= CHANNEL_FD as u32 + 1 {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(Some(Self { door, filter: notify::address_filter(Some(door)) }))
    }
}

impl Heard {
    /// Of a sandbox that has just been asked for.
    pub fn of(guard: Option<&Guard>) -> Self {
        if guard.is_some() { Self::Awaited } else { Self::Unguarded }
    }

    /// What is to be told of it.
    pub fn listener(&self) -> Option<&OwnedFd> {
        match self {
            Self::By(listener) => Some(listener),
            Self::Unguarded | Self::Awaited => None,
        }
    }

    /// Takes what a program has handed over before it was executed.
    pub fn receive(&mut self, sync: &OwnedFd) {
        if let (Self::Awaited, Some(Said::Heard(listener))) = (&self, sync::hear_now(sync)) {
            *self = Self::By(listener);
        }
    }

    /// Why its sandbox must not run: it would not be held to its address.
    pub fn fault(&self) -> Option<Fault> {
        let step = || "hand over what its calls are answered by".to_owned();
        let fault = || Fault { step: step(), source: rustix::io::Errno::PROTO.into() };
        matches!(self, Self::Awaited).then(fault)
    }
}
