//! The spawner's side of the protocol with a zygote (`runtimes/native/snowmelt_zygote.c` has the
//! other side).
//!
//! Invariant: a zygote runs the tenant's imports, so its reports are checked for form and size,
//! trusted only about its own children, and never waited for without a limit: the socket does not
//! block, and a zygote that breaks the protocol is killed.

pub(super) mod preforked_child;
pub(super) mod protocol;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use snowmelt_kernel::packet;
use snowmelt_types::SandboxId;

use super::ids::Numbers;
use crate::cgroup::SandboxGroup;
use crate::message::ZygoteReady;
use crate::spec::{ForkSpec, NetworkId, Root, ZygoteSpec};
use preforked_child::{Preforked, PreforkedSpec};
use protocol::{ChildOrder, SandboxToken};

/// The longest packet from a zygote.
const LONGEST_FROM_ZYGOTE: usize = 128 << 10;

/// The maximum number of requested forks in flight; the rest are queued here, so that the zygote's
/// socket never fills.
pub(super) const MAX_IN_FLIGHT: usize = 32;

/// The maximum number of root file systems of children that a zygote caches.
pub(crate) const MAX_ROOTS: usize = 32;

/// The number of ids that a zygote gives to one below it, by its own depth: a zygote's children
/// take their ids from the first block, and each zygote below takes one of the other blocks.
const BLOCK_IDS: [u32; 3] = [MAX_CHILDREN, 1 << 11, 1 << 11];

/// The maximum number of children of a zygote.
pub(crate) const MAX_CHILDREN: u32 = 1 << 14;

/// The maximum number of control groups that a zygote keeps for its children.
pub(super) const MAX_GROUPS: usize = 32;

/// The spawner's state of a zygote.
pub(super) struct ZygoteState {
    /// The first user id of the zygote on the host.
    first_id: u32,
    /// Whether all children have the zygote's own id; their numbers only count them then.
    shares_id: bool,
    /// The number of zygotes that this one descends from: 0 if it was not forked from another
    /// zygote.
    depth: usize,
    /// The spawner's end of the zygote's control socket.
    pub control: OwnedFd,
    /// The ids of the first block that children have. Id 0 is the zygote's own.
    children: Numbers,
    /// The blocks of ids, besides the first, that zygotes below this one have.
    below: Numbers,
    /// The cached roots, most recently used last, each with the zygote's number for it.
    roots: Vec<(u32, Root)>,
    /// The number of children that are not released to continue their set-up yet.
    pub in_flight: usize,
    /// Children to request later, with the sequence number of their request.
    pub queue: VecDeque<(u64, Wanted)>,
    /// Whether the zygote ends with its last child.
    pub retired: bool,
    /// Control groups of former children, for reuse.
    pub groups: Vec<SandboxGroup>,
    /// The preforked child.
    pub preforked: Option<Preforked>,
}

/// A requested child.
pub(super) enum Wanted {
    Handler(ForkSpec),
    /// A handler whose entry is sent later.
    Preforked(PreforkedSpec),
    Zygote(ZygoteSpec),
}

impl Wanted {
    pub fn id(&self) -> &SandboxId {
        match self {
            Self::Handler(spec) => &spec.id,
            Self::Preforked(spec) => &spec.id,
            Self::Zygote(spec) => &spec.id,
        }
    }

    pub fn is_zygote(&self) -> bool {
        matches!(self, Self::Zygote(_))
    }

    pub fn network(&self) -> Option<NetworkId> {
        match self {
            Self::Handler(spec) => spec.network,
            Self::Preforked(_) | Self::Zygote(_) => None,
        }
    }

    pub fn root(&self) -> &Root {
        match self {
            Self::Handler(spec) => &spec.root,
            Self::Preforked(spec) => &spec.root,
            Self::Zygote(spec) => &spec.root,
        }
    }
}

impl ZygoteState {
    /// Makes the state of a zygote without children. Its `count` ids begin at `first_id`.
    pub fn new(first_id: u32, count: u32, shares_id: bool, depth: usize, control: OwnedFd) -> Self {
        let block = BLOCK_IDS[depth.min(BLOCK_IDS.len() - 1)];
        Self {
            first_id,
            shares_id,
            depth,
            control,
            children: Numbers::new(1, block),
            below: Numbers::new(1, count / block),
            roots: Vec::new(),
            in_flight: 0,
            queue: VecDeque::new(),
            retired: false,
            groups: Vec::new(),
            preforked: None,
        }
    }

    /// The depth of a zygote below this one.
    pub fn depth_below(&self) -> usize {
        self.depth + 1
    }

    /// Takes the first id, in the zygote's range, for a child; `None` when all are taken.
    pub fn take_number(&mut self, is_zygote: bool) -> Option<u32> {
        match is_zygote {
            true => self.below.take().map(|block| block * self.block()),
            false => self.children.take(),
        }
    }

    /// Returns the ids of a child.
    pub fn give_back(&mut self, number: u32) {
        match number / self.block() {
            0 => self.children.give_back(number),
            block => self.below.give_back(block),
        }
    }

    /// The host user id of a child.
    pub fn host_id(&self, number: u32) -> u32 {
        self.first_id + self.inside_id(number)
    }

    /// The user id of a child in the zygote's user namespace.
    pub fn inside_id(&self, number: u32) -> u32 {
        if self.shares_id { 0 } else { number }
    }

    /// Whether all children have the zygote's own id.
    pub fn shares_id(&self) -> bool {
        self.shares_id
    }

    /// The number of ids that a zygote below this one maps.
    pub fn mapped_below(&self) -> u32 {
        if self.shares_id { 1 } else { self.block() }
    }

    /// The number of ids of a zygote below this one.
    pub fn block(&self) -> u32 {
        BLOCK_IDS[self.depth.min(BLOCK_IDS.len() - 1)]
    }

    /// Whether the zygote has no child, and none is queued.
    pub fn is_childless(&self) -> bool {
        self.queue.is_empty() && self.children.is_unused() && self.below.is_unused()
    }

    /// Returns the zygote's number for a root, and whether the zygote has that root already.
    pub fn root(&mut self, root: &Root) -> (u32, bool) {
        let known = self.roots.iter().position(|(_, known)| known == root);
        let entry = match known {
            Some(index) => self.roots.remove(index),
            None if self.roots.len() < MAX_ROOTS => (self.roots.len() as u32, root.clone()),
            // The number of the one that is dropped: the zygote replaces its root when the new one
            // arrives.
            None => (self.roots.remove(0).0, root.clone()),
        };
        self.roots.push(entry);
        (self.roots[self.roots.len() - 1].0, known.is_some())
    }

    /// Forgets all cached roots, so that every root is sent again.
    pub fn forget_roots(&mut self) {
        self.roots.clear();
    }

    /// Requests a child.
    pub fn ask(&self, order: &ChildOrder, fds: &[&OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        packet::send(&self.control, &order.to_bytes(), &fds)
    }

    /// Receives the next report; `None` when there is none now, an error when the zygote broke the
    /// protocol or closed its end.
    pub fn receive(&self) -> io::Result<Option<ZygoteReport>> {
        let mut buffer = vec![0; LONGEST_FROM_ZYGOTE];
        match packet::receive(&self.control, &mut buffer) {
            // The end of the socket, or an empty packet, which the protocol does not have.
            Ok(packet) if packet.length == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(packet) => Ok(Some(serde_json::from_slice(&buffer[..packet.length])?)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes a control socket for a Python zygote, with the first message sent. Returns the spawner's
/// end and the zygote's.
pub(super) fn configure(spec: &ZygoteSpec) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = packet::pair()?;
    // The lane must not wait for a zygote that does not read, or does not write.
    rustix::io::ioctl_fionbio(&ours, true)?;
    let begin = Begin { python_path: &spec.python_path, imports: &spec.imports };
    packet::send(&ours, &serde_json::to_vec(&begin)?, &[])?;
    Ok((ours, theirs))
}

#[derive(Serialize)]
struct Begin<'a> {
    python_path: &'a [String],
    imports: &'a [String],
}

/// A report of a zygote.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ZygoteReport {
    /// The imports are done.
    Ready(ZygoteReady),
    /// A child could not be forked.
    Failed { token: SandboxToken, step: String, errno: i32 },
    /// A child has ended; a negative code is a signal.
    Exited { token: SandboxToken, code: i32, cpu_us: u64 },
}
