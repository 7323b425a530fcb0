//! The checks of Python, uv, and the folder in which the platform keeps its state.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use snowmelt_package::{OLDEST_PYTHON, Python, Uv};
use snowmelt_types::Report;

use super::resources::nearest;
use super::{Check, CheckStatus};

pub(super) fn checks(state_dir: &Path, python: Option<&Path>, server: Option<u32>) -> Vec<Check> {
    let python = found_python(python);
    let uv = match &python {
        Ok(python) => uv(python),
        Err(_) => {
            Check::new("uv", CheckStatus::Warn, "not looked for", "any version", "get Python first")
        }
    };
    vec![python_row(python), uv, state(state_dir, server)]
}

/// Looks for the interpreter anew, with a temporary folder for the remembered answer, so that the
/// check leaves nothing behind.
fn found_python(named: Option<&Path>) -> snowmelt_package::Result<Python> {
    let folder = tempfile::tempdir().map_err(|error| snowmelt_package::Error::PythonMissing {
        reason: format!("no temporary folder to ask it in: {error}"),
    })?;
    Python::discover(named, folder.path())
}

fn python_row(python: snowmelt_package::Result<Python>) -> Check {
    let (major, minor) = OLDEST_PYTHON;
    let needed = format!("CPython {major}.{minor} or newer that everybody may run");
    let row =
        |status, found: String, mend: &str| Check::new("Python", status, found, &needed, mend);
    let python = match python {
        Ok(python) => python,
        Err(error) => {
            let mend = "apt-get install python3, or set `server.python`";
            return row(CheckStatus::Fail, error.to_string(), mend);
        }
    };
    let path = python.executable.display();
    let found = format!("{} at {path}", python.minor_version());
    if !runs(Command::new(&python.executable).args(["-I", "-S", "-c", "pass"])) {
        return row(
            CheckStatus::Fail,
            format!("{found}, which does not run"),
            "set `server.python`",
        );
    }
    // Functions run as another user.
    let mode = python.executable.metadata().map_or(0, |found| found.permissions().mode());
    if mode & 0o005 != 0o005 {
        return row(
            CheckStatus::Fail,
            format!("{found}, mode {:o}", mode & 0o777),
            &format!("chmod 755 {path}"),
        );
    }
    row(CheckStatus::Ok, found, "")
}

fn uv(python: &Python) -> Check {
    let needed = "any version, for functions with packages";
    let named = std::env::var_os("SNOWMELT_UV").filter(|value| !value.is_empty());
    let uv = match Uv::find(named.as_deref().map(Path::new), python) {
        Ok(uv) => uv,
        Err(error) => {
            let mend = error.report().hint.unwrap_or_default();
            return Check::new("uv", CheckStatus::Fail, error.to_string(), needed, mend);
        }
    };
    let answer = uv.version_command().stdin(Stdio::null()).output();
    let said = answer.ok().filter(|answer| answer.status.success());
    let path = uv.program().display();
    match said {
        Some(answer) => {
            let version = version(&String::from_utf8_lossy(&answer.stdout));
            Check::new("uv", CheckStatus::Ok, format!("{version} at {path}"), needed, "")
        }
        None => {
            let mend = format!("replace {path} (https://docs.astral.sh/uv)");
            Check::new("uv", CheckStatus::Fail, format!("{path}, which does not run"), needed, mend)
        }
    }
}

/// Shortens `uv 0.13.9 (x86_64-unknown-linux-gnu)` to `uv 0.13.9`: the target would fill a line of
/// 80 columns.
fn version(answer: &str) -> String {
    answer.split(" (").next().unwrap_or_default().trim().to_owned()
}

fn runs(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Checks that nobody else can write the state folder and the package store in it. A server of root
/// gives the folder to `server`.
fn state(state_dir: &Path, server: Option<u32>) -> Check {
    let needed = "a folder that only this user can write";
    let row = |status, found: String, mend: String| {
        Check::new("state folder", status, found, needed, mend)
    };
    let folder = nearest(state_dir);
    let shown = folder.display();
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let mend = format!("set SNOWMELT_STATE to a folder of yours, or chown $USER {shown}");
        return row(CheckStatus::Fail, format!("{shown} cannot be written"), mend);
    }
    if folder != state_dir {
        return row(
            CheckStatus::Ok,
            format!("{} will be made", state_dir.display()),
            String::new(),
        );
    }
    let user = rustix::process::geteuid();
    let owner = state_dir.metadata().map_or(user.as_raw(), |found| found.uid());
    let is_server = user.is_root() && (owner == 0 || server.is_none_or(|server| server == owner));
    let trusted = if is_server { owner } else { user.as_raw() };
    let packages = state_dir.join("packages");
    for folder in [state_dir, &packages] {
        if let Some(reason) = open_to_others(folder, trusted) {
            let mend = format!("chown -R $USER {0} && chmod go-w {0}", folder.display());
            return row(CheckStatus::Fail, format!("{} {reason}", folder.display()), mend);
        }
    }
    if trusted == user.as_raw() {
        return row(CheckStatus::Ok, format!("{shown}, writable"), String::new());
    }
    let (status, mend) = match server {
        Some(_) => (CheckStatus::Ok, String::new()),
        // The settings of a service are not those of who asks.
        None => (
            CheckStatus::Warn,
            format!("start the server with server.user = {owner}, or chown -hR root {shown}"),
        ),
    };
    row(status, format!("{shown}, of user {owner} whom a server became"), mend)
}

/// Returns why others than root and this owner may write a folder.
fn open_to_others(folder: &Path, owner: u32) -> Option<String> {
    let found = folder.metadata().ok()?;
    if found.uid() != owner && found.uid() != 0 {
        return Some(format!("belongs to user {}", found.uid()));
    }
    let loose = found.mode() & 0o022 != 0;
    loose.then(|| format!("has the mode {:o}, so others can write it", found.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};

    use super::*;

    #[test]
    fn the_version_of_uv_is_without_its_target() {
        assert_eq!(version("uv 0.13.9 (x86_64-unknown-linux-gnu)\n"), "uv 0.13.9");
        assert_eq!(version("uv 0.9.1\n"), "uv 0.9.1");
    }

    #[test]
    fn the_interpreter_of_the_settings_is_checked() {
        let named = Path::new("/nowhere/python3");
        let rows = checks(&std::env::temp_dir(), Some(named), None);
        let python = rows.iter().find(|row| row.name == "Python").unwrap();
        assert_eq!(python.status, CheckStatus::Fail);
        assert!(python.found.contains("/nowhere/python3"), "{python:?}");
    }

    #[test]
    fn a_state_folder_of_the_user_of_the_server_is_trusted_by_root() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(4321), None).unwrap();
        let status = |server| state(folder.path(), server).status;
        assert_eq!(status(Some(4321)), CheckStatus::Ok);
        assert_eq!(status(Some(4322)), CheckStatus::Fail);
        assert_eq!(status(None), CheckStatus::Warn);
        let packages = folder.path().join("packages");
        create_dir(&packages).unwrap();
        assert_eq!(status(Some(4321)), CheckStatus::Ok);
        std::os::unix::fs::chown(&packages, Some(4322), None).unwrap();
        assert_eq!(status(Some(4321)), CheckStatus::Fail);
    }

    #[test]
    fn a_state_folder_that_others_can_write_fails() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(state(folder.path(), None).status, CheckStatus::Ok);
        assert_eq!(state(&folder.path().join("new"), None).status, CheckStatus::Ok);
        let packages = folder.path().join("packages");
        create_dir(&packages).unwrap();
        set_permissions(&packages, Permissions::from_mode(0o777)).unwrap();
        let loose = state(folder.path(), None);
        assert_eq!(loose.status, CheckStatus::Fail);
        assert!(loose.mend.unwrap().contains("chmod go-w"));
    }
}
