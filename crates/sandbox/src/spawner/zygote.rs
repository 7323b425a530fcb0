//! The spawner's side of the protocol with a zygote.
//!
//! Invariant: a zygote runs the tenant's imports, so what it says is checked for form and size,
//! believed only about its own children, and never waited for without a limit: the socket does
//! not block, and a zygote that breaks the protocol is killed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use snowmelt_kernel::{packet, seccomp};

use super::cell::Token;
use super::ids::{IDS_PER_SLOT, Slot};
use crate::cgroup::Group;
use crate::message::ZygoteReady;
use crate::spec::{ForkSpec, ZygoteSpec};

/// The longest packet from a zygote.
const LONGEST_FROM_ZYGOTE: usize = 64 << 10;

/// Forks that a zygote is asked for at once; the rest wait here, so that its socket never fills.
pub(super) const MOST_IN_FLIGHT: usize = 16;

/// Control groups that a zygote keeps for its children.
pub(super) const MOST_GROUPS: usize = 32;

/// What the spawner keeps of a zygote.
pub(super) struct ZygoteState {
    /// Its user ids.
    pub slot: Slot,
    /// Our end of its control socket.
    pub control: OwnedFd,
    /// Which ids of its range its children have; 0 is its own.
    numbers: [bool; IDS_PER_SLOT as usize],
    /// Children that have not named themselves yet.
    pub in_flight: usize,
    /// Forks to ask for later, with the sequence of their request.
    pub queue: VecDeque<(u64, ForkSpec)>,
    /// It is to end with its last child.
    pub retired: bool,
    /// Control groups of former children, for the next.
    pub groups: Vec<Group>,
}

impl ZygoteState {
    /// A zygote without children.
    pub fn new(slot: Slot, control: OwnedFd) -> Self {
        let mut numbers = [false; IDS_PER_SLOT as usize];
        numbers[0] = true;
        let (in_flight, queue, retired, groups) = (0, VecDeque::new(), false, Vec::new());
        Self { slot, control, numbers, in_flight, queue, retired, groups }
    }

    /// A user id for a child; none when it has 255.
    pub fn take_number(&mut self) -> Option<u8> {
        let free = self.numbers.iter().position(|taken| !taken)?;
        self.numbers[free] = true;
        u8::try_from(free).ok()
    }

    /// Takes a child's user id back.
    pub fn give_back(&mut self, number: u8) {
        self.numbers[usize::from(number)] = false;
    }

    /// Whether no child is left, or about to be.
    pub fn is_childless(&self) -> bool {
        self.queue.is_empty() && self.numbers.iter().filter(|taken| **taken).count() == 1
    }

    /// Asks for a child.
    pub fn ask(&self, order: &Order<'_>, fds: &[&OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        packet::send(&self.control, &serde_json::to_vec(order)?, &fds)
    }

    /// What it says next; `None` when it has said all for now, an error when it broke the
    /// protocol or closed its end.
    pub fn hear(&self) -> io::Result<Option<Report>> {
        let mut buffer = vec![0; LONGEST_FROM_ZYGOTE];
        match packet::receive(&self.control, &mut buffer) {
            Ok(packet) if packet.length == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(packet) => Ok(Some(serde_json::from_slice(&buffer[..packet.length])?)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Puts what a zygote needs to begin into its control socket: its imports, then the filter that
/// its children install.
pub(super) fn configure(
    control: &OwnedFd,
    spec: &ZygoteSpec,
    filter: &seccomp::Program,
) -> io::Result<()> {
    let begin = Begin { python_path: &spec.python_path, imports: &spec.imports };
    packet::send(control, &serde_json::to_vec(&begin)?, &[])?;
    packet::send(control, &filter.to_bytes(), &[])
}

#[derive(Serialize)]
struct Begin<'a> {
    python_path: &'a [String],
    imports: &'a [String],
}

/// One child to make. With descriptors: root, scratch, listening socket, log, sync, and the doors
/// of its control group.
#[derive(Serialize)]
pub(super) struct Order<'a> {
    /// Repeated in what is said of the child.
    pub token: Token,
    /// Its user id in the zygote's range.
    pub number: u8,
    pub open_files: u64,
    pub env: &'a [(String, String)],
    pub sys_path: &'a [String],
    pub entry: &'a str,
}

/// What a zygote says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The imports are done.
    Ready(ZygoteReady),
    /// A child could not be forked.
    Failed { token: Token, step: String, errno: i32 },
    /// A child has ended; a negative code is a signal.
    Exited { token: Token, code: i32, cpu_us: u64 },
}
