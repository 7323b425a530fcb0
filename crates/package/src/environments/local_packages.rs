//! Packages of the runtime that are installed already where the platform is: they need neither the
//! resolver nor the index.
//!
//! Only packages that the runtime itself requires are taken from there, never others: functions
//! have nothing to do with other packages in an environment, and their versions would surprise the
//! authors of functions.
//!
//! Invariant: a wheel is made of the files with a hash in RECORD only, which are verified like
//! those of the index, so equal pins mean equal files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pep440_rs::{Version, VersionSpecifiers};
use snowmelt_types::Digest;

use super::lock::{Pin, PinOrigin};
use crate::python::bundle;
use crate::wheels::{Record, normalized};
use crate::{Error, Pinned, Python, Requirement, Result};

/// The packages that the runtime requires for functions of SQL, and that need no packages
/// themselves.
const OF_THE_RUNTIME: [&str; 2] = ["numpy", "pyarrow"];

/// Files that say how a package was installed, not what it is.
const OF_THE_INSTALLER: [&str; 4] = ["INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"];

/// The folders with packages that came with the platform, or are beside its Python.
pub(crate) fn folders(python: &Python) -> Vec<PathBuf> {
    let version = python.minor_version();
    let packaged = bundle::folder().and_then(|folder| bundle::packages(&folder, &version));
    let library = format!("lib/python{version}/site-packages");
    let beside = python.programs.iter().filter_map(|folder| Some(folder.parent()?.join(&library)));
    let mut folders: Vec<PathBuf> = packaged.into_iter().chain(beside).collect();
    folders.extend(python.sites.iter().cloned());
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Returns a pin for each requirement, sorted by name, or `None` if one of the requirements is not
/// met. Reads folders.
pub(crate) fn pins(folders: &[PathBuf], requirements: &[Requirement]) -> Option<Vec<Pin>> {
    let pins = requirements.iter().map(|wanted| pin(folders, wanted));
    let mut by_name = BTreeMap::new();
    for pin in pins.collect::<Option<Vec<_>>>()? {
        // Two requirements of one name are met by one version, or the resolver has to say why not.
        let name = pin.pinned.name.clone();
        if by_name.insert(name, pin.clone()).is_some_and(|other| other != pin) {
            return None;
        }
    }
    (!by_name.is_empty()).then(|| by_name.into_values().collect())
}

fn pin(folders: &[PathBuf], wanted: &Requirement) -> Option<Pin> {
    let allowed = wanted.versions().filter(|_| OF_THE_RUNTIME.contains(&wanted.name()))?;
    folders.iter().find_map(|folder| installed(folder, wanted.name(), &allowed))
}

fn installed(folder: &Path, name: &str, allowed: &VersionSpecifiers) -> Option<Pin> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let found = entries.map(|entry| entry.path()).find_map(|path| {
        path.extension().filter(|end| *end == "dist-info")?;
        let stem = path.file_stem()?.to_str()?.to_owned();
        let (found, version) = stem.rsplit_once('-')?;
        (normalized(found) == name).then(|| (path, version.to_owned()))
    });
    let (info, version) = found?;
    let is_met = version.parse::<Version>().is_ok_and(|version| allowed.contains(&version));
    let is_met = is_met && needs_nothing(&info) && is_self_contained(&info);
    let record = Record::read(&info).ok().filter(|_| is_met)?;
    let lines = lines(&record);
    let pinned = Pinned { name: name.to_owned(), version };
    let hash = Digest::of_parts(lines.iter());
    (!record.modules().is_empty()).then(|| Pin {
        text: pinned.to_string(),
        hashes: vec![format!("record:{hash}")],
        origin: PinOrigin::Installed { folder: folder.to_owned(), info },
        pinned,
    })
}

/// Whether a package requires no other package, except for extras.
fn needs_nothing(info: &Path) -> bool {
    let Ok(metadata) = fs::read_to_string(info.join("METADATA")) else { return false };
    let head = metadata.split("\n\n").next().unwrap_or_default();
    let mut needed = head.lines().filter_map(|line| line.strip_prefix("Requires-Dist:"));
    needed.all(|line| line.contains("extra =="))
}

/// Whether a package needs no library of the machine besides libc. Packages that Conda, Nix and
/// distributions build for themselves do.
fn is_self_contained(info: &Path) -> bool {
    let Ok(text) = fs::read_to_string(info.join("WHEEL")) else { return false };
    let mut tags = text.lines().filter_map(|line| line.strip_prefix("Tag:")).peekable();
    let portable =
        |tag: &str| ["manylinux", "musllinux", "-none-any"].iter().any(|part| tag.contains(part));
    tags.peek().is_some() && tags.all(portable)
}

/// The lines of the files that make up the package.
fn lines(record: &Record) -> Vec<String> {
    let mut lines: Vec<String> = record
        .verified()
        .filter(|(path, _)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            !path.ends_with(".pyc") && !OF_THE_INSTALLER.contains(&name)
        })
        .map(|(_, line)| line)
        .collect();
    lines.sort();
    lines
}

/// Copies the files of an installed package into a folder of packages, with a RECORD of these
/// files. Blocks.
pub(crate) fn copy(folder: &Path, info: &Path, target: &Path) -> Result<()> {
    let kept = lines(&Record::read(info)?);
    for line in &kept {
        let Some(path) = Record::path(line) else { continue };
        let from = folder.join(&path);
        let to = target.join(&path);
        let parent = to.parent().unwrap_or(target);
        fs::create_dir_all(parent).map_err(Error::io("make the folder", parent))?;
        fs::copy(&from, &to).map_err(|error| not_copied(path, &from, error))?;
    }
    let info = target.join(info.file_name().unwrap_or_default());
    let path = info.join("RECORD");
    fs::write(&path, kept.join("\n") + "\n").map_err(Error::io("write", &path))
}

/// Makes the error for a file that cannot be copied. A missing file is damage of the package, which
/// the index can replace.
fn not_copied(file: String, from: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::Corrupt { file, reason: error.to_string() },
        _ => Error::io("copy", from)(error),
    }
}
