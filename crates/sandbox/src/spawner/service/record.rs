//! The spawner's state of one sandbox.

use std::os::fd::OwnedFd;
use std::time::Instant;

use snowmelt_types::SandboxId;

use crate::cgroup::SandboxGroup;
use crate::message::{EndStatus, StartFailure};
use crate::spawner::child::notifier::NotifierListener;
use crate::spawner::ids::IdSlot;
use crate::spawner::zygote::ZygoteState;
use crate::spawner::zygote::protocol::{Entries, SandboxToken};

/// The sequence number of a sandbox that no request asked for.
pub(super) const UNREQUESTED: u64 = u64::MAX;

/// The state of a sandbox, from the creation of its control group to its removal.
pub(super) struct SandboxRecord {
    pub id: SandboxId,
    /// The control group of the sandbox.
    pub group: SandboxGroup,
    pub started_at: Instant,
    /// The process id on the host; 0 until it is known.
    pub pid: i32,
    /// The pidfd of the process. `None` for a child of a zygote that has not reported its process
    /// yet.
    pub pidfd: Option<OwnedFd>,
    pub phase: StartPhase,
    pub origin: ProcessOrigin,
    /// The additional state of a zygote. `None` for other sandboxes.
    pub zygote: Option<Box<ZygoteState>>,
}

/// The progress of a start.
pub(super) enum StartPhase {
    /// The sandbox is being set up, and the server waits for the answer.
    Starting(Starting),
    /// The zygote is importing; the server waits for the answer.
    Importing(StartAnswer),
    /// The sandbox runs, and the server has been told so.
    Running,
}

/// The answer that the server waits for.
pub(super) struct StartAnswer {
    /// The sequence number of the request.
    pub sequence: u64,
    /// The inode of the listening socket.
    pub channel: OwnedFd,
    /// The read end of the log.
    pub log: OwnedFd,
    /// The seccomp listener of the sandbox's address notifier.
    pub listener: NotifierListener,
}

/// The state of a sandbox while its process sets it up.
pub(super) struct Starting {
    pub answer: StartAnswer,
    /// The spawner's end of the socket pair with the child.
    pub sync: OwnedFd,
    /// The mounts to attach when a zygote's child has reported its process. `None` for other
    /// sandboxes, and once they are attached.
    pub mounts: Option<Mounts>,
    /// The fault that the child has reported; the child is about to end.
    pub fault: Option<StartFailure>,
    /// The time until which a zygote's child must be about to call its entry.
    pub deadline: Option<Instant>,
}

/// The mounts that a child of a zygote gets besides the root that it has entered.
pub(super) struct Mounts {
    pub scratch: OwnedFd,
    /// The root of a zygote, which enters none itself. `None` for other children.
    pub root: Option<OwnedFd>,
}

/// The way in which the process was made, and its user ids.
pub(super) enum ProcessOrigin {
    /// Cloned by the spawner.
    Cloned { slot: IdSlot },
    /// Forked by a zygote.
    Forked(Forked),
}

/// A child of a zygote.
pub(super) struct Forked {
    /// The record of the child's zygote.
    pub zygote: SandboxToken,
    /// The first user id of the child, relative to the zygote's range.
    pub number: u32,
    /// Whether the zygote counts the child as in flight.
    pub in_flight: bool,
    /// The end that the zygote reported, with CPU time in microseconds.
    pub reported: Option<(EndStatus, u64)>,
    /// The time at which the kernel reported the child's death.
    pub died: Option<Instant>,
    /// The work of the child once it is set up.
    pub call: ChildPurpose,
}

/// The purpose of a child of a zygote.
pub(super) enum ChildPurpose {
    /// The child serves a request and gets these entries.
    Handler(Entries),
    /// The child waits for a request.
    Preforked,
    /// The child is a zygote that imports the modules listed in its control socket.
    Zygote,
}
