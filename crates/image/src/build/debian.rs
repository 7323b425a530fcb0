//! Debian packages as a folder: downloaded and verified by apt, unpacked by dpkg-deb.
//!
//! Scripts of packages are not run ([`super::scripts`]), and the image's list of installed packages
//! is not changed. This suits libraries and programs that need no more than their files.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use snowmelt_kernel::process::end_with_thread;

use super::BuildProgress;
use super::scripts::{self, LeftOut};
use crate::block::OciDigest;
use crate::{Error, Result};

/// The ending of the file with the commands that were left out.
const LEFT_OUT: &str = "left-out";

/// A search term of apt for the packages that every Debian system has.
const ESSENTIAL: &str = "?essential";

/// The version of the way in which packages are unpacked; changed when the result changes.
const MANNER: &str = "2";

/// Downloads packages and their dependencies to the folder `into`, except for those that the
/// package list `installed` (`/var/lib/dpkg/status` of the base) contains. Packages may rely on the
/// essential ones without naming them, so where there is no base these are downloaded as well
/// (`essential`). Returns all `.deb` files, sorted. apt verifies each against the signed index of
/// its archive.
pub fn download(
    packages: &[String],
    installed: Option<&Path>,
    essential: bool,
    into: &Path,
    progress: BuildProgress<'_>,
) -> Result<Vec<PathBuf>> {
    if let Some(bad) = packages.iter().find(|name| !is_package(name)) {
        return Err(Error::NoPackage {
            reason: format!("`{bad}` is not a valid Debian package name"),
        });
    }
    let partial = into.join("partial");
    fs::create_dir_all(&partial).map_err(Error::io("make the folder", &partial))?;
    let into = into.canonicalize().map_err(Error::io("open", into))?;
    let nothing = tempfile::NamedTempFile::new_in(&into).map_err(Error::io("write in", &into))?;
    let installed = installed.unwrap_or(nothing.path());
    let mut apt = Command::new("apt-get");
    apt.args(["--yes", "--quiet=2", "--download-only", "--no-install-recommends"]);
    apt.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]);
    apt.arg("-o").arg(format!("Dir::State::status={}", installed.display()));
    apt.arg("-o").arg(format!("Dir::Cache::archives={}", into.display()));
    apt.arg("install").arg("--").args(packages).args(essential.then_some(ESSENTIAL));
    run(&mut apt, progress).map_err(of_apt)?;
    debs(&into)
}

/// Unpacks `.deb` files on top of each other into one folder below `cache` and returns it. Its name
/// is derived from the digests of the files and it is renamed when it is complete, so each set is
/// unpacked once.
pub fn unpack(debs: &[PathBuf], cache: &Path, progress: BuildProgress<'_>) -> Result<PathBuf> {
    let mut names = MANNER.to_owned();
    for deb in debs {
        names.push_str(digest(deb)?.hex());
    }
    let target = cache.join(OciDigest::of(names.as_bytes()).hex());
    if target.is_dir() {
        return Ok(target);
    }
    fs::create_dir_all(cache).map_err(Error::io("make the folder", cache))?;
    let scratch = tempfile::Builder::new()
        .prefix(".tmp")
        .tempdir_in(cache)
        .map_err(Error::io("write in", cache))?;
    let root = scratch.path().join("root");
    let mut controls = Vec::with_capacity(debs.len());
    for deb in debs {
        let mut dpkg = Command::new("dpkg-deb");
        run(dpkg.arg("--extract").arg(deb).arg(&root), progress)?;
        let control = scratch.path().join(format!("control-{}", controls.len()));
        let mut dpkg = Command::new("dpkg-deb");
        run(dpkg.arg("--control").arg(deb).arg(&control), progress)?;
        controls.push(control);
    }
    store_left_out(&scripts::finish(&root, &controls)?, &target)?;
    match fs::rename(&root, &target) {
        // Another process has unpacked the same set.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(target),
        renamed => renamed.map(|()| target.clone()).map_err(Error::io("rename to", &target)),
    }
}

/// Returns the commands that were left out of the scripts of the packages in an unpacked folder.
pub fn left_out(unpacked: &Path) -> Vec<LeftOut> {
    let stored = fs::read(unpacked.with_extension(LEFT_OUT)).ok();
    stored.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Stores the left out commands beside the folder, which is not complete yet.
fn store_left_out(left: &[LeftOut], target: &Path) -> Result<()> {
    let path = target.with_extension(LEFT_OUT);
    let store = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(target.parent().unwrap_or(target))?;
        file.write_all(&serde_json::to_vec(left)?)?;
        file.persist(&path)?;
        Ok(())
    };
    store().map_err(Error::io("write", &path))
}

fn digest(path: &Path) -> Result<OciDigest> {
    use sha2::Digest;
    let mut file = fs::File::open(path).map_err(Error::io("open", path))?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = io::Read::read(&mut file, &mut buffer).map_err(Error::io("read", path))?;
        if count == 0 {
            return Ok(OciDigest::from_hasher(hasher));
        }
        hasher.update(&buffer[..count]);
    }
}

fn debs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns whether a text is a package name, optionally with an architecture and a version; never
/// an option of apt.
fn is_package(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let other = |byte: u8| byte.is_ascii_uppercase() || b"+-.:=~".contains(&byte);
    name.bytes().next().is_some_and(plain) && name.bytes().all(|byte| plain(byte) || other(byte))
}

/// Classifies a failure by the messages of apt.
fn of_apt(error: Error) -> Error {
    const UNREACHABLE: [&str; 4] =
        ["Failed to fetch", "Could not resolve", "Could not connect", "Unable to connect"];
    match error {
        Error::NoTool { reason } if UNREACHABLE.iter().any(|words| reason.contains(words)) => {
            Error::NoArchive { reason }
        }
        Error::NoTool { reason } if reason.contains("E: ") => Error::NoPackage { reason },
        error => error,
    }
}

/// Runs a command to its end, or kills it when `progress` returns an error.
fn run(command: &mut Command, progress: BuildProgress<'_>) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(10);
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |reason: String| Error::NoTool { reason: format!("`{program}`: {reason}") };
    let broken = |error: io::Error| failed(error.to_string());
    let mut stderr = tempfile::tempfile().map_err(broken)?;
    let mut child = end_with_thread(command)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(broken)?)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => failed("it is not installed".to_owned()),
            _ => broken(error),
        })?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(broken)? {
            break status;
        }
        if let Err(error) = progress("Debian packages", 0) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(broken(error));
        }
        std::thread::sleep(PAUSE);
    };
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    stderr.rewind().and_then(|()| stderr.read_to_string(&mut text)).map_err(broken)?;
    // The first error is the cause; later ones follow from it.
    let line = text.lines().find(|line| line.starts_with("E: "));
    let line = line.or(text.trim().lines().next_back()).unwrap_or("no error message");
    Err(failed(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::progress::ignore;

    /// Makes a package with one file, as a maintainer would build it.
    fn deb(folder: &Path, name: &str, file: &str) -> PathBuf {
        let root = folder.join(name);
        let path = folder.join(format!("{name}.deb"));
        fs::create_dir_all(root.join("DEBIAN")).unwrap();
        fs::create_dir_all(root.join("usr/share/it")).unwrap();
        fs::write(root.join("usr/share/it").join(file), file).unwrap();
        let control = format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.org>\n\
             Description: it\n"
        );
        fs::write(root.join("DEBIAN/control"), control).unwrap();
        let mut dpkg = Command::new("dpkg-deb");
        run(dpkg.arg("--build").arg(&root).arg(&path), &ignore).unwrap();
        path
    }

    #[test]
    fn a_set_of_packages_is_unpacked_once() {
        let scratch = tempfile::tempdir().unwrap();
        let debs = [deb(scratch.path(), "one", "a"), deb(scratch.path(), "two", "b")];
        let cache = scratch.path().join("cache");
        let folder = unpack(&debs, &cache, &ignore).unwrap();
        for file in ["a", "b"] {
            assert_eq!(fs::read_to_string(folder.join("usr/share/it").join(file)).unwrap(), file);
        }
        assert_eq!(unpack(&debs, &cache, &ignore).unwrap(), folder);
        assert_ne!(unpack(&debs[..1], &cache, &ignore).unwrap(), folder);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 4, "nothing half-done is left");
        assert_eq!(left_out(&folder), []);
    }

    #[test]
    fn an_invalid_package_leaves_no_files() {
        let scratch = tempfile::tempdir().unwrap();
        let bad = scratch.path().join("bad.deb");
        let cache = scratch.path().join("cache");
        fs::write(&bad, "no package").unwrap();
        assert!(matches!(unpack(&[bad], &cache, &ignore), Err(Error::NoTool { .. })));
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    }

    #[test]
    fn refuses_package_names_that_are_options() {
        for good in ["libssl3", "g++", "python3.11", "libc6:amd64", "git=1:2.39.5-0+deb12u2"] {
            assert!(is_package(good), "{good}");
        }
        let scratch = tempfile::tempdir().unwrap();
        for bad in ["-o", "--allow-unauthenticated", "", "a b", "a;b", "./x.deb"] {
            let error =
                download(&[bad.to_owned()], None, true, scratch.path(), &ignore).unwrap_err();
            assert!(matches!(error, Error::NoPackage { .. }), "{error}");
        }
    }

    #[test]
    fn an_error_of_the_progress_callback_kills_the_program() {
        let began = std::time::Instant::now();
        let stop = |_: &str, _: u64| Err(io::ErrorKind::Interrupted.into());
        run(Command::new("sleep").arg("1000"), &stop).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(900), "it was not waited for");
    }
}
