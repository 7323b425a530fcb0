//! The check for leftovers of crashed processes: control groups and half-made packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Check, CheckStatus};

/// The folders in which control groups of the platform may be: each v1 controller's hierarchy, and
/// v2.
const HIERARCHIES: [&str; 5] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/pids",
];

/// The folder, in each hierarchy, of all control groups of all platforms on the machine.
const GROUPS: &str = "snowmelt";

/// The name of the file in a process's run folder that holds the parent of its control groups.
const CGROUP_FILE: &str = "cgroup";

/// How many levels of folders below a process's own group are searched for processes.
const DEEPEST: usize = 3;

pub(super) fn check(state_dir: &Path, run_dir: &Path) -> Check {
    let hierarchies = HIERARCHIES.map(PathBuf::from);
    let dead: BTreeSet<String> = hierarchies.iter().flat_map(|one| abandoned(one)).collect();
    let own = named_in(run_dir);
    let (own, others): (Vec<_>, Vec<_>) = dead.into_iter().partition(|name| own.contains(name));
    let packages = snowmelt_package::interrupted(&state_dir.join("packages"));
    row(own.len(), &others, packages)
}

fn row(own: usize, others: &[String], packages: usize) -> Check {
    let status =
        if own + others.len() + packages == 0 { CheckStatus::Ok } else { CheckStatus::Warn };
    let found = match (own, others.len(), packages) {
        (0, 0, 0) => "nothing".to_owned(),
        (_, 0, _) => format!("control groups of {own} processes, {packages} half-made packages"),
        (_, more, _) => format!(
            "control groups of {own} processes, {packages} half-made packages, and control groups \
             of {more} processes of other platforms, with another run folder"
        ),
    };
    // A start clears only what its own run folder names.
    let mend = match others {
        [] => "snowmelt sql 'select 1' (each start clears it away)".to_owned(),
        others => format!(
            "for g in {}; do find /sys/fs/cgroup -depth -type d \\( -path \"*/{GROUPS}/$g\" -o -path \
             \"*/{GROUPS}/$g/*\" \\) -exec rmdir {{}} +; done",
            others.join(" ")
        ),
    };
    Check::new("leftovers", status, found, "nothing of crashed processes", mend)
}

/// Returns the control groups that the run folders of this platform name, by their last name.
fn named_in(run_dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(run_dir).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| fs::read_to_string(entry.path().join(CGROUP_FILE)).ok());
    named.filter_map(|parent| Some(parent.trim().rsplit('/').next()?.to_owned())).collect()
}

/// Returns the platform's control groups whose process is gone, by their name, which holds the
/// process's id. A group with processes in it is left out: a platform in another pid namespace made
/// it, in which the id means something else.
fn abandoned(hierarchy: &Path) -> Vec<String> {
    let entries = fs::read_dir(hierarchy.join(GROUPS)).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let dead = folders.filter(|folder| !has_processes(&folder.path(), DEEPEST));
    let names = dead.filter_map(|folder| folder.file_name().into_string().ok());
    names.filter(|name| is_of_the_dead(name)).collect()
}

fn has_processes(group: &Path, deepest: usize) -> bool {
    if fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|all| !all.trim().is_empty()) {
        return true;
    }
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let mut folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    deepest > 0 && folders.any(|folder| has_processes(&folder.path(), deepest - 1))
}

/// Returns whether the process that a group's name holds is gone. Names are `<pid>-<time>`; a name
/// of another form is not ours to judge.
fn is_of_the_dead(name: &str) -> bool {
    let pid = name.split('-').next().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_groups_of_dead_processes_only() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join(GROUPS);
        let alive = format!("{}-17", std::process::id());
        // No process has these ids: the kernel's highest is 4194304.
        for name in [alive.as_str(), "4194999-17", "4194998-17/0-spawner", "something-else"] {
            fs::create_dir_all(ours.join(name)).unwrap();
        }
        fs::write(ours.join("cgroup.procs"), "").unwrap();
        // A process of another pid namespace is shown as 0.
        fs::write(ours.join("4194998-17/0-spawner/cgroup.procs"), "0\n").unwrap();
        assert_eq!(abandoned(folder.path()), ["4194999-17"]);
    }

    #[test]
    fn groups_of_another_platform_have_a_mend_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("server")).unwrap();
        fs::write(folder.path().join("server/cgroup"), "snowmelt/7-1\n").unwrap();
        assert_eq!(named_in(folder.path()).into_iter().collect::<Vec<_>>(), ["7-1"]);
        let own = row(1, &[], 0);
        assert!(own.mend.unwrap().contains("select 1") && own.status == CheckStatus::Warn);
        let other = row(0, &["7-1".to_owned(), "8-1".to_owned()], 0);
        assert!(other.found.contains("2 processes of other platforms"), "{other:?}");
        assert!(other.mend.unwrap().starts_with("for g in 7-1 8-1; do find /sys/fs/cgroup -depth"));
        assert_eq!(row(0, &[], 0).status, CheckStatus::Ok);
    }
}
