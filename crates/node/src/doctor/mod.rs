//! `snowmelt doctor`: what this machine has of what the platform needs.
//!
//! Invariant: a check tries the thing itself where that is cheap, changes nothing that stays, and
//! never fails: what it cannot find out is a row that says so.

mod clock;
mod kernel;
mod leftovers;
mod network;
mod resources;
mod tools;

use std::path::Path;

use serde::{Deserialize, Serialize};
use snowmelt_image::mount::Choice;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// There is what is needed.
    Ok,
    /// The platform works, but something is missing, slow or soon used up.
    Warn,
    /// Queries or functions will not work.
    Fail,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it went.
    pub status: Status,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub needed: String,
    /// The command that mends it, or the advice where no command can. Only with a bad status.
    pub mend: Option<String>,
}

impl Check {
    /// A row whose mend is dropped if there is nothing to mend.
    fn new(
        name: &str,
        status: Status,
        found: impl Into<String>,
        needed: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let mend = (status != Status::Ok).then(|| mend.into());
        Self { name: name.to_owned(), status, found: found.into(), needed: needed.into(), mend }
    }
}

/// Checks everything; some 100 ms. `state_dir` need not exist. `mount` is how images are to be
/// mounted, `python` the interpreter that the settings name.
pub fn run(state_dir: &Path, mount: Choice, python: Option<&Path>) -> Vec<Check> {
    let mut checks = kernel::checks(mount);
    checks.extend(network::checks());
    checks.extend(resources::checks(state_dir));
    checks.extend(tools::checks(state_dir, python));
    checks.push(clock::check());
    checks.push(leftovers::check(state_dir));
    checks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_finding_and_failed_ones_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let checks = run(&state, Choice::Auto, None);
        let names: BTreeSet<_> = checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names.len(), checks.len(), "two rows of one name");
        for name in ["kernel", "control groups", "namespaces", "disk", "Python", "uv", "clock"] {
            assert!(names.contains(name), "{name}");
        }
        for check in &checks {
            assert!(!check.found.is_empty() && !check.needed.is_empty(), "{check:?}");
            assert_eq!(check.mend.is_some(), check.status != Status::Ok, "{check:?}");
        }
        assert!(!state.exists(), "looking must not make anything");
    }
}
