//! The freezing of all processes of a group: by `cgroup.freeze` of version 2, which also works on a
//! bare hierarchy without controllers, or by the freezer of version 1.
//!
//! A process that enters a version 2 group waits until every processor has passed through the
//! kernel, 6 to 20 ms, unless it has one thread and moves between threaded groups below the same
//! parent: 20 to 70 us. So the groups are threaded, and the spawner, where all processes start, is
//! in one of them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::make;

/// The kernel's interface for freezing groups, with the folder where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Freezer {
    /// Version 2.
    Unified(PathBuf),
    /// Version 1. A process that is frozen by it dies only after it is thawed.
    Legacy(PathBuf),
}

/// The file that freezes and thaws one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreezerFile {
    pub file: PathBuf,
    pub frozen: String,
    pub thawed: String,
}

impl FreezerFile {
    /// The folder of the group, if it is one of version 2.
    pub fn unified_group(&self) -> Option<&Path> {
        self.file.ends_with("cgroup.freeze").then(|| self.file.parent()).flatten()
    }

    /// Thaws the group if it is frozen.
    pub fn release(&self) {
        // Read first: most groups are not frozen, and need no write.
        let now = fs::read_to_string(&self.file);
        if now.is_ok_and(|now| now.trim() != self.thawed) {
            // Fails only if the group is removed.
            drop(fs::write(&self.file, &self.thawed));
        }
    }
}

/// A freezer with its file kept open: resolving the path through six folders costs more than the
/// write.
#[derive(Debug, Default)]
pub(crate) struct OpenFreezerFile(OnceLock<File>);

impl OpenFreezerFile {
    /// Freezes every process of the group.
    pub fn freeze(&self, freezer_file: &FreezerFile) -> io::Result<()> {
        self.write(freezer_file, &freezer_file.frozen)
    }

    /// Thaws every process of the group.
    pub fn thaw(&self, freezer_file: &FreezerFile) -> io::Result<()> {
        self.write(freezer_file, &freezer_file.thawed)
    }

    fn write(&self, freezer_file: &FreezerFile, word: &str) -> io::Result<()> {
        let file = match self.0.get() {
            Some(file) => file,
            None => {
                let opened = File::options().write(true).open(&freezer_file.file)?;
                // Two callers may have opened it at the same time; one file is closed again.
                self.0.get_or_init(|| opened)
            }
        };
        file.write_at(word.as_bytes(), 0).map(drop)
    }
}

impl Freezer {
    /// Finds a freezer in the text of `/proc/self/mounts`, for a machine whose other controllers
    /// are of version 1.
    pub fn find(mounts: &str) -> Option<Self> {
        let of_kind = |wanted: fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let target = fields.next()?;
                let kind = fields.next()?;
                let options = fields.next()?;
                wanted(kind, options).then(|| PathBuf::from(target))
            })
        };
        // Version 2 first: a process that it has frozen can be killed.
        let unified = of_kind(|kind, _| kind == "cgroup2").filter(|root| can_freeze(root));
        unified.map(Self::Unified).or_else(|| {
            let legacy = of_kind(|kind, options| {
                kind == "cgroup" && options.split(',').any(|option| option == "freezer")
            });
            legacy.map(Self::Legacy)
        })
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        match self {
            Self::Unified(root) | Self::Legacy(root) => root,
        }
    }

    /// Lets processes of another group of this freezer enter a fresh group without waiting.
    pub fn enable_fast_entry(&self, group: &str) -> io::Result<()> {
        match self {
            Self::Unified(root) => fs::write(root.join(group).join("cgroup.type"), "threaded"),
            Self::Legacy(_) => Ok(()),
        }
    }

    /// Moves this process into a group of this freezer. Returns false where that is not possible.
    pub fn enter_spawner_group(&self, group: &str) -> bool {
        let Self::Unified(root) = self else { return false };
        let folder = root.join(group);
        let entered = make(&folder).is_ok()
            && self.enable_fast_entry(group).is_ok()
            && fs::write(folder.join("cgroup.procs"), "0").is_ok();
        // Half of the steps would leave this process in a group from which nothing is gained, and
        // that nobody removes.
        if !entered {
            self.leave_spawner_group();
            drop(fs::remove_dir(folder));
        }
        entered
    }

    /// Moves this process out of the spawner's group, so that the group can be removed.
    pub fn leave_spawner_group(&self) {
        if let Self::Unified(root) = self {
            // Fails only without permission, and then this process never entered the group.
            drop(fs::write(root.join("cgroup.procs"), "0"));
        }
    }

    /// The freezer of a group.
    pub fn freezer_file(&self, group: &str) -> FreezerFile {
        let words = |file: &str, frozen: &str, thawed: &str| FreezerFile {
            file: self.root().join(group).join(file),
            frozen: frozen.to_owned(),
            thawed: thawed.to_owned(),
        };
        match self {
            Self::Unified(_) => words("cgroup.freeze", "1", "0"),
            Self::Legacy(_) => words("freezer.state", "FROZEN", "THAWED"),
        }
    }
}

/// Whether a version 2 group is threaded.
pub(super) fn is_threaded(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.type")).is_ok_and(|kind| kind.trim() == "threaded")
}

/// Whether this process may make groups below `root`. Every group but the root has the file
/// `cgroup.procs`.
fn can_freeze(root: &Path) -> bool {
    rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok()
        && fs::metadata(root.join("cgroup.procs")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_freezer_of_version_1_where_there_is_no_other() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
            cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n";
        let found = Freezer::find(mounts).unwrap();
        assert_eq!(found, Freezer::Legacy("/sys/fs/cgroup/freezer".into()));
        let freezer_file = found.freezer_file("snowmelt/a/1");
        assert_eq!(
            freezer_file.file,
            Path::new("/sys/fs/cgroup/freezer/snowmelt/a/1/freezer.state")
        );
        assert_eq!(Freezer::find("cgroup /c/memory cgroup rw,memory 0 0\n"), None);
    }
}
