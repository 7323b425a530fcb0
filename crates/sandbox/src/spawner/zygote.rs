//! The spawner's side of the protocol with a zygote (`runtimes/native/snowmelt_zygote.c` has the
//! other).
//!
//! Invariant: a zygote runs the tenant's imports, so what it says is checked for form and size,
//! believed only about its own children, and never waited for without a limit: the socket does
//! not block, and a zygote that breaks the protocol is killed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use snowmelt_kernel::{packet, seccomp};
use snowmelt_types::SandboxId;

use super::cell::Token;
use super::guard::Guard;
use super::ids::Numbers;
use super::spare::{Spare, SpareSpec};
use crate::cgroup::Group;
use crate::message::ZygoteReady;
use crate::spec::{ForkSpec, NetworkId, Root, ZygoteSpec};

/// The longest packet from a zygote.
const LONGEST_FROM_ZYGOTE: usize = 128 << 10;

/// Forks that a zygote is asked for at once; the rest wait here, so that its socket never fills.
pub(super) const MOST_IN_FLIGHT: usize = 32;

/// How many roots of children a zygote keeps.
const MOST_ROOTS: usize = 32;

/// How many ids a zygote gives to one below it, by its own depth: a zygote's children take theirs
/// from the first block, and each zygote below takes one of the other blocks.
const BLOCK_IDS: [u32; 3] = [1 << 14, 1 << 11, 1 << 11];

/// Control groups that a zygote keeps for its children.
pub(super) const MOST_GROUPS: usize = 32;

/// What the spawner keeps of a zygote.
pub(super) struct ZygoteState {
    /// Its user ids on the host.
    first_id: u32,
    /// 0 for one that is below no other.
    depth: usize,
    /// Our end of its control socket.
    pub control: OwnedFd,
    /// Which ids of the first block its children have; 0 is its own.
    children: Numbers,
    /// Which of the other blocks zygotes below have.
    below: Numbers,
    /// The roots that it has, the one used last at the end, and by which number it knows each.
    roots: Vec<(u32, Root)>,
    /// Children that have not named themselves yet.
    pub in_flight: usize,
    /// Children to ask for later, with the sequence of their request.
    pub queue: VecDeque<(u64, Wanted)>,
    /// It is to end with its last child.
    pub retired: bool,
    /// Control groups of former children, for the next.
    pub groups: Vec<Group>,
    /// The child that is made before it is asked for.
    pub spare: Option<Spare>,
}

/// A child that is asked for.
pub(super) enum Wanted {
    Handler(ForkSpec),
    /// A handler that is told later what to call.
    Spare(SpareSpec),
    Zygote(ZygoteSpec),
}

impl Wanted {
    pub fn id(&self) -> &SandboxId {
        match self {
            Self::Handler(spec) => &spec.id,
            Self::Spare(spec) => &spec.id,
            Self::Zygote(spec) => &spec.id,
        }
    }

    pub fn is_zygote(&self) -> bool {
        matches!(self, Self::Zygote(_))
    }

    pub fn network(&self) -> Option<NetworkId> {
        match self {
            Self::Handler(spec) => spec.network,
            Self::Spare(_) | Self::Zygote(_) => None,
        }
    }

    pub fn root(&self) -> &Root {
        match self {
            Self::Handler(spec) => &spec.root,
            Self::Spare(spec) => &spec.root,
            Self::Zygote(spec) => &spec.root,
        }
    }
}

impl ZygoteState {
    /// A zygote without children; `count` ids begin at `first_id`.
    pub fn new(first_id: u32, count: u32, depth: usize, control: OwnedFd) -> Self {
        let block = BLOCK_IDS[depth.min(BLOCK_IDS.len() - 1)];
        Self {
            first_id,
            depth,
            control,
            children: Numbers::new(1, block),
            below: Numbers::new(1, count / block),
            roots: Vec::new(),
            in_flight: 0,
            queue: VecDeque::new(),
            retired: false,
            groups: Vec::new(),
            spare: None,
        }
    }

    /// How deep a zygote below this one is.
    pub fn depth_below(&self) -> usize {
        self.depth + 1
    }

    /// The first id, in the zygote's range, for a child; none when there are too many.
    pub fn take_number(&mut self, is_zygote: bool) -> Option<u32> {
        match is_zygote {
            true => self.below.take().map(|block| block * self.block()),
            false => self.children.take(),
        }
    }

    /// Takes what a child had back.
    pub fn give_back(&mut self, number: u32) {
        match number / self.block() {
            0 => self.children.give_back(number),
            block => self.below.give_back(block),
        }
    }

    /// The id on the host of a child.
    pub fn host_id(&self, number: u32) -> u32 {
        self.first_id + number
    }

    /// How many ids a zygote below this one has.
    pub fn block(&self) -> u32 {
        BLOCK_IDS[self.depth.min(BLOCK_IDS.len() - 1)]
    }

    /// Whether no child is left, or about to be.
    pub fn is_childless(&self) -> bool {
        self.queue.is_empty() && self.children.is_unused() && self.below.is_unused()
    }

    /// By which number the zygote knows, or is to know, a root; and whether it has it already.
    pub fn root(&mut self, root: &Root) -> (u32, bool) {
        let known = self.roots.iter().position(|(_, known)| known == root);
        let entry = match known {
            Some(index) => self.roots.remove(index),
            None if self.roots.len() < MOST_ROOTS => (self.roots.len() as u32, root.clone()),
            None => (self.roots.remove(0).0, root.clone()),
        };
        self.roots.push(entry);
        (self.roots[self.roots.len() - 1].0, known.is_some())
    }

    /// Has every root be sent again.
    pub fn forget_roots(&mut self) {
        self.roots.clear();
    }

    /// Asks for a child.
    pub fn ask(&self, order: &Order, fds: &[&OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        packet::send(&self.control, &order.to_bytes(), &fds)
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

/// A control socket: our end, which does not block, and the zygote's.
pub(super) fn control() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = packet::pair()?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// A control socket with what a zygote of Python reads first in it: our end and its.
pub(super) fn configure(spec: &ZygoteSpec) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = control()?;
    let begin = Begin { python_path: &spec.python_path, imports: &spec.imports };
    packet::send(&ours, &serde_json::to_vec(&begin)?, &[])?;
    Ok((ours, theirs))
}

#[derive(Serialize)]
struct Begin<'a> {
    python_path: &'a [String],
    imports: &'a [String],
}

/// One child to make (`struct order`). With descriptors: the child's end of its pair with us, and
/// its root if it is `fresh`, its network if it has one.
pub(super) struct Order {
    /// Repeated in what is said of the child.
    pub token: Token,
    pub is_zygote: bool,
    /// Its first user id in the zygote's range.
    pub number: u32,
    /// How many ids it has.
    pub count: u32,
    /// By which number the zygote knows the root.
    pub root: u32,
    /// The root comes with this order.
    pub fresh: bool,
    /// The network of the child's job comes with this order.
    pub has_network: bool,
}

impl Order {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, fresh) = (u32::from(self.is_zygote), u32::from(self.fresh));
        let network = u32::from(self.has_network);
        let words = [kind, self.number, self.count, self.root, fresh, network];
        let words = words.into_iter().flat_map(u32::to_ne_bytes);
        words.chain(self.token.to_ne_bytes()).collect()
    }
}

/// What a child does once it has landed: a list of entries, each a letter, text and a zero byte.
#[derive(Default)]
pub(super) struct Entries(Vec<u8>);

impl Entries {
    /// Of a handler.
    pub fn of(spec: &ForkSpec) -> Self {
        let mut entries = Self::default();
        for (name, value) in &spec.env {
            entries.push(b'e', &[name, "=", value]);
        }
        spec.sys_path.iter().for_each(|path| entries.push(b'p', &[path]));
        entries.push(b'c', &[&spec.entry]);
        entries
    }

    fn push(&mut self, kind: u8, parts: &[&str]) {
        self.0.push(kind);
        parts.iter().for_each(|part| self.0.extend(part.as_bytes()));
        self.0.push(0);
    }

    /// Tells a child that has landed.
    pub fn tell(&self, sync: &OwnedFd) -> io::Result<()> {
        packet::send(sync, &self.0, &[])
    }
}

/// Gives a child all that it needs to land (`struct landing`). With descriptors: scratch, channel,
/// log and the doors of its control group.
pub(super) fn land(
    sync: &OwnedFd,
    open_files: u64,
    filter: Option<&seccomp::Program>,
    guard: Option<&Guard>,
    fds: &[&OwnedFd],
) -> io::Result<()> {
    let filter = filter.map(seccomp::Program::to_bytes).unwrap_or_default();
    let waiting = guard.map(|guard| guard.filter.to_bytes()).unwrap_or_default();
    let open_files = guard.map_or(open_files, |guard| guard.door.into());
    let mut bytes = (filter.len() as u32).to_ne_bytes().to_vec();
    bytes.extend((waiting.len() as u32).to_ne_bytes());
    bytes.extend(open_files.to_ne_bytes());
    bytes.extend(filter);
    bytes.extend(waiting);
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    packet::send(sync, &bytes, &fds)
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
