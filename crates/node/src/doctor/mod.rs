//! `snowmelt doctor`: compares what this machine has with what the platform needs.
//!
//! Invariant: a check tries the thing itself where that is cheap, changes nothing that stays, and
//! never fails: what it cannot find out is a row that says so.

mod clock;
mod kernel;
mod leftovers;
mod network;
mod resources;
mod rootless;
mod tools;

use std::path::Path;

use serde::{Deserialize, Serialize};
use snowmelt_image::mount::MountChoice;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStatus {
    /// The machine has what is needed.
    Ok,
    /// The platform works, but something is missing, slow or soon used up.
    Warn,
    /// Queries or functions will not work.
    Fail,
}

/// The result of one check of the machine: a row of the table that `snowmelt doctor` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The name of the thing that was checked.
    pub name: String,
    /// The result of the check.
    pub status: CheckStatus,
    /// The state that the check found, for people to read.
    pub found: String,
    /// The state that the platform needs.
    pub needed: String,
    /// The command that mends the state, or advice where no command can; `None` where the status is
    /// good.
    pub mend: Option<String>,
}

impl Check {
    /// Makes a row; `mend` is dropped if there is nothing to mend.
    fn new(
        name: &str,
        status: CheckStatus,
        found: impl Into<String>,
        needed: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let mend = (status != CheckStatus::Ok).then(|| mend.into());
        Self { name: name.to_owned(), status, found: found.into(), needed: needed.into(), mend }
    }

    /// Returns the row as far as the user can judge it: without root or a user namespace, a failure
    /// of a check that needs one is a warning.
    fn seen(self, has_rights: bool) -> Self {
        let is_true = has_rights || self.status == CheckStatus::Ok;
        if is_true || !SEEN_BY_ROOT.contains(&self.name.as_str()) {
            return self;
        }
        let found = "cannot see without root";
        let mend = "sudo snowmelt doctor";
        Self { status: CheckStatus::Warn, found: found.into(), mend: Some(mend.into()), ..self }
    }
}

/// The names of the checks that only root can make: without root's rights a failure says nothing
/// about the machine, and the advice to mend it would be wrong.
const SEEN_BY_ROOT: [&str; 15] = [
    "EROFS",
    "FUSE",
    "VXLAN",
    "addresses",
    "bridge",
    "control groups",
    "lazy images",
    "leftovers",
    "mount API",
    "namespaces",
    "network namespaces",
    "nftables",
    "overlayfs",
    "state folder",
    "veth",
];

/// Makes all checks, which takes some 100 ms. The folders need not exist. `mount` is how images are
/// to be mounted, `python` the interpreter that the settings name, `server` the user that a server of
/// root becomes.
pub fn run(
    state_dir: &Path,
    run_dir: &Path,
    mount: MountChoice,
    python: Option<&Path>,
    server: Option<u32>,
) -> Vec<Check> {
    let entered = rootless::enter();
    let mut checks = kernel::checks(mount);
    checks.extend(network::checks());
    checks.extend(resources::checks(state_dir));
    checks.extend(tools::checks(state_dir, python, server));
    checks.push(clock::check());
    checks.push(leftovers::check(state_dir, run_dir));
    let Some(entered) = entered else { return checks };
    // Without a namespace, what the kernel refuses says nothing about the machine.
    let is_entered = entered.is_ok();
    let checks = checks.into_iter().map(|check| check.seen(is_entered));
    let checks = checks.filter_map(rootless::of_user);
    rootless::checks(&entered).into_iter().chain(checks).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_finding_and_failed_ones_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let run_dir = folder.path().join("run");
        let checks = run(&state, &run_dir, MountChoice::Auto, None, None);
        let names: BTreeSet<_> = checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names.len(), checks.len(), "two rows of one name");
        for name in ["kernel", "control groups", "namespaces", "disk", "Python", "uv", "clock"] {
            assert!(names.contains(name), "{name}");
        }
        for check in &checks {
            assert!(!check.found.is_empty() && !check.needed.is_empty(), "{check:?}");
            assert_eq!(check.mend.is_some(), check.status != CheckStatus::Ok, "{check:?}");
        }
        assert!(!state.exists(), "looking must not make anything");
    }

    #[test]
    fn what_only_root_can_see_is_not_judged_without_root() {
        let denied = || {
            let mend = "sysctl -w user.max_user_namespaces=15000";
            let found = "Operation not permitted (os error 1)";
            Check::new("namespaces", CheckStatus::Fail, found, "user and pid", mend)
        };
        assert_eq!(denied().seen(true), denied());
        let row = denied().seen(false);
        assert_eq!((row.status, &*row.found), (CheckStatus::Warn, "cannot see without root"));
        assert_eq!(row.mend.as_deref(), Some("sudo snowmelt doctor"));
        // What is seen, and what needs no rights to be seen, stays.
        let there =
            || Check::new("namespaces", CheckStatus::Ok, "user and pid", "user and pid", "");
        let python =
            || Check::new("Python", CheckStatus::Fail, "none", "3.10", "apt-get install python3");
        assert_eq!((there().seen(false), python().seen(false)), (there(), python()));
    }
}
