//! The place of this program, and the programs that came with it: in a virtual environment, or from
//! a package.
//!
//! Invariant: the answer depends on the program's file alone, so it is the same for a command, a
//! service and `snowmelt doctor`.

use std::path::{Path, PathBuf};

/// The folder of this program's file, behind links.
pub(crate) fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    program.parent().map(Path::to_owned)
}

/// Returns the `python3` of the virtual environment in whose `bin` folder the program is. A folder
/// without `pyvenv.cfg` holds any programs, so its Python is no more the platform's than that on
/// the PATH.
pub(crate) fn python_beside(folder: &Path) -> Option<PathBuf> {
    let is_environment = folder.parent()?.join("pyvenv.cfg").is_file();
    is_environment.then(|| folder.join("python3"))
}

/// The places where `uv` may be: beside the program, where the wheel `uv` installs it, and where
/// the Debian package and the tarball have it.
pub(crate) fn uv_places(folder: &Path) -> Vec<PathBuf> {
    let packaged = folder.parent().map(|root| root.join("libexec/snowmelt/uv"));
    [folder.join("uv")].into_iter().chain(packaged).collect()
}

/// The folder of Python packages that the Debian package and the tarball have for a version of
/// Python.
pub(crate) fn packages(folder: &Path, minor_version: &str) -> Option<PathBuf> {
    Some(folder.parent()?.join(format!("lib/snowmelt/python{minor_version}")))
}

/// The home folder of this user: a service has no `HOME`.
pub(crate) fn home() -> Option<PathBuf> {
    let named = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    named.or_else(|| {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        home_of(rustix::process::geteuid().as_raw(), &users)
    })
}

/// Returns the home folder of a user from lines with name, password, number, group, comment, home
/// and shell, separated by colons.
fn home_of(user: u32, users: &str) -> Option<PathBuf> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.get(2) == Some(&user.to_string().as_str()))?;
    fields.get(5).filter(|home| home.starts_with('/')).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_virtual_environment_has_the_python_of_the_program() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bin");
        assert_eq!(python_beside(&folder), None);
        std::fs::write(root.path().join("pyvenv.cfg"), "").unwrap();
        assert_eq!(python_beside(&folder), Some(folder.join("python3")));
    }

    #[test]
    fn the_home_of_a_user_is_in_the_list_of_users() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\nbad:x:2\n";
        assert_eq!(home_of(0, users), Some("/root".into()));
        assert_eq!(home_of(1000, users), Some("/home/ada".into()));
        assert_eq!((home_of(2, users), home_of(7, users)), (None, None));
    }
}
