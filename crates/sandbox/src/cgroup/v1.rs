//! Control groups, version 1: one hierarchy for each controller.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use snowmelt_types::ByteSize;

use super::{
    Backend, Freezer, FreezerFile, GroupUsage, Meters, ThrottledFile, cpu_quota_us, cpu_shares,
    is_threaded, make, make_parents, tcp_memory, write,
};
use crate::spec::Limits;
use crate::{Error, Result};

/// Mount points of the three controllers in use; two may share a mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchies {
    memory: PathBuf,
    cpu: PathBuf,
    pids: PathBuf,
    freezer: Option<Freezer>,
}

/// The memory in bytes up to which a group is reused after its sandbox. Memory that a group still
/// holds would count for the next sandbox.
const CLEAN: u64 = 1 << 20;

/// The file with the peak memory; a write resets it.
const PEAK: &str = "memory.max_usage_in_bytes";

impl Hierarchies {
    /// Finds the hierarchies in the text of `/proc/self/mounts`.
    pub fn find(mounts: &str) -> Option<Self> {
        let find = |controller| mount_of(mounts, controller);
        let memory = find("memory")?;
        let cpu = find("cpu")?;
        let pids = find("pids")?;
        Some(Self { memory, cpu, pids, freezer: Freezer::find(mounts) })
    }

    fn roots(&self) -> Vec<&Path> {
        let mut roots = vec![&*self.memory, &*self.cpu, &*self.pids];
        roots.extend(self.freezer.as_ref().map(Freezer::root));
        roots.dedup();
        roots
    }
}

fn mount_of(mounts: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let target = fields.next()?;
        let kind = fields.next()?;
        let options = fields.next()?;
        let ours = kind == "cgroup" && options.split(',').any(|option| option == controller);
        ours.then(|| PathBuf::from(target))
    })
}

impl Backend for Hierarchies {
    fn prepare(&self, parent: &str) -> Result<()> {
        self.roots().into_iter().try_for_each(|root| make_parents(root, parent, |_| Ok(())))
    }

    fn set_total_limits(
        &self,
        parent: &str,
        memory: Option<ByteSize>,
        processes: Option<u32>,
    ) -> Result<()> {
        if let Some(most) = memory {
            let folder = self.memory.join(parent);
            write(folder.join("memory.limit_in_bytes"), most.bytes())?;
            limit_tcp(&folder, most)?;
        }
        processes.map_or(Ok(()), |most| write(self.pids.join(parent).join("pids.max"), most))
    }

    fn create(&self, group: &str) -> Result<()> {
        self.folders(group).iter().try_for_each(|folder| make(folder))
    }

    fn enter_spawner_group(&self, group: &str) -> bool {
        self.freezer.as_ref().is_some_and(|freezer| freezer.enter_spawner_group(group))
    }

    fn leave_spawner_group(&self) {
        self.freezer.iter().for_each(Freezer::leave_spawner_group);
    }

    fn enable_fast_entry(&self, group: &str) -> Result<()> {
        let made = self.freezer.as_ref().map_or(Ok(()), |freezer| freezer.enable_fast_entry(group));
        made.map_err(|source| Error::Cgroup { path: group.into(), source })
    }

    fn set_limits(&self, group: &str, limits: &Limits) -> Result<()> {
        let memory = self.memory.join(group);
        let limit = memory.join("memory.limit_in_bytes");
        let with_swap = memory.join("memory.memsw.limit_in_bytes");
        // Only kernels that count swap have this file; without it there is no swap to limit.
        if with_swap.exists() {
            // The memory limit must never exceed the limit with swap, so lift that one first.
            write(with_swap.clone(), -1)?;
            write(limit, limits.memory.bytes())?;
            write(with_swap, limits.memory.bytes())?;
        } else {
            write(limit, limits.memory.bytes())?;
        }
        limit_tcp(&memory, limits.memory)?;
        let cpu = self.cpu.join(group);
        // The quota assumes the default period of a fresh group.
        write(cpu.join("cpu.cfs_quota_us"), cpu_quota_us(limits))?;
        write(cpu.join("cpu.shares"), cpu_shares(limits))?;
        write(self.pids.join(group).join("pids.max"), limits.pids)
    }

    fn reset(&self, group: &str, meters: &mut Meters) -> bool {
        let memory = self.memory.join(group);
        let memory_used = meters.number(&memory, "memory.usage_in_bytes").unwrap_or(u64::MAX);
        // Remaining processes would share the group with the next sandbox.
        let is_empty = meters.number(&self.pids.join(group), "pids.current") == Some(0);
        is_empty && memory_used <= CLEAN && meters.write(&memory, PEAK, "0").is_ok()
    }

    fn entry_fds(&self, group: &str) -> Result<Vec<OwnedFd>> {
        let open = |folder: PathBuf| {
            let path = folder.join(entry_file(&folder));
            let file = File::options().write(true).open(&path);
            file.map(OwnedFd::from).map_err(|source| Error::Cgroup { path, source })
        };
        self.folders(group).into_iter().map(open).collect()
    }

    fn ensure_member(&self, group: &str, pid: i32) -> Result<()> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let failed = |source| Error::Cgroup { path: path.clone(), source };
        let text = fs::read_to_string(&path).map_err(failed)?;
        let inside = text.lines().filter(|line| line.ends_with(group)).count();
        if inside >= self.roots().len() {
            return Ok(());
        }
        Err(failed(io::ErrorKind::PermissionDenied.into()))
    }

    fn clone_target(&self, _group: &str) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn usage(&self, group: &str, meters: &mut Meters) -> GroupUsage {
        let (memory, pids, cpu) =
            (self.memory.join(group), self.pids.join(group), self.cpu.join(group));
        let mut count = |folder, file, key| meters.count(folder, file, key).unwrap_or(0);
        GroupUsage {
            throttled_us: count(&cpu, "cpu.stat", "throttled_time") / 1000,
            oom_kills: count(&memory, "memory.oom_control", "oom_kill"),
            forks_refused: count(&pids, "pids.events", "max"),
            memory_peak: meters.number(&memory, PEAK).map(ByteSize),
            cpu_us: None,
        }
    }

    fn memory_peak_file(&self, group: &str) -> Option<PathBuf> {
        Some(self.memory.join(group).join(PEAK))
    }

    fn memory_file(&self, group: &str) -> Option<PathBuf> {
        Some(self.memory.join(group).join("memory.usage_in_bytes"))
    }

    fn throttled_file(&self, group: &str) -> Option<ThrottledFile> {
        Some(ThrottledFile::new(self.cpu.join(group).join("cpu.stat"), "throttled_time ", 1))
    }

    #[cfg(test)]
    fn memory_limit_file(&self) -> &'static str {
        "memory.limit_in_bytes"
    }

    fn freezer_file(&self, group: &str) -> Option<FreezerFile> {
        self.freezer.as_ref().map(|freezer| freezer.freezer_file(group))
    }

    fn folders(&self, group: &str) -> Vec<PathBuf> {
        self.roots().into_iter().map(|root| root.join(group)).collect()
    }
}

/// Limits TCP buffers, which count separately and without a limit by default. Not every kernel has
/// the file.
fn limit_tcp(folder: &Path, memory: ByteSize) -> Result<()> {
    let file = folder.join("memory.kmem.tcp.limit_in_bytes");
    if file.exists() { write(file, tcp_memory(memory)) } else { Ok(()) }
}

/// The file through which one thread enters without waiting; only `cgroup.procs` makes it wait.
fn entry_file(folder: &Path) -> &'static str {
    if folder.join("tasks").exists() {
        "tasks"
    } else if is_threaded(folder) {
        "cgroup.threads"
    } else {
        "cgroup.procs"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "proc /proc proc rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0\n";

    #[test]
    fn finds_controllers_that_share_a_mount() {
        let found = Hierarchies::find(MOUNTS).unwrap();
        assert_eq!(found.cpu, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found.roots().len(), 3);
    }

    #[test]
    fn is_not_found_without_the_memory_controller() {
        assert_eq!(Hierarchies::find(&MOUNTS.replace(",memory", "")), None);
    }
}
