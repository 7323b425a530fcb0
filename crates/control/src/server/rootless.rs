//! A platform that an ordinary user runs: the user namespace that it enters, and what needs root.
//!
//! Invariant: such a platform serves its own user only. Every other user of the machine, root
//! included, has the same number in its user namespace.

use std::path::Path;

use rustix::process::geteuid;
use snowmelt_kernel::rootless;
use snowmelt_types::{Code, ErrorReport, Report};

use super::ServerSettings;

/// Enters a user namespace unless this process is root. Must be called before any thread is started.
///
/// # Errors
/// `SM-0530` if the kernel refuses the namespace, with the setting that does, or if the settings
/// need root.
pub(super) fn enter(settings: &ServerSettings) -> Result<(), ErrorReport> {
    if geteuid().is_root() {
        return Ok(());
    }
    let user = geteuid().as_raw();
    check(settings, user)?;
    let failed = |source| snowmelt_sandbox::Error::Rootless { user, source }.report();
    rootless::enter().map(|_| ()).map_err(failed)
}

fn check(settings: &ServerSettings, user: u32) -> Result<(), ErrorReport> {
    let needs_root = |what: &str, hint: &str| {
        let message = format!("user {user} cannot {what}: that needs root");
        Err(ErrorReport::new(Code::ROOTLESS, message).hint(hint))
    };
    if settings.cluster.is_some() {
        return needs_root(
            "run a host of a cluster",
            "start the server as root, without --listen here",
        );
    }
    if settings.group.is_some() && !settings.private {
        return needs_root(
            "serve the members of a group",
            "start the server as root, or leave out server.group: each user can run an own server",
        );
    }
    check_owner(&settings.state_dir, user)?;
    check_owner(&settings.run_base, user)
}

/// Refuses a folder of another user, who could put code there that this platform runs.
fn check_owner(folder: &Path, user: u32) -> Result<(), ErrorReport> {
    use std::os::unix::fs::MetadataExt;

    let owner = folder.metadata().map(|found| found.uid());
    match owner {
        Ok(owner) if owner != user => {
            let message =
                format!("{} belongs to user {owner} and not to user {user}", folder.display());
            Err(ErrorReport::new(Code::STATE, message)
                .hint("choose other folders with SNOWMELT_STATE and SNOWMELT_RUN"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = geteuid().as_raw();
        check_owner(folder.path(), own).unwrap();
        check_owner(&folder.path().join("missing"), own).unwrap();
        let refused = check_owner(folder.path(), own + 1).unwrap_err();
        assert_eq!(refused.code, Code::STATE.code);
    }
}
