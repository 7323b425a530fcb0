//! Control groups of ended sandboxes that could not be removed immediately, because a process is
//! still in them. The process is killed repeatedly in the background.
//!
//! The processes of a sandbox die at the first attempt, since its pid namespace has ended or is
//! about to. If new processes appear as fast as they are killed, a process outside puts them there:
//! the zygote, which can open its children's groups.
//!
//! Invariant: an attempt never blocks, and handles a bounded number of groups.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Backend, kill_once, remove_now};
use crate::times::{GROUP_FIRST_PAUSE, GROUP_LONGEST_PAUSE};

/// The maximum number of groups per attempt.
const MAX_AT_ONCE: usize = 32;

/// The number of attempts in a row that each found new processes after which the owner is reported.
const CHURN: u32 = 5;

struct Leftover {
    group: String,
    /// The zygote that may be putting processes into the group.
    owner: Option<u64>,
    due: Instant,
    pause: Duration,
    last: BTreeSet<i32>,
    attempts_with_new: u32,
}

/// The groups of one lane.
#[derive(Default)]
pub(super) struct Leftovers(Vec<Leftover>);

impl Leftovers {
    /// Adds a group; [`Self::attempt`] reports `owner` if it keeps adding processes.
    pub fn add(&mut self, group: &str, owner: Option<u64>) {
        let group = group.to_owned();
        let due = Instant::now() + GROUP_FIRST_PAUSE;
        let last = BTreeSet::new();
        let attempts_with_new = 0;
        self.0.push(Leftover {
            group,
            owner,
            due,
            pause: GROUP_FIRST_PAUSE,
            last,
            attempts_with_new,
        });
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The time of the next attempt. `None` if no groups are left.
    pub fn due(&self) -> Option<Instant> {
        self.0.iter().map(|leftover| leftover.due).min()
    }

    /// Tries the groups that are due, and returns the owners that keep adding processes.
    pub fn attempt(&mut self, backend: &dyn Backend, now: Instant) -> Vec<u64> {
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|leftover| leftover.due <= now);
        self.0 = waiting;
        let mut churning = Vec::new();
        for (index, mut leftover) in due.into_iter().enumerate() {
            if index >= MAX_AT_ONCE || !leftover.attempt(backend, now) {
                churning.extend(leftover.owner.filter(|_| leftover.attempts_with_new >= CHURN));
                self.0.push(leftover);
            }
        }
        churning
    }
}

impl Leftover {
    /// Tries once to remove the group. Returns true if it is removed.
    fn attempt(&mut self, backend: &dyn Backend, now: Instant) -> bool {
        let folders = backend.folders(&self.group);
        let found: BTreeSet<i32> = folders.iter().flat_map(|folder| kill_once(folder)).collect();
        if remove_now(backend, &self.group) {
            return true;
        }
        let is_other = found.iter().any(|pid| !self.last.contains(pid));
        self.attempts_with_new = if is_other { self.attempts_with_new + 1 } else { 0 };
        self.last = found;
        self.pause = (self.pause * 2).min(GROUP_LONGEST_PAUSE);
        self.due = now + self.pause;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::v2::Hierarchy;

    fn fake() -> (tempfile::TempDir, Hierarchy) {
        let folder = tempfile::tempdir().unwrap();
        let controllers = folder.path().join("cgroup.controllers");
        std::fs::write(controllers, "cpu memory pids").unwrap();
        let hierarchy = Hierarchy::at(folder.path().to_owned()).unwrap();
        (folder, hierarchy)
    }

    #[test]
    fn an_empty_group_is_removed_at_the_first_attempt() {
        let (folder, hierarchy) = fake();
        std::fs::create_dir(folder.path().join("g")).unwrap();
        let mut leftovers = Leftovers::default();
        leftovers.add("g", Some(7));
        let due = leftovers.due().unwrap();
        assert!(leftovers.attempt(&hierarchy, due - GROUP_FIRST_PAUSE).is_empty());
        assert!(folder.path().join("g").exists());
        assert!(leftovers.attempt(&hierarchy, due).is_empty());
        assert!(!folder.path().join("g").exists() && leftovers.due().is_none());
    }

    #[test]
    fn an_owner_is_reported_only_when_new_processes_keep_appearing() {
        let (folder, hierarchy) = fake();
        let group = folder.path().join("g");
        std::fs::create_dir(&group).unwrap();
        let mut leftovers = Leftovers::default();
        leftovers.add("g", Some(7));
        // No process has such a large id.
        let mut attempt = |pid: u32| {
            std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
            let due = leftovers.due().unwrap();
            leftovers.attempt(&hierarchy, due)
        };
        (0..20).for_each(|_| assert!(attempt(0x3fff_0000).is_empty(), "it dies slowly"));
        (1..CHURN).for_each(|n| assert!(attempt(0x3fff_0000 + n).is_empty()));
        assert_eq!(attempt(0x3fff_ffff), [7]);
    }
}
