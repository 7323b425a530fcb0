//! What the spawner knows of one sandbox.

use std::os::fd::OwnedFd;
use std::time::Instant;

use snowmelt_types::SandboxId;

use super::guard::Heard;
use super::ids::Slot;
use super::zygote::{Entries, ZygoteState};
use crate::cgroup::Group;
use crate::message::{Failure, Status};

/// The sequence of what nobody asked for.
pub(super) const NOBODY: u64 = u64::MAX;

/// Names a cell for as long as the spawner runs; never used twice.
pub(super) type Token = u64;

/// One sandbox, from its control group to the removal of that.
pub(super) struct Cell {
    pub id: SandboxId,
    /// Its control group.
    pub group: Group,
    pub begun: Instant,
    /// Its process id on the host; 0 until it is known.
    pub pid: i32,
    /// None for a child of a zygote that has not named itself yet.
    pub pidfd: Option<OwnedFd>,
    pub phase: Phase,
    pub origin: Origin,
    /// What a zygote has beside.
    pub zygote: Option<Box<ZygoteState>>,
}

/// How far it has come.
pub(super) enum Phase {
    /// It is becoming a sandbox, and the server waits for the answer.
    Beginning(Beginning),
    /// A zygote that imports, while the server waits.
    Importing(Answer),
    /// The server knows it.
    Running,
}

/// The answer that the server waits for.
pub(super) struct Answer {
    /// Of the request.
    pub sequence: u64,
    /// The inode of the listening socket.
    pub channel: OwnedFd,
    /// The read end of the log.
    pub log: OwnedFd,
    /// What its calls are answered by.
    pub heard: Heard,
}

/// What is there while a process becomes a sandbox.
pub(super) struct Beginning {
    pub answer: Answer,
    /// Our end of the pair with the child.
    pub sync: OwnedFd,
    /// What the child said went wrong; it is about to end.
    pub fault: Option<Failure>,
    /// By when a zygote's child must be about to call its entry.
    pub deadline: Option<Instant>,
}

/// Who made the process, and whose its user ids are.
pub(super) enum Origin {
    /// Cloned by us.
    Cloned { slot: Slot },
    /// Forked by a zygote.
    Forked(Forked),
}

/// A child of a zygote.
pub(super) struct Forked {
    /// Its zygote's cell.
    pub zygote: Token,
    /// Its first user id within the zygote's range.
    pub number: u32,
    /// What the zygote says of its end, with processor time in microseconds.
    pub said: Option<(Status, u64)>,
    /// When the kernel said that it is dead.
    pub died: Option<Instant>,
    /// What it is told once it has landed.
    pub call: Call,
}

/// What a child of a zygote is for.
pub(super) enum Call {
    /// It serves a request, and is told what to call.
    Handler(Entries),
    /// It waits until there is a request.
    Spare,
    /// It imports; its control socket says what.
    Zygote,
}
