//! Removal of the files that no value names.
//!
//! Invariant: a file that a transaction is about to name, or that a reader may still look for, is
//! there under its name or the one that it has while it is removed.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

/// The prefix of the name of a file that is about to be removed.
pub(super) const ASIDE: &str = "old-";

/// The result of a sweep.
#[derive(Default)]
pub(super) struct Swept {
    pub removed: u64,
    /// Files that no value names, for the next sweep.
    pub left: HashSet<String>,
    pub failure: Option<std::io::Error>,
}

/// Removes the files that no value names, nor named at an `earlier` sweep.
pub(super) fn remove_unnamed(
    folder: &Path,
    named: &HashSet<String>,
    earlier: &HashSet<String>,
    before: SystemTime,
) -> std::io::Result<Swept> {
    let mut swept = Swept::default();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // One that a sweep moved and was killed has the name of its file.
        let own = name.strip_prefix(ASIDE).unwrap_or(&name);
        if named.contains(own) {
            continue;
        }
        if !earlier.contains(&name) {
            swept.left.insert(name);
            continue;
        }
        match remove_unused(folder, &name, before) {
            Ok(true) => swept.removed += 1,
            Ok(false) => drop(swept.left.insert(name)),
            // Another control sweeps too.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                swept.left.insert(name);
                swept.failure.get_or_insert(error);
            }
        }
    }
    Ok(swept)
}

/// Removes a file that was not used since a time. It is moved first: a transaction that is about to
/// name it finds it gone, and writes it again, or it has noted its use before, which shows here.
pub(super) fn remove_unused(
    folder: &Path,
    name: &str,
    before: SystemTime,
) -> std::io::Result<bool> {
    let path = folder.join(name);
    if std::fs::metadata(&path)?.modified()? >= before {
        return Ok(false);
    }
    if name.starts_with(ASIDE) {
        return std::fs::remove_file(&path).map(|()| true);
    }
    let aside = folder.join(format!("{ASIDE}{name}"));
    std::fs::rename(&path, &aside)?;
    if std::fs::metadata(&aside)?.modified()? >= before {
        return std::fs::rename(&aside, &path).map(|()| false);
    }
    std::fs::remove_file(&aside).map(|()| true)
}
