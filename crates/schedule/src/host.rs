//! What is known of a host.

use std::collections::HashMap;
use std::time::Duration;

use snowmelt_types::Digest;

use crate::gang::Gang;
use crate::task::Task;

/// How long a host is preferred for an image or packages after the last call that needed them.
const IMAGES_KNOWN: Duration = Duration::from_secs(15 * 60);

/// What a host has for functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes of memory limits that its instances may have together, without what others than
    /// functions, gangs and tasks of queries have taken.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u64,
    /// Bytes that ranks of gangs may have together.
    pub ranks: u64,
    /// Bytes that tasks of queries may have together, without what others than functions, gangs and
    /// tasks have taken.
    pub tasks: u64,
    /// Bytes that all of these and others have together. Ranks may take room that others have now.
    pub sandboxes: u64,
    /// Bytes of limits of instances for which one byte is reserved, at least 1. Ranks reserve all of
    /// theirs.
    pub overcommit: u32,
}

/// A host, and what of it is taken by calls that were placed there.
#[derive(Debug)]
pub(crate) struct Host {
    pub room: HostRoom,
    /// Bytes of instances that run calls.
    pub memory: u64,
    /// Bytes of ranks of gangs.
    pub ranks: u64,
    /// Bytes of tasks of queries.
    pub tasks: u64,
    /// How many they are: some need no memory.
    pub count_of_tasks: u32,
    /// Bytes that are kept for ranks of the gang, or for the task, that has waited for the longest.
    pub reserved: u64,
    /// Thousandths of cores of all.
    pub cpu_millis: u64,
    /// It refused a call since its last report.
    pub is_full: bool,
    /// It refused a task since its last report.
    pub refuses_tasks: bool,
    /// It gets no new instances.
    pub is_drained: bool,
    /// The most room that it has reported: what it has while others than functions take nothing.
    pub most: u64,
    /// The same for ranks.
    pub most_of_ranks: u64,
    /// The same for tasks.
    pub most_of_tasks: u64,
    /// Images and packages that it holds.
    pub images: HashMap<Digest, Holding>,
    /// Trees in which other hosts are below it.
    pub inner: u32,
    /// When something else than calls ran on it last.
    pub busy: Duration,
}

/// An image or packages on a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// How many hosts are above it in the tree of the image; none if it is in none.
    pub depth: Option<u32>,
    /// When something began that needs it.
    pub used: Duration,
}

impl Holding {
    /// How many hosts are above it; one that is in no tree comes after all others.
    pub fn depth_of_tree(&self) -> u32 {
        self.depth.unwrap_or(u32::MAX)
    }

    fn is_known(&self, now: Duration) -> bool {
        self.depth.is_some() || now.saturating_sub(self.used) < IMAGES_KNOWN
    }
}

impl Host {
    pub fn new(room: HostRoom) -> Self {
        Self {
            room,
            memory: 0,
            ranks: 0,
            tasks: 0,
            count_of_tasks: 0,
            reserved: 0,
            cpu_millis: 0,
            is_full: false,
            refuses_tasks: false,
            is_drained: false,
            most: room.memory,
            most_of_ranks: room.ranks,
            most_of_tasks: room.tasks,
            images: HashMap::new(),
            inner: 0,
            busy: Duration::ZERO,
        }
    }

    /// Takes its next report.
    pub fn report(&mut self, room: HostRoom) {
        self.room = room;
        self.most = self.most.max(room.memory);
        self.most_of_ranks = self.most_of_ranks.max(room.ranks);
        self.most_of_tasks = self.most_of_tasks.max(room.tasks);
        (self.is_full, self.refuses_tasks) = (false, false);
    }

    /// Something begins that needs an image.
    pub fn uses(&mut self, image: &Digest, now: Duration) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: now }).used = now;
    }

    /// It is in the tree of an image.
    pub fn is_in_tree(&mut self, image: &Digest, depth: u32) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: Duration::ZERO }).depth = Some(depth);
    }

    /// It is in the tree of an image no more.
    pub fn leaves_tree(&mut self, image: &Digest) {
        if let Some(holding) = self.images.get_mut(image) {
            holding.depth = None;
        }
    }

    /// Forgets places in trees, which are told again.
    pub fn forget_trees(&mut self) {
        self.images.values_mut().for_each(|holding| holding.depth = None);
        self.inner = 0;
    }

    /// Whether it is in a tree, or was told to send in one.
    pub fn has_trees(&self) -> bool {
        self.inner > 0 || self.images.values().any(|holding| holding.depth.is_some())
    }

    /// Forgets what it may have evicted since.
    pub fn sweep(&mut self, now: Duration) {
        self.images.retain(|_, holding| holding.is_known(now));
    }

    /// Whether it may have evicted something since.
    pub fn is_to_be_swept(&self, now: Duration) -> bool {
        self.images.values().any(|holding| !holding.is_known(now))
    }

    /// Ranks of a gang are placed on it.
    pub fn add_ranks(&mut self, gang: &Gang, ranks: u32) {
        self.ranks += u64::from(ranks) * gang.memory;
        self.cpu_millis += u64::from(ranks) * u64::from(gang.cpu_millis);
    }

    /// They have ended.
    pub fn remove_ranks(&mut self, gang: &Gang, ranks: u32) {
        self.ranks = self.ranks.saturating_sub(u64::from(ranks) * gang.memory);
        let cpu_millis = u64::from(ranks) * u64::from(gang.cpu_millis);
        self.cpu_millis = self.cpu_millis.saturating_sub(cpu_millis);
    }

    /// A task of a query is placed on it.
    pub fn add_task(&mut self, task: &Task, now: Duration) {
        self.tasks += task.memory;
        self.count_of_tasks += 1;
        self.cpu_millis += u64::from(task.cpu_millis);
        self.busy = self.busy.max(now);
    }

    /// It has ended.
    pub fn remove_task(&mut self, task: &Task, now: Duration) {
        self.tasks = self.tasks.saturating_sub(task.memory);
        self.count_of_tasks = self.count_of_tasks.saturating_sub(1);
        self.cpu_millis = self.cpu_millis.saturating_sub(task.cpu_millis.into());
        self.busy = self.busy.max(now);
    }

    /// Memory limits of instances that are not taken, nor kept for ranks or a task.
    pub fn left(&self) -> u64 {
        let whole = self.ranks.saturating_add(self.tasks).saturating_add(self.reserved);
        let limits = whole.saturating_mul(self.overcommit());
        self.room.memory.saturating_sub(self.memory.saturating_add(limits))
    }

    /// Memory for ranks that nobody has. Idle instances make room, so they do not count.
    pub fn left_for_ranks(&self) -> u64 {
        let beside_tasks = self.room.sandboxes.saturating_sub(self.ranks + self.tasks);
        let left = self.left_without_calls().min(beside_tasks);
        left.saturating_sub(self.reserved_by_calls())
    }

    /// The same once all calls and tasks have ended that run on it.
    pub fn left_without_calls(&self) -> u64 {
        self.room.ranks.saturating_sub(self.ranks)
    }

    /// Memory for ranks of which new gangs can have some.
    pub fn left_for_new_ranks(&self) -> u64 {
        if self.is_drained { 0 } else { self.left_for_ranks() }
    }

    /// Memory for tasks of queries that nobody has. What is idle makes room, so it does not count.
    pub fn left_for_tasks(&self) -> u64 {
        self.most_for_tasks().saturating_sub(self.tasks + self.reserved_by_calls())
    }

    /// The same once all calls and tasks have ended that run on it.
    pub fn most_for_tasks(&self) -> u64 {
        self.room.tasks.saturating_sub(self.ranks)
    }

    /// Memory for tasks of which new ones can have some.
    pub fn left_for_new_tasks(&self) -> u64 {
        if self.takes_tasks() { self.left_for_tasks() } else { 0 }
    }

    /// Whether it gets tasks if it has room for them.
    pub fn takes_tasks(&self) -> bool {
        !self.is_full && !self.refuses_tasks && !self.is_drained
    }

    /// What the instances reserve that run calls.
    fn reserved_by_calls(&self) -> u64 {
        self.memory.div_ceil(self.overcommit())
    }

    fn overcommit(&self) -> u64 {
        self.room.overcommit.max(1).into()
    }

    /// Whether it gets new instances if it has room for them.
    pub fn is_open(&self) -> bool {
        !self.is_full && !self.is_drained
    }

    /// Whether it has room for a new instance.
    pub fn fits(&self, memory: u64) -> bool {
        self.is_open() && self.left() >= memory
    }
}
