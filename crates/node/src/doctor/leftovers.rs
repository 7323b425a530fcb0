//! What crashed processes left: control groups and half-made packages.

use std::fs;
use std::path::Path;

use super::{Check, Status};

/// Where control groups of ours may be: each v1 controller's hierarchy, and v2.
const HIERARCHIES: [&str; 5] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/pids",
];

pub(super) fn check(state_dir: &Path) -> Check {
    let groups: usize = HIERARCHIES.iter().map(|one| abandoned(Path::new(one))).sum();
    let packages = snowmelt_package::interrupted(&state_dir.join("packages"));
    let (status, found) = match (groups, packages) {
        (0, 0) => (Status::Ok, "nothing".to_owned()),
        _ => (Status::Warn, format!("{groups} control groups, {packages} half-made packages")),
    };
    let mend = "snowmelt sql 'select 1' (each start clears it away)";
    Check::new("leftovers", status, found, "nothing of crashed processes", mend)
}

/// Our groups, named by the process that made them, whose process is gone.
fn abandoned(hierarchy: &Path) -> usize {
    let entries = fs::read_dir(hierarchy.join("snowmelt")).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter(|folder| folder.file_name().to_str().is_some_and(is_of_the_dead)).count()
}

/// Names are `<pid>-<time>`; a name of another form is not ours to judge.
fn is_of_the_dead(name: &str) -> bool {
    let pid = name.split('-').next().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_groups_of_dead_processes_only() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("snowmelt");
        let alive = format!("{}-17", std::process::id());
        // No process has this id: the kernel's highest is 4194304.
        for name in [alive.as_str(), "4194999-17", "something-else"] {
            fs::create_dir_all(ours.join(name)).unwrap();
        }
        fs::write(ours.join("cgroup.procs"), "").unwrap();
        assert_eq!(abandoned(folder.path()), 1);
    }
}
