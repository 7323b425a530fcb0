//! The scheduler's knowledge of one host.

use std::collections::HashMap;
use std::time::Duration;

use snowmelt_types::Digest;

use crate::requests::{GangDemand, TaskDemand};

/// The time for which a host is preferred for an image or packages after the last call that needed
/// them.
const IMAGES_KNOWN: Duration = Duration::from_secs(15 * 60);

/// The resources of a host, as the host reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRoom {
    /// The sum of the memory limits that instances may have, in bytes. Memory taken by others than
    /// functions, gangs and tasks of queries is subtracted already.
    pub memory: u64,
    /// The capacity of the host's cores, in thousandths of a core.
    pub cpu_millis: u64,
    /// The memory that ranks of gangs may have together, in bytes.
    pub ranks: u64,
    /// The memory that tasks of queries may have together, in bytes. Memory taken by others than
    /// functions, gangs and tasks is subtracted already.
    pub tasks: u64,
    /// The memory that instances, ranks, tasks and others have together, in bytes. Ranks may take
    /// room that others have now.
    pub sandboxes: u64,
    /// The number of bytes of instances' memory limits for which one byte is reserved, at least 1.
    /// Ranks reserve their whole limit.
    pub overcommit: u32,
}

/// The room of a host, and the resources that calls, gangs and tasks placed there have taken.
#[derive(Debug)]
pub(crate) struct HostUsage {
    pub room: HostRoom,
    /// The memory limits of instances that run calls, in bytes.
    pub memory: u64,
    /// The memory of ranks of gangs, in bytes.
    pub ranks: u64,
    /// The memory of tasks of queries, in bytes.
    pub tasks: u64,
    /// The number of tasks on the host. A count of bytes is not enough, as some tasks need no
    /// memory.
    pub count_of_tasks: u32,
    /// The memory that is kept for the gang or task that has waited for the longest, in bytes.
    pub reserved: u64,
    /// The share of cores that calls, ranks and tasks take, in thousandths of a core.
    pub cpu_millis: u64,
    /// Whether the host has refused a call since its last report.
    pub is_full: bool,
    /// Whether the host has refused a task since its last report.
    pub refuses_tasks: bool,
    /// Whether the host is drained: it gets no new work.
    pub is_drained: bool,
    /// The most memory for instances that the host has ever reported, in bytes: its room if others
    /// than functions take nothing.
    pub most: u64,
    /// The most memory for ranks that the host has ever reported, in bytes.
    pub most_of_ranks: u64,
    /// The most memory for tasks that the host has ever reported, in bytes.
    pub most_of_tasks: u64,
    /// The images and packages that the host holds.
    pub images: HashMap<Digest, Holding>,
    /// The number of trees in which other hosts are below this one.
    pub inner: u32,
    /// The time at which something else than calls last ran on the host.
    pub busy: Duration,
}

/// An image or packages on a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// The number of hosts above this one in the tree of the image. `None` if it is in no tree of
    /// it.
    pub depth: Option<u32>,
    /// The time at which a user of the image last began.
    pub used: Duration,
}

impl Holding {
    /// The number of hosts above this one, or the greatest number if it is in no tree, so that it
    /// comes after all others.
    pub fn depth_of_tree(&self) -> u32 {
        self.depth.unwrap_or(u32::MAX)
    }

    fn is_known(&self, now: Duration) -> bool {
        self.depth.is_some() || now.saturating_sub(self.used) < IMAGES_KNOWN
    }
}

impl HostUsage {
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

    /// Takes the next report of the host.
    pub fn report(&mut self, room: HostRoom) {
        self.room = room;
        self.most = self.most.max(room.memory);
        self.most_of_ranks = self.most_of_ranks.max(room.ranks);
        self.most_of_tasks = self.most_of_tasks.max(room.tasks);
        (self.is_full, self.refuses_tasks) = (false, false);
    }

    /// Notes that a user of an image begins.
    pub fn uses(&mut self, image: &Digest, now: Duration) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: now }).used = now;
    }

    /// Notes that the host is in the tree of an image, `depth` levels below the root.
    pub fn is_in_tree(&mut self, image: &Digest, depth: u32) {
        let known = self.images.entry(image.clone());
        known.or_insert(Holding { depth: None, used: Duration::ZERO }).depth = Some(depth);
    }

    /// Notes that the host has left the tree of an image.
    pub fn leaves_tree(&mut self, image: &Digest) {
        if let Some(holding) = self.images.get_mut(image) {
            holding.depth = None;
        }
    }

    /// Forgets the places in trees, because they are told anew.
    pub fn forget_trees(&mut self) {
        self.images.values_mut().for_each(|holding| holding.depth = None);
        self.inner = 0;
    }

    /// Whether the host is in a tree, or was told to send in one.
    pub fn has_trees(&self) -> bool {
        self.inner > 0 || self.images.values().any(|holding| holding.depth.is_some())
    }

    /// Forgets images that the host may have evicted since they were used.
    pub fn sweep(&mut self, now: Duration) {
        self.images.retain(|_, holding| holding.is_known(now));
    }

    /// Whether there are images that the host may have evicted since they were used.
    pub fn is_to_be_swept(&self, now: Duration) -> bool {
        self.images.values().any(|holding| !holding.is_known(now))
    }

    /// Counts ranks of a gang that are placed on the host.
    pub fn add_ranks(&mut self, gang: &GangDemand, ranks: u32) {
        self.ranks += u64::from(ranks) * gang.memory;
        self.cpu_millis += u64::from(ranks) * u64::from(gang.cpu_millis);
    }

    /// Subtracts ranks of a gang that have ended.
    pub fn remove_ranks(&mut self, gang: &GangDemand, ranks: u32) {
        self.ranks = self.ranks.saturating_sub(u64::from(ranks) * gang.memory);
        let cpu_millis = u64::from(ranks) * u64::from(gang.cpu_millis);
        self.cpu_millis = self.cpu_millis.saturating_sub(cpu_millis);
    }

    /// Counts a task of a query that is placed on the host.
    pub fn add_task(&mut self, task: &TaskDemand, now: Duration) {
        self.tasks += task.memory;
        self.count_of_tasks += 1;
        self.cpu_millis += u64::from(task.cpu_millis);
        self.busy = self.busy.max(now);
    }

    /// Subtracts a task that has ended.
    pub fn remove_task(&mut self, task: &TaskDemand, now: Duration) {
        self.tasks = self.tasks.saturating_sub(task.memory);
        self.count_of_tasks = self.count_of_tasks.saturating_sub(1);
        self.cpu_millis = self.cpu_millis.saturating_sub(task.cpu_millis.into());
        self.busy = self.busy.max(now);
    }

    /// The memory for limits of new instances, in bytes: neither taken, nor kept for ranks or a
    /// task.
    pub fn left(&self) -> u64 {
        let whole = self.ranks.saturating_add(self.tasks).saturating_add(self.reserved);
        let limits = whole.saturating_mul(self.overcommit());
        self.room.memory.saturating_sub(self.memory.saturating_add(limits))
    }

    /// The memory for ranks that is free, in bytes. Idle instances make room, so they do not count
    /// as taken.
    pub fn left_for_ranks(&self) -> u64 {
        let beside_tasks = self.room.sandboxes.saturating_sub(self.ranks + self.tasks);
        let left = self.left_without_calls().min(beside_tasks);
        left.saturating_sub(self.reserved_by_calls())
    }

    /// The memory for ranks that will be free when all calls and tasks on the host have ended, in
    /// bytes.
    pub fn left_without_calls(&self) -> u64 {
        self.room.ranks.saturating_sub(self.ranks)
    }

    /// The memory for ranks that new gangs can have, in bytes: 0 on a drained host.
    pub fn left_for_new_ranks(&self) -> u64 {
        if self.is_drained { 0 } else { self.left_for_ranks() }
    }

    /// The memory for tasks of queries that is free, in bytes. Idle instances make room, so they do
    /// not count as taken.
    pub fn left_for_tasks(&self) -> u64 {
        self.most_for_tasks().saturating_sub(self.tasks + self.reserved_by_calls())
    }

    /// The memory for tasks of queries that will be free when all calls and tasks on the host have
    /// ended, in bytes.
    pub fn most_for_tasks(&self) -> u64 {
        self.room.tasks.saturating_sub(self.ranks)
    }

    /// The memory for tasks that new ones can have, in bytes: 0 if the host takes no tasks now.
    pub fn left_for_new_tasks(&self) -> u64 {
        if self.takes_tasks() { self.left_for_tasks() } else { 0 }
    }

    /// Whether the host gets tasks if it has room for them.
    pub fn takes_tasks(&self) -> bool {
        !self.is_full && !self.refuses_tasks && !self.is_drained
    }

    /// The memory that is reserved by instances that run calls, in bytes.
    fn reserved_by_calls(&self) -> u64 {
        self.memory.div_ceil(self.overcommit())
    }

    fn overcommit(&self) -> u64 {
        self.room.overcommit.max(1).into()
    }

    /// Whether the host gets new instances if it has room for them.
    pub fn is_open(&self) -> bool {
        !self.is_full && !self.is_drained
    }

    /// Whether the host has room for a new instance with this limit of memory, in bytes.
    pub fn fits(&self, memory: u64) -> bool {
        self.is_open() && self.left() >= memory
    }
}
