//! Control groups that are made before they are needed, and reused (SOCK 3.1: making and removing
//! groups is among the most expensive steps of a container's life).
//!
//! Invariant: a group is handed out empty, with the requested limits, and earlier counts are not
//! attributed to its next sandbox.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::leftovers::Leftovers;
use super::{Backend, GroupUsage, Meters, prefix, remove_lane, remove_now};
use snowmelt_types::ByteSize;

use crate::disabled_defences::{Defence, is_disabled};
use crate::spec::{Limits, Total};
use crate::{Error, Result};

/// The maximum number of free groups kept for reuse.
const MAX_KEPT: usize = 64;

/// The number of free groups to have ready; missing ones are made when idle.
const READY: usize = 8;

/// A control group of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxGroup {
    /// The path of the group below the hierarchy.
    pub path: String,
    /// The files through which a process enters the group; see [`Backend::entry_fds`].
    pub entry_fds: Vec<OwnedFd>,
    limits: Limits,
    meters: Meters,
    /// The counts when the group was handed out.
    before: GroupUsage,
    /// The counts when the sandbox of the group had ended.
    last: Option<GroupUsage>,
}

impl SandboxGroup {
    /// The limit of the memory of the group's sandbox.
    pub fn memory_limit(&self) -> ByteSize {
        self.limits.memory
    }
}

/// The groups of one lane of a spawner, `<parent>/<lane>-<number>`.
pub(crate) struct GroupPool {
    backend: Box<dyn Backend>,
    parent: String,
    lane: u32,
    free: Vec<SandboxGroup>,
    made: u64,
    /// The limits of the last request, and so probably of the next.
    usual: Limits,
    /// Whether this process is in a group of the spawner; see [`Self::enter_spawner_group`].
    is_in_spawner_group: bool,
    leftovers: Leftovers,
    /// The user who freezes and thaws groups; `None` is root.
    pausing_user: Option<u32>,
}

impl GroupPool {
    /// Makes the parent of all groups, with their total limits.
    pub fn new(backend: Box<dyn Backend>, parent: String, total: &Total) -> Result<Self> {
        backend.prepare(&parent)?;
        if !is_disabled(Defence::ControlGroup) {
            // Before there is any group below, so no sandbox runs without the limit of all
            // together.
            backend.set_total_limits(&parent, total.memory_limit(), total.process_limit())?;
        }
        let usual = Limits::default();
        Ok(Self {
            backend,
            parent,
            lane: 0,
            free: Vec::new(),
            made: 0,
            usual,
            is_in_spawner_group: false,
            leftovers: Leftovers::default(),
            pausing_user: None,
        })
    }

    /// Lets a user other than root freeze and thaw the groups that are made from now on.
    #[must_use]
    pub fn paused_by(self, user: Option<u32>) -> Self {
        Self { pausing_user: user, ..self }
    }

    /// Moves this process into a group beside the groups that are made from now on, so that its
    /// children enter those without waiting for every processor.
    pub fn enter_spawner_group(&mut self) {
        let group = format!("{}/{}spawner", self.parent, prefix(self.lane));
        self.is_in_spawner_group = self.backend.enter_spawner_group(&group);
    }

    /// Undoes [`Self::enter_spawner_group`], because [`Self::remove_all`] kills every process in
    /// this lane's groups.
    pub fn leave_spawner_group(&mut self) {
        if std::mem::take(&mut self.is_in_spawner_group) {
            self.backend.leave_spawner_group();
        }
    }

    /// Forgets every group of the other lane, to make those of this one.
    pub fn become_lane(&mut self, lane: u32) {
        // Dropped and not removed: the groups are those of the other lane, which still uses them.
        self.free.clear();
        self.leftovers.clear();
        (self.lane, self.made, self.is_in_spawner_group) = (lane, 0, false);
    }

    /// Removes every group of this lane.
    pub fn remove_all(&self) -> Result<()> {
        remove_lane(self.backend.as_ref(), &self.parent, self.lane)
    }

    /// The kernel's interface.
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// A group with these limits, from the pool or new.
    pub fn take(&mut self, limits: &Limits) -> Result<SandboxGroup> {
        self.usual = enforced(limits);
        match self.free.pop() {
            Some(group) => self.with_limits(group, limits),
            None => self.make(&enforced(limits)),
        }
    }

    /// Changes the limits of a group.
    pub fn with_limits(
        &mut self,
        mut group: SandboxGroup,
        limits: &Limits,
    ) -> Result<SandboxGroup> {
        let limits = enforced(limits);
        // Each limit is a write to a file of the kernel; equal ones are not written again.
        if group.limits != limits {
            let set = self.backend.set_limits(&group.path, &limits);
            // Some limits are set and others not: no next sandbox may get such a group.
            set.inspect_err(|_| self.discard(&group, None))?;
            group.limits = limits;
        }
        Ok(group)
    }

    /// Takes back the group of a sandbox whose processes have all ended.
    pub fn give_back(&mut self, mut group: SandboxGroup) {
        if self.free.len() < MAX_KEPT && self.reset(&mut group) {
            self.free.push(group);
        } else {
            self.discard(&group, None);
        }
    }

    /// Resets a group whose processes have all ended. Returns false if that is not possible, or if
    /// the kernel ended a process for its memory: the group's limit may have been lowered from
    /// outside, which the next sandbox would meet too.
    pub fn reset(&self, group: &mut SandboxGroup) -> bool {
        let path = &group.path;
        let meters = &mut group.meters;
        // Counts of a dead sandbox do not change any more, so those of its end are taken.
        let now = group.last.take().unwrap_or_else(|| self.backend.usage(path, meters));
        let was_short = now.oom_kills > group.before.oom_kills;
        group.before = now;
        !was_short && self.backend.reset(path, meters)
    }

    /// Thaws the group, which was frozen by a caller that is gone.
    pub fn release(&self, group: &SandboxGroup) {
        if let Some(freezer_file) = self.backend.freezer_file(&group.path) {
            freezer_file.release();
        }
    }

    /// Counts what the lane has seen of the memory of the group's sandbox. Returns whether that is
    /// above the limit.
    pub fn count_memory(&self, group: &SandboxGroup, used: ByteSize) -> bool {
        let is_over = used > group.limits.memory;
        self.backend.count_memory(&group.path, used, is_over);
        is_over
    }

    /// The counts of the group's sandbox, whose processes have all ended.
    pub fn usage(&self, group: &mut SandboxGroup) -> GroupUsage {
        let now = self.backend.usage(&group.path, &mut group.meters);
        let before = group.before;
        group.last = Some(now);
        GroupUsage {
            oom_kills: now.oom_kills.saturating_sub(before.oom_kills),
            forks_refused: now.forks_refused.saturating_sub(before.forks_refused),
            throttled_us: now.throttled_us.saturating_sub(before.throttled_us),
            memory_peak: now.memory_peak,
            cpu_us: now.cpu_us.map(|cpu| cpu.saturating_sub(before.cpu_us.unwrap_or(0))),
        }
    }

    /// Whether [`Self::refill`] has work to do.
    pub fn needs_refill(&self) -> bool {
        self.free.len() < READY && !self.backend.is_watched()
    }

    /// Makes one group in advance. A failure is reported when a group is requested.
    pub fn refill(&mut self) -> bool {
        let usual = self.usual;
        let made = self.make(&usual);
        let well = made.is_ok();
        self.free.extend(made);
        well
    }

    fn make(&mut self, limits: &Limits) -> Result<SandboxGroup> {
        self.made += 1;
        let path = format!("{}/{}{}", self.parent, prefix(self.lane), self.made);
        let made = self.backend.create(&path).and_then(|()| {
            if self.is_in_spawner_group {
                // While no process can be in the group: the files through which processes enter are
                // opened below.
                self.backend.enable_fast_entry(&path)?;
            }
            self.backend.set_limits(&path, limits)?;
            self.give_freezer(&path)?;
            self.backend.entry_fds(&path)
        });
        match made {
            // The counts of a fresh group are 0.
            Ok(entry_fds) => {
                let limits = *limits;
                let meters = Meters::default();
                let before = GroupUsage::default();
                Ok(SandboxGroup { path, entry_fds, limits, meters, before, last: None })
            }
            Err(error) => {
                // The first error is the one to report.
                self.remove(&path, None);
                Err(error)
            }
        }
    }

    /// Gives the file that freezes a group to the user who does so.
    fn give_freezer(&self, path: &str) -> Result<()> {
        let (Some(user), Some(freezer)) = (self.pausing_user, self.backend.freezer_file(path))
        else {
            return Ok(());
        };
        let given = std::os::unix::fs::chown(&freezer.file, Some(user), None);
        given.map_err(|source| Error::Cgroup { path: freezer.file, source })
    }

    /// Removes a group, now or as soon as its processes are dead. The zygote `owner` may have put
    /// processes there.
    pub fn discard(&mut self, group: &SandboxGroup, owner: Option<u64>) {
        self.remove(&group.path, owner);
    }

    fn remove(&mut self, path: &str, owner: Option<u64>) {
        self.backend.forget(path);
        if !remove_now(self.backend.as_ref(), path) {
            self.leftovers.add(path, owner);
        }
    }

    /// The time at which [`Self::tidy`] has work to do.
    pub fn next_tidy(&self) -> Option<Instant> {
        self.leftovers.due()
    }

    /// Removes groups that could not be removed before, and returns the owners that keep adding
    /// processes.
    pub fn tidy(&mut self, now: Instant) -> Vec<u64> {
        self.leftovers.attempt(self.backend.as_ref(), now)
    }
}

/// The limits to enforce: all, unless the defence is disabled.
fn enforced(limits: &Limits) -> Limits {
    let without = Limits { memory: ByteSize::mib(1 << 20), pids: 1 << 20, ..*limits };
    if is_disabled(Defence::ControlGroup) { without } else { *limits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::detect;

    /// Runs a test with a pool on this machine's control groups, removed at the end.
    fn with_pool(test: impl FnOnce(&mut GroupPool)) {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can make control groups");
        }
        let parent = format!("snowmelt/pool-{}", snowmelt_types::SandboxId::new());
        let total = Total { memory: Some(ByteSize::mib(999)), processes: Some(777) };
        let mut pool = GroupPool::new(detect().unwrap(), parent.clone(), &total).unwrap();
        test(&mut pool);
        crate::cgroup::remove_tree(pool.backend(), &parent).unwrap();
    }

    #[test]
    fn reuses_a_returned_group_with_the_limits_of_the_next_sandbox() {
        with_pool(|pool| {
            let first = pool.take(&Limits::default()).unwrap();
            let path = first.path.clone();
            pool.give_back(first);
            let limits = Limits { memory: ByteSize::mib(77), pids: 5, ..Limits::default() };
            let again = pool.take(&limits).unwrap();
            if pool.backend().reset(&path, &mut Meters::default()) {
                assert_eq!(again.path, path);
            }
            let read = |file: &str| {
                let folders = pool.backend().folders(&again.path);
                let files = folders.iter().map(|folder| folder.join(file));
                files.filter_map(|file| std::fs::read_to_string(file).ok()).next().unwrap()
            };
            assert_eq!(read("pids.max").trim(), "5");
            let memory = pool.backend().memory_limit_file();
            assert_eq!(read(memory).trim(), (77 << 20).to_string());
        });
    }

    #[test]
    fn all_groups_together_are_limited() {
        with_pool(|pool| {
            let folders = pool.backend().folders(&pool.parent);
            let has = |file: &str, value: &str| {
                let read = |folder: &std::path::PathBuf| std::fs::read_to_string(folder.join(file));
                folders
                    .iter()
                    .filter_map(|folder| read(folder).ok())
                    .any(|text| text.trim() == value)
            };
            assert!(has(pool.backend().memory_limit_file(), &(999 << 20).to_string()));
            assert!(has("pids.max", "777"));
        });
    }

    #[test]
    fn is_filled_in_advance_and_removes_every_group() {
        with_pool(|pool| {
            while pool.needs_refill() {
                assert!(pool.refill());
            }
            assert_eq!(pool.free.len(), READY);
            let taken = pool.take(&Limits::default()).unwrap();
            assert!(taken.path.starts_with(&pool.parent) && pool.needs_refill());
        });
    }

    #[test]
    fn does_not_reuse_a_group_in_which_the_kernel_ended_a_process() {
        with_pool(|pool| {
            let mut group = pool.take(&Limits::default()).unwrap();
            let path = group.path.clone();
            group.last = Some(GroupUsage { oom_kills: 1, ..GroupUsage::default() });
            pool.give_back(group);
            assert_ne!(pool.take(&Limits::default()).unwrap().path, path);
        });
    }
}
