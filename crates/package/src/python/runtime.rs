//! The platform's Python files, embedded in the binary and unpacked once, addressed by content.
//!
//! Invariant: a folder under `runtime/` is complete, because it is renamed to its name when it is
//! finished.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use snowmelt_kernel::process::end_with_thread;
use snowmelt_types::Digest;

use crate::storage::{FileLock, LockMode, Workspace, files, make_folder};
use crate::{Error, Python, Result};

/// An empty folder of the runtime.
const EMPTY: &str = "snowmelt/_empty";

/// The subfolder in which versions are unpacked and removed.
const TMP: &str = "tmp";

/// Path (`snowmelt/_runtime/serve.py`) and text of each file.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/runtime.rs"));

/// The unpacked `snowmelt` package; not removed while this value or a clone of it lives.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The digest of the files and of the kind of Python for which they were compiled.
    pub digest: Digest,
    /// The folder to bind and to put on `sys.path`; it contains `snowmelt/`.
    pub path: PathBuf,
    _lease: Arc<FileLock>,
}

impl Runtime {
    /// An empty folder that can be bound over another.
    pub fn empty(&self) -> PathBuf {
        self.path.join(EMPTY)
    }
}

/// Unpacks the `snowmelt` package to a folder under `<state>/runtime/`, and removes unused folders
/// of other versions. Takes about 100 ms the first time; later calls read only a few files.
pub fn runtime_files(state: &Path, python: &Python) -> Result<Runtime> {
    let digest = digest(python);
    fs::create_dir_all(state).map_err(Error::io("make the folder", state))?;
    let all = state.join("runtime");
    make_folder(&all, 0o755)?;
    let path = all.join(digest.short());
    make_folder(&all.join(TMP), 0o700)?;
    Workspace::sweep(&all.join(TMP))?;
    let lease = lease(&all, digest.short())?;
    if !path.is_dir() {
        unpack(&all, &path, python)?;
    }
    remove_others(&all, digest.short())?;
    Ok(Runtime { digest, path, _lease: Arc::new(lease) })
}

fn digest(python: &Python) -> Digest {
    let parts = FILES.iter().flat_map(|(path, text)| [*path, *text]);
    Digest::of_parts(["runtime-2", &python.tag].into_iter().chain(parts))
}

fn lease(all: &Path, name: &str) -> Result<FileLock> {
    let path = all.join(format!("{name}.lock"));
    loop {
        if let Some(lease) = FileLock::try_acquire(&path, LockMode::Shared)? {
            return Ok(lease);
        }
        // Another process is removing it, as a folder of another version.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Unpacks the files. Several processes may do so concurrently, each to its own folder; one rename
/// succeeds.
fn unpack(all: &Path, path: &Path, python: &Python) -> Result<()> {
    let workspace = Workspace::new(&all.join(TMP))?;
    let whole = workspace.path().join("runtime");
    make_folder(&whole, 0o755)?;
    for (name, text) in FILES {
        let file = whole.join(name);
        let parent = file.parent().unwrap_or(&whole);
        fs::create_dir_all(parent).map_err(Error::io("make the folder", parent))?;
        fs::write(&file, text).map_err(Error::io("write", &file))?;
    }
    make_folder(&whole.join(EMPTY), 0o755)?;
    compile(&whole, python);
    files::share_tree(&whole)?;
    files::sync_file_system(&whole)?;
    match fs::rename(&whole, path) {
        Err(error) if !path.is_dir() => Err(Error::io("publish", path)(error)),
        _ => files::sync_folder(all),
    }
}

/// Compiles byte code. Sandboxes see the folder read-only and could not store byte code. Without
/// byte code they work, only slower.
fn compile(folder: &Path, python: &Python) {
    let mut command = Command::new(&python.executable);
    command.args(["-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]);
    command.arg(folder).current_dir("/").env_remove("PYTHONPYCACHEPREFIX");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match end_with_thread(&mut command).status() {
        Ok(status) if status.success() => {}
        result => tracing::warn!(?result, "the runtime has no byte code"),
    }
}

/// Removes unused folders of other versions.
fn remove_others(all: &Path, ours: &str) -> Result<()> {
    for entry in fs::read_dir(all).map_err(Error::io("read", all))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ours || name == TMP || !entry.path().is_dir() {
            continue;
        }
        let lock = all.join(format!("{name}.lock"));
        if let Some(alone) = FileLock::try_acquire(&lock, LockMode::Exclusive)? {
            // Renamed first, so that an incomplete folder never has a version's name.
            let trash = Workspace::new(&all.join(TMP))?;
            let _ = fs::rename(entry.path(), trash.path().join("removed"));
            alone.remove()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn python(folder: &Path) -> Python {
        Python::discover(None, &folder.join("packages")).unwrap()
    }

    #[test]
    fn unpacks_and_compiles_once() {
        let folder = tempfile::tempdir().unwrap();
        let python = python(folder.path());
        let first = runtime_files(folder.path(), &python).unwrap();
        assert!(first.path.join("snowmelt/_runtime/serve.py").is_file());
        assert_eq!(fs::read_dir(first.empty()).unwrap().count(), 0);
        let mut compiled = fs::read_dir(first.path.join("snowmelt/_runtime/__pycache__")).unwrap();
        assert!(
            compiled.any(|one| one.unwrap().file_name().to_string_lossy().starts_with("serve."))
        );
        let marker = first.path.join("marker");
        fs::write(&marker, "").unwrap();
        assert_eq!(runtime_files(folder.path(), &python).unwrap().path, first.path);
        assert!(marker.exists(), "it must not be unpacked again");
    }

    #[test]
    fn removes_other_versions_unless_they_are_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("runtime");
        let python = python(folder.path());
        for old in ["used", "unused"] {
            fs::create_dir_all(all.join(old).join("snowmelt")).unwrap();
        }
        let _lease = lease(&all, "used").unwrap();
        runtime_files(folder.path(), &python).unwrap();
        assert!(all.join("used").exists() && !all.join("unused").exists());
        assert_eq!(fs::read_dir(all.join(TMP)).unwrap().count(), 0);
    }

    #[test]
    #[ignore = "runs as the process that is killed"]
    fn compiles_until_it_is_killed() {
        let Some(folder) = std::env::var_os("SNOWMELT_TEST_FOLDER") else { return };
        let folder = PathBuf::from(folder);
        let python = Python { executable: folder.join("python"), ..python(&folder) };
        compile(&folder, &python);
    }

    #[test]
    fn a_compiler_ends_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let compiler = folder.path().join("python");
        let started = folder.path().join("started");
        let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", started.display());
        fs::write(&compiler, script).unwrap();
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
        let mut compiles = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "python::runtime::tests::compiles_until_it_is_killed"])
            .env("SNOWMELT_TEST_FOLDER", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = loop {
            match fs::read_to_string(&started) {
                Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                _ => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
            assert!(compiles.try_wait().unwrap().is_none(), "it ended by itself");
        };
        compiles.kill().unwrap();
        compiles.wait().unwrap();
        // The one who reaps it may be busy.
        let state = PathBuf::from(format!("/proc/{pid}/stat"));
        while fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
