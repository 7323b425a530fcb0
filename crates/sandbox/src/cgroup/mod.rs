//! Control groups: one for each sandbox, in version 1 or 2 of the kernel's interface, or none where
//! an ordinary user runs the platform.
//!
//! Invariant: a group is removed only when it is empty, and its counts are read before.

mod freezer;
mod leftovers;
mod meters;
mod pool;
mod total;
mod unmanaged;
mod v1;
mod v2;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use snowmelt_kernel::rootless;
use snowmelt_types::ByteSize;

use crate::spec::Limits;
use crate::times::{GROUP_BUSY_PAUSE, KILL_PAUSE};
use crate::{Error, Result};

use freezer::is_threaded;
pub(crate) use freezer::{Freezer, FreezerFile, OpenFreezerFile};
use meters::Meters;
pub(crate) use pool::{GroupPool, SandboxGroup};
use unmanaged::Unmanaged;

/// The period of the CPU quota, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The kernel's counts for a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupUsage {
    /// Processes killed because of the memory limit.
    pub oom_kills: u64,
    /// Forks refused because of the pids limit.
    pub forks_refused: u64,
    /// The time for which the processes were throttled by their CPU limit, in microseconds.
    pub throttled_us: u64,
    /// The peak memory. `None` where the kernel does not report it.
    pub memory_peak: Option<ByteSize>,
    /// The CPU time in microseconds. `None` where the group does not count it.
    pub cpu_us: Option<u64>,
}

/// A version of the kernel's interface for control groups. Groups are named by their path below the
/// hierarchy, as `snowmelt/<instance>/<sandbox>`.
pub(crate) trait Backend {
    /// Makes the parent of all groups of this process.
    fn prepare(&self, parent: &str) -> Result<()>;
    /// Sets the limits of all groups below `parent` together.
    fn set_total_limits(
        &self,
        parent: &str,
        memory: Option<ByteSize>,
        processes: Option<u32>,
    ) -> Result<()>;
    /// Makes a group.
    fn create(&self, group: &str) -> Result<()>;
    /// Moves this process into a group from which its children can enter other groups without
    /// waiting. Returns false where there is no such gain.
    fn enter_spawner_group(&self, _group: &str) -> bool {
        false
    }
    /// Undoes [`Self::enter_spawner_group`], so that the group can be removed.
    fn leave_spawner_group(&self) {}
    /// Lets a fresh group be entered without waiting; see [`Self::enter_spawner_group`].
    fn enable_fast_entry(&self, _group: &str) -> Result<()> {
        Ok(())
    }
    /// Sets the limits of a group.
    fn set_limits(&self, group: &str, limits: &Limits) -> Result<()>;
    /// Resets an empty group for reuse. Returns false if it must be removed instead.
    fn reset(&self, group: &str, meters: &mut Meters) -> bool;
    /// Opens the files into which a process with one thread writes `0` to enter the group. There
    /// are none where the process starts in the group or is moved there. A process that moves
    /// itself does not wait; moving another one waits for every processor to pass through the
    /// kernel, 10 ms under load.
    fn entry_fds(&self, group: &str) -> Result<Vec<OwnedFd>>;
    /// Ensures that a process is in the group.
    fn ensure_member(&self, group: &str, pid: i32) -> Result<()>;
    /// The group in which clone3 starts the process, where the kernel supports that.
    fn clone_target(&self, group: &str) -> Result<Option<OwnedFd>>;
    /// Reads the kernel's counts for a group.
    fn usage(&self, group: &str, meters: &mut Meters) -> GroupUsage;
    /// The file with the peak memory.
    fn memory_peak_file(&self, group: &str) -> Option<PathBuf>;
    /// The file with the current memory.
    fn memory_file(&self, group: &str) -> Option<PathBuf>;
    /// The file with the time for which the group was throttled by its CPU limit, the key in it,
    /// and its unit. `None` where nothing is throttled.
    fn throttled_file(&self, group: &str) -> Option<ThrottledFile>;
    /// Whether the lane has to look at the memory of sandboxes, because the kernel does not limit it.
    fn is_watched(&self) -> bool {
        false
    }
    /// Forgets what was counted for a group that is given up.
    fn forget(&self, _group: &str) {}
    /// Counts what the lane has seen of the memory of a sandbox, and whether it ends the sandbox for
    /// it.
    fn count_memory(&self, _group: &str, _used: ByteSize, _is_over: bool) {}
    /// The name of the file with the memory limit.
    #[cfg(test)]
    fn memory_limit_file(&self) -> &'static str;
    /// The freezer of the group, where the kernel has one.
    fn freezer_file(&self, group: &str) -> Option<FreezerFile>;
    /// The folders of this group, one for each hierarchy.
    fn folders(&self, group: &str) -> Vec<PathBuf>;
}

/// The file in which the kernel counts how long a group was throttled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThrottledFile {
    path: PathBuf,
    /// The key, in lines of keys and numbers.
    name: String,
    /// The unit in nanoseconds.
    nanoseconds: u64,
}

impl ThrottledFile {
    pub fn new(path: PathBuf, name: &str, nanoseconds: u64) -> Self {
        Self { path, name: name.to_owned(), nanoseconds }
    }

    /// Reads the time for which the group was throttled since it was made. `None` where the kernel
    /// does not count it.
    pub fn read(&self) -> Option<Duration> {
        // Short, and returned whole by one read.
        let mut buffer = [0; 1024];
        let length = File::open(&self.path).ok()?.read(&mut buffer).ok()?;
        let text = str::from_utf8(&buffer[..length]).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(&*self.name))?;
        let value: u64 = value.trim().parse().ok()?;
        Some(Duration::from_nanos(value.saturating_mul(self.nanoseconds)))
    }
}

/// Returns the backend for this machine. Version 2 has precedence over version 1.
pub(crate) fn detect() -> Result<Box<dyn Backend>> {
    if rootless::entered().is_some() {
        return Ok(Box::new(Unmanaged::default()));
    }
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(|source| Error::Cgroup { path: "/proc/self/mounts".into(), source })?;
    // On a hybrid machine version 2 is mounted without the controllers; `find` refuses it then.
    if let Some(backend) = v2::Hierarchy::find(&mounts) {
        return Ok(Box::new(backend));
    }
    match v1::Hierarchies::find(&mounts) {
        Some(backend) => Ok(Box::new(backend)),
        None => Err(Error::Unsupported {
            reason: "no control group hierarchy with the controllers memory, cpu and pids".into(),
        }),
    }
}

/// The folder of a control group in the version 2 hierarchy, whatever controllers it has; `None`
/// where the kernel has no such hierarchy, or the group does not exist.
pub fn unified_group(group: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut lines = mounts.lines().map(|line| line.split(' ').skip(1));
    let root = lines.find_map(|mut fields| {
        let target = fields.next()?;
        let kind = fields.next()?;
        (kind == "cgroup2").then(|| PathBuf::from(target))
    });
    root.map(|root| root.join(group)).filter(|folder| folder.is_dir())
}

/// The description of the control groups for [`crate::probe`].
pub(crate) fn describe() -> std::result::Result<&'static str, String> {
    if rootless::entered().is_some() {
        return Err("none that this user may make".to_owned());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    if v2::Hierarchy::find(&mounts).is_some() {
        return Ok("version 2 with memory, cpu and pids");
    }
    match v1::Hierarchies::find(&mounts) {
        Some(_) => Ok("version 1 with memory, cpu and pids"),
        None => Err("no hierarchy with memory, cpu and pids".to_owned()),
    }
}

/// Removes a group if it is empty, without waiting. Returns true if it is gone.
fn remove_now(backend: &dyn Backend, group: &str) -> bool {
    let gone = |folder: &PathBuf| match fs::remove_dir(folder) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    };
    // Try every folder, even if one fails.
    backend.folders(group).iter().filter(|folder| !gone(folder)).count() == 0
}

/// Removes the folder of a group. Retries, because a dead process leaves its group only a moment
/// after it was reaped.
fn remove_folder(folder: &Path) -> Result<()> {
    const ATTEMPTS: u32 = 100;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                thread::sleep(GROUP_BUSY_PAUSE);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::Cgroup { path: folder.to_owned(), source: error });
            }
            _ => return Ok(()),
        }
    }
    let source = io::ErrorKind::ResourceBusy.into();
    Err(Error::Cgroup { path: folder.to_owned(), source })
}

/// The prefix of the names of a lane's groups.
fn prefix(lane: u32) -> String {
    format!("{lane}-")
}

/// Kills all processes in the groups of one lane below `parent`, and removes the groups.
pub(crate) fn remove_lane(backend: &dyn Backend, parent: &str, lane: u32) -> Result<()> {
    remove_below(backend, parent, &prefix(lane))
}

/// Kills all processes in the groups below `parent` and removes the groups, the parent, and empty
/// groups above it. Ignores a parent outside `snowmelt/`.
pub(crate) fn remove_tree(backend: &dyn Backend, parent: &str) -> Result<()> {
    remove_below(backend, parent, "")?;
    folders_of(backend, parent).iter().try_for_each(|folder| {
        remove_folder(folder)?;
        remove_above(folder);
        Ok(())
    })
}

/// Removes `parent`, and empty groups above it, if there is no group below it. Returns true if it
/// is gone.
pub(crate) fn remove_if_empty(backend: &dyn Backend, parent: &str) -> bool {
    let gone = |folder: &PathBuf| match fs::remove_dir(folder) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => {
            remove_above(folder);
            true
        }
    };
    folders_of(backend, parent).iter().all(gone)
}

fn remove_below(backend: &dyn Backend, parent: &str, prefix: &str) -> Result<()> {
    let named = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(prefix.as_bytes())
    };
    for folder in folders_of(backend, parent) {
        for child in subfolders(&folder).into_iter().filter(named) {
            kill_all(&child);
            remove_folder(&child)?;
        }
    }
    Ok(())
}

/// The folders of a parent of groups; empty for one outside `snowmelt/`.
fn folders_of(backend: &dyn Backend, parent: &str) -> Vec<PathBuf> {
    let path = Path::new(parent);
    let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let ours = plain && path.starts_with("snowmelt") && path.components().count() >= 2;
    if ours { backend.folders(parent) } else { Vec::new() }
}

/// Removes the folder above. This fails with EBUSY while another process of Snowmelt has groups in
/// it.
fn remove_above(folder: &Path) {
    if let Some(above) = folder.parent() {
        // The kernel itself decides whether the folder is empty; a look before would race with
        // other processes.
        drop(fs::remove_dir(above));
    }
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Kills the processes of a group until it is empty: a process may fork while the list is read.
fn kill_all(folder: &Path) {
    const ATTEMPTS: u32 = 200;
    for _ in 0..ATTEMPTS {
        // Read again after each round: only an empty list shows that no fork was missed.
        if kill_once(folder).is_empty() {
            return;
        }
        thread::sleep(KILL_PAUSE);
    }
}

/// Kills the processes that are in the group now, and returns them.
fn kill_once(folder: &Path) -> Vec<i32> {
    // A threaded group lists only threads; the thread group leaders are the processes.
    let list = |file: &str| fs::read_to_string(folder.join(file));
    let listed = list("cgroup.procs").or_else(|_| list("cgroup.threads")).unwrap_or_default();
    let pids: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    // Kills atomically, including concurrent forks; absent in version 1 and in threaded groups.
    if !pids.is_empty() && fs::write(folder.join("cgroup.kill"), "1").is_err() {
        for pid in pids.iter().copied().filter_map(Pid::from_raw) {
            // By a pidfd, because the number may be of another process by the time of the signal.
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                // It may have ended in between.
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
        }
    }
    // A process frozen by version 1 dies only after it is thawed.
    let frozen = folder.join("freezer.state");
    if frozen.exists() {
        drop(fs::write(frozen, "THAWED"));
    }
    pids
}

fn write(path: PathBuf, value: impl ToString) -> Result<()> {
    fs::write(&path, value.to_string()).map_err(|source| Error::Cgroup { path, source })
}

fn make(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        // Several processes of Snowmelt share the folders above their groups.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::Cgroup { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Makes the folders of `parent` below `root`, and calls `each` for every one. Another process of
/// Snowmelt that ends may remove the folder above concurrently; then it is made again.
fn make_parents(root: &Path, parent: &str, each: impl Fn(&Path) -> Result<()>) -> Result<()> {
    const ATTEMPTS: u32 = 20;
    let descend = || {
        let mut folder = root.to_owned();
        Path::new(parent).iter().try_for_each(|part| {
            folder.push(part);
            make(&folder)?;
            each(&folder)
        })
    };
    for _ in 1..ATTEMPTS {
        match descend() {
            Err(Error::Cgroup { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
    descend()
}

/// The limit of a group's TCP buffers, where the kernel counts them separately (version 1): a
/// quarter of its memory limit.
fn tcp_memory(memory: ByteSize) -> u64 {
    memory.bytes() / 4
}

/// The CPU weight under contention: 1024 per core.
fn cpu_shares(limits: &Limits) -> u64 {
    (u64::from(limits.cpu.0) * 1024 / 1000).max(2)
}

/// Microseconds of CPU time in each period of [`CPU_PERIOD_US`].
fn cpu_quota_us(limits: &Limits) -> u64 {
    u64::from(limits.cpu.0) * CPU_PERIOD_US / 1000
}
