//! The checks of room: disk, inodes, shared memory, memory, open files.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use snowmelt_types::ByteSize;

use super::{Check, CheckStatus};

pub(super) fn checks(state_dir: &Path) -> Vec<Check> {
    let mut checks = disk(state_dir);
    checks.extend([shared_memory(), memory(), open_files()]);
    checks
}

/// Returns the nearest folder that exists at or above `path`, which may not have been made yet.
pub(super) fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|one| one.exists()).unwrap_or(Path::new("/"))
}

/// Grades a figure: below `least` the check fails, below `enough` it warns.
fn grade(found: u64, least: u64, enough: u64) -> CheckStatus {
    match found {
        few if few < least => CheckStatus::Fail,
        some if some < enough => CheckStatus::Warn,
        _ => CheckStatus::Ok,
    }
}

fn disk(state_dir: &Path) -> Vec<Check> {
    let folder = nearest(state_dir);
    let mend = format!("free some space under {}, or set SNOWMELT_STATE", folder.display());
    let found = match statvfs(folder) {
        Ok(found) => found,
        Err(error) => {
            let found = format!("{}: {error}", folder.display());
            return vec![Check::new("disk", CheckStatus::Fail, found, "at least 5 GiB free", mend)];
        }
    };
    let free = ByteSize(found.f_bavail.saturating_mul(found.f_frsize));
    let status = grade(free.bytes(), 1 << 30, 5 << 30);
    let shown = format!("{free} free at {}", folder.display());
    let mut checks = vec![Check::new("disk", status, shown, "at least 5 GiB free", mend.clone())];
    // File systems that make inodes as they need them (btrfs) say that they have none.
    if found.f_files > 0 {
        let status = grade(found.f_favail, 20_000, 200_000);
        let shown = format!("{} free", found.f_favail);
        checks.push(Check::new("inodes", status, shown, "at least 200000 free", mend));
    }
    checks
}

fn shared_memory() -> Check {
    const FOLDER: &str = "/dev/shm";
    let needed = "64 MiB free in /dev/shm";
    let mend = "mount -t tmpfs -o size=25% tmpfs /dev/shm";
    match statvfs(FOLDER) {
        Ok(found) => {
            let free = ByteSize(found.f_bavail.saturating_mul(found.f_frsize));
            let status = if free < ByteSize::mib(64) { CheckStatus::Warn } else { CheckStatus::Ok };
            Check::new("shared memory", status, format!("{free} free"), needed, mend)
        }
        Err(error) => {
            Check::new("shared memory", CheckStatus::Warn, error.to_string(), needed, mend)
        }
    }
}

fn memory() -> Check {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let (status, found) = match available {
        Some(bytes) => (grade(bytes.bytes(), 512 << 20, 2 << 30), format!("{bytes} available")),
        None => (CheckStatus::Warn, "/proc/meminfo does not say".to_owned()),
    };
    let mend = "end what uses much memory, or lower --memory and --workers";
    Check::new("memory", status, found, "at least 2 GiB available", mend)
}

fn available(meminfo: &str) -> Option<ByteSize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(ByteSize(kibibytes << 10))
}

fn open_files() -> Check {
    // A server raises its soft limit to this one.
    let limit = getrlimit(Resource::Nofile).maximum;
    // `None` means unlimited.
    let status = limit.map_or(CheckStatus::Ok, |limit| grade(limit, 256, 1024));
    let found = limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    Check::new("open files", status, found, "at least 1024", "ulimit -n 65536")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_graded_by_two_limits() {
        assert_eq!(
            [9, 10, 99, 100].map(|found| grade(found, 10, 100)),
            [CheckStatus::Fail, CheckStatus::Warn, CheckStatus::Warn, CheckStatus::Ok]
        );
    }

    #[test]
    fn reads_what_is_available() {
        let text = "MemTotal: 9 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available(text), Some(ByteSize::mib(2)));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn inspects_the_nearest_existing_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nearest(&folder.path().join("not/yet")), folder.path());
    }
}
