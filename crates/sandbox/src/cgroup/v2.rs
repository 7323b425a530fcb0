//! Control groups, version 2: one hierarchy for all controllers.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use snowmelt_types::ByteSize;

use super::{
    Backend, CPU_PERIOD_US, Freezer, FreezerFile, GroupUsage, Meters, ThrottledFile, cpu_quota_us,
    cpu_shares, make, make_parents, write,
};
use crate::spec::Limits;
use crate::{Error, Result};

const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The mount point of the hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    root: PathBuf,
}

impl Hierarchy {
    /// Finds the hierarchy in the text of `/proc/self/mounts`, if it has the required controllers.
    pub fn find(mounts: &str) -> Option<Self> {
        let target = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let target = fields.next()?;
            let kind = fields.next()?;
            (kind == "cgroup2").then(|| PathBuf::from(target))
        })?;
        Self::at(target)
    }

    /// The hierarchy at `root`, if it has the required controllers.
    pub fn at(root: PathBuf) -> Option<Self> {
        let text = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        let has = |controller: &&str| text.split_whitespace().any(|name| name == *controller);
        CONTROLLERS.iter().all(has).then_some(Self { root })
    }
}

impl Backend for Hierarchy {
    fn prepare(&self, parent: &str) -> Result<()> {
        let enable =
            |folder: &Path| write(folder.join("cgroup.subtree_control"), "+memory +cpu +pids");
        enable(&self.root)?;
        make_parents(&self.root, parent, enable)
    }

    fn set_total_limits(
        &self,
        parent: &str,
        memory: Option<ByteSize>,
        processes: Option<u32>,
    ) -> Result<()> {
        let folder = self.root.join(parent);
        if let Some(most) = memory {
            write(folder.join("memory.max"), most.bytes())?;
        }
        processes.map_or(Ok(()), |most| write(folder.join("pids.max"), most))
    }

    fn create(&self, group: &str) -> Result<()> {
        make(&self.root.join(group))
    }

    fn set_limits(&self, group: &str, limits: &Limits) -> Result<()> {
        let folder = self.root.join(group);
        write(folder.join("memory.max"), limits.memory.bytes())?;
        if folder.join("memory.swap.max").exists() {
            write(folder.join("memory.swap.max"), 0)?;
        }
        // A sandbox that lost one process to the memory limit is unusable, so all are killed.
        write(folder.join("memory.oom.group"), 1)?;
        write(folder.join("cpu.max"), format!("{} {CPU_PERIOD_US}", cpu_quota_us(limits)))?;
        // The kernel's default weight, for one core, is 100.
        let weight = (cpu_shares(limits) * 100 / 1024).clamp(1, 10_000);
        write(folder.join("cpu.weight"), weight)?;
        write(folder.join("pids.max"), limits.pids)
    }

    /// Never resets a group: its peak memory cannot be reset, and a fresh group costs little.
    fn reset(&self, _group: &str, _meters: &mut Meters) -> bool {
        false
    }

    fn entry_fds(&self, _group: &str) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn ensure_member(&self, group: &str, pid: i32) -> Result<()> {
        write(self.root.join(group).join("cgroup.procs"), pid)
    }

    fn clone_target(&self, group: &str) -> Result<Option<OwnedFd>> {
        let path = self.root.join(group);
        let folder = File::open(&path).map_err(|source| Error::Cgroup { path, source })?;
        Ok(Some(folder.into()))
    }

    fn usage(&self, group: &str, meters: &mut Meters) -> GroupUsage {
        let folder = self.root.join(group);
        let mut count = |file, key| meters.count(&folder, file, key);
        GroupUsage {
            oom_kills: count("memory.events", "oom_kill").unwrap_or(0),
            forks_refused: count("pids.events", "max").unwrap_or(0),
            throttled_us: count("cpu.stat", "throttled_usec").unwrap_or(0),
            cpu_us: count("cpu.stat", "usage_usec"),
            memory_peak: meters.number(&folder, "memory.peak").map(ByteSize),
        }
    }

    fn memory_peak_file(&self, group: &str) -> Option<PathBuf> {
        Some(self.root.join(group).join("memory.peak"))
    }

    fn memory_file(&self, group: &str) -> Option<PathBuf> {
        Some(self.root.join(group).join("memory.current"))
    }

    fn throttled_file(&self, group: &str) -> Option<ThrottledFile> {
        Some(ThrottledFile::new(self.root.join(group).join("cpu.stat"), "throttled_usec ", 1000))
    }

    #[cfg(test)]
    fn memory_limit_file(&self) -> &'static str {
        "memory.max"
    }

    fn freezer_file(&self, group: &str) -> Option<FreezerFile> {
        Some(Freezer::Unified(self.root.clone()).freezer_file(group))
    }

    fn folders(&self, group: &str) -> Vec<PathBuf> {
        vec![self.root.join(group)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmelt_types::CpuMillis;

    fn fake() -> (tempfile::TempDir, Hierarchy) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        let hierarchy = Hierarchy::at(folder.path().to_owned()).unwrap();
        (folder, hierarchy)
    }

    #[test]
    fn a_hierarchy_without_controllers_is_not_usable() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "").unwrap();
        assert_eq!(Hierarchy::at(folder.path().to_owned()), None);
    }

    #[test]
    fn writes_limits_in_the_kernels_format() {
        let (folder, hierarchy) = fake();
        hierarchy.prepare("snowmelt/one").unwrap();
        let group = folder.path().join("snowmelt/one/s");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("memory.swap.max"), "max").unwrap();
        let limits = Limits {
            memory: ByteSize::mib(256),
            cpu: CpuMillis(1500),
            pids: 9,
            ..Limits::default()
        };
        hierarchy.create("snowmelt/one/s").unwrap();
        hierarchy.set_limits("snowmelt/one/s", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(read("memory.max"), "268435456");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("cpu.weight"), "150");
        assert_eq!(read("pids.max"), "9");
        hierarchy.set_total_limits("snowmelt/one", Some(ByteSize(7 << 30)), Some(9000)).unwrap();
        let all = |file: &str| fs::read_to_string(folder.path().join("snowmelt/one").join(file));
        assert_eq!(all("memory.max").unwrap(), (7_u64 << 30).to_string());
        assert_eq!(all("pids.max").unwrap(), "9000");
        let above = folder.path().join("snowmelt/cgroup.subtree_control");
        assert_eq!(fs::read_to_string(above).unwrap(), "+memory +cpu +pids");
    }

    #[test]
    fn reads_the_kernels_counts() {
        let (folder, hierarchy) = fake();
        let group = folder.path().join("g");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("memory.events"), "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
            .unwrap();
        fs::write(group.join("pids.events"), "max 3\n").unwrap();
        fs::write(group.join("memory.peak"), "4096\n").unwrap();
        fs::write(group.join("cpu.stat"), "usage_usec 77\nuser_usec 70\nthrottled_usec 9\n")
            .unwrap();
        let expected = GroupUsage {
            oom_kills: 2,
            forks_refused: 3,
            throttled_us: 9,
            memory_peak: Some(ByteSize(4096)),
            cpu_us: Some(77),
        };
        assert_eq!(hierarchy.usage("g", &mut Meters::default()), expected);
    }
}
