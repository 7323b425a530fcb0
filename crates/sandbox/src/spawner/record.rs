//! The spawner's state of one sandbox.

use std::os::fd::OwnedFd;
use std::time::Instant;

use snowmelt_types::SandboxId;

use super::ids::Slot;
use super::notifier::NotifierListener;
use super::protocol::Entries;
use super::zygote::ZygoteState;
use crate::cgroup::Group;
use crate::message::{Failure, Status};

/// The sequence number of a sandbox that no request asked for.
pub(super) const UNREQUESTED: u64 = u64::MAX;

/// Identifies a record for the life of the spawner; never reused.
pub(super) type Token = u64;

/// One sandbox, from the creation of its control group to its removal.
pub(super) struct SandboxRecord {
    pub id: SandboxId,
    /// Its control group.
    pub group: Group,
    pub started_at: Instant,
    /// Its process id on the host; 0 until it is known.
    pub pid: i32,
    /// `None` for a child of a zygote that has not reported its process yet.
    pub pidfd: Option<OwnedFd>,
    pub phase: Phase,
    pub origin: Origin,
    /// The additional state of a zygote.
    pub zygote: Option<Box<ZygoteState>>,
}

/// The progress of a start.
pub(super) enum Phase {
    /// It is being set up, and the server waits for the answer.
    Starting(Starting),
    /// A zygote that is importing; the server waits for the answer.
    Importing(Answer),
    /// The server has been told that it runs.
    Running,
}

/// The answer that the server waits for.
pub(super) struct Answer {
    /// The sequence number of the request.
    pub sequence: u64,
    /// The inode of the listening socket.
    pub channel: OwnedFd,
    /// The read end of the log.
    pub log: OwnedFd,
    /// The seccomp listener of its address notifier.
    pub listener: NotifierListener,
}

/// The state of a sandbox while its process sets it up.
pub(super) struct Starting {
    pub answer: Answer,
    /// Our end of the socket pair with the child.
    pub sync: OwnedFd,
    /// What is attached when a zygote's child has reported its process.
    pub mounts: Option<Mounts>,
    /// The fault that the child reported; it is about to end.
    pub fault: Option<Failure>,
    /// When a zygote's child must be about to call its entry.
    pub deadline: Option<Instant>,
}

/// What a child of a zygote sees besides the root that it has entered.
pub(super) struct Mounts {
    pub scratch: OwnedFd,
    /// The root of a zygote, which enters none itself.
    pub root: Option<OwnedFd>,
}

/// How the process was made, and which user ids it has.
pub(super) enum Origin {
    /// Cloned by the spawner.
    Cloned { slot: Slot },
    /// Forked by a zygote.
    Forked(Forked),
}

/// A child of a zygote.
pub(super) struct Forked {
    /// The record of its zygote.
    pub zygote: Token,
    /// Its first user id, relative to the zygote's range.
    pub number: u32,
    /// The end that the zygote reported, with CPU time in microseconds.
    pub reported: Option<(Status, u64)>,
    /// When the kernel reported its death.
    pub died: Option<Instant>,
    /// What it runs once it is set up.
    pub call: Call,
}

/// The purpose of a child of a zygote.
pub(super) enum Call {
    /// It serves a request and gets these entries.
    Handler(Entries),
    /// It waits for a request.
    Preforked,
    /// It imports; its control socket lists the modules.
    Zygote,
}
