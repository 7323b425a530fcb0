//! The files of a location.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use glob::Pattern;
use snowmelt_wire::LocalFile;

use crate::format::{Kind, retain_data};
use crate::names::{MATCHING, glob_base, has_glob, is_hidden};
use crate::version::version;
use crate::{Error, Result};

/// Finds the files of a location on this machine: a file, the files of known formats of a folder,
/// or the files that match a glob. The location is relative to `folder`.
///
/// # Errors
/// No such files exist; the error says what was found instead.
pub fn find(location: &str, folder: &Path) -> Result<Vec<LocalFile>> {
    let path = folder.join(location);
    let mut paths = Vec::new();
    match path.metadata() {
        Ok(found) if found.is_file() => paths.push(path.clone()),
        Ok(found) if found.is_dir() => {
            walk(&path, &mut |file| Kind::of(file).is_some(), &mut paths)?;
            retain_data(&mut paths, PathBuf::as_path);
        }
        Err(source) if is_denied(&source) => return Err(Error::Io { path, source }),
        _ if has_glob(location) => glob_files(location, &path, &mut paths)?,
        _ => return Err(Error::missing(location, &path)),
    }
    if paths.is_empty() {
        return Err(Error::empty(location, &path));
    }
    paths.iter().map(|path| local_file(path)).collect()
}

fn local_file(path: &Path) -> Result<LocalFile> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    // Links are resolved once, here: a worker is granted the file that was planned with.
    let path = match path.canonicalize() {
        Err(_) if is_broken_link(path) => {
            let location = path.display().to_string();
            let looked = path.read_link().unwrap_or_default().display().to_string();
            return Err(Error::BrokenLink { location, looked });
        }
        found => found.map_err(io)?,
    };
    let metadata = path.metadata().map_err(io)?;
    let modified = metadata.modified().map_err(io)?;
    // From here on paths are sent as text.
    let Some(text) = path.to_str() else {
        return Err(Error::invalid(&path.display().to_string(), "its name is not UTF-8"));
    };
    let since = modified.duration_since(UNIX_EPOCH);
    let nanos = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    Ok(LocalFile {
        path: text.to_owned(),
        bytes: metadata.len(),
        modified_nanos: since.map_or_else(|before| -nanos(before.duration()), nanos),
        version: version(&metadata),
    })
}

fn glob_files(location: &str, path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let base = glob_base(path);
    match base.metadata() {
        Ok(found) if found.is_dir() => {}
        Err(source) if is_denied(&source) => return Err(Error::Io { path: base, source }),
        _ => return Err(Error::missing(location, &base)),
    }
    let invalid = |why: String| Error::invalid(location, why);
    let text = path.to_str().ok_or_else(|| invalid("it is not UTF-8".to_owned()))?;
    let pattern = Pattern::new(text).map_err(|error| invalid(error.to_string()))?;
    walk(&base, &mut |file| pattern.matches_path_with(file, MATCHING), found)
}

fn walk(
    folder: &Path,
    wanted: &mut dyn FnMut(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> Result<()> {
    let io = |source| Error::Io { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let path = entry.path();
        if is_hidden(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type().map_err(io)?;
        // Links to folders are not followed: they could form a cycle.
        if kind.is_dir() {
            walk(&path, wanted, found)?;
        } else if wanted(&path) && (kind.is_file() || kind.is_symlink() && may_be_file(&path)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a link leads to a file, or nobody can say. What cannot be read fails later, when it is
/// opened, and the error names it: skipping it would return an answer without its rows.
fn may_be_file(link: &Path) -> bool {
    link.metadata().map_or(true, |found| found.is_file())
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

fn is_broken_link(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(location: &str, folder: &Path) -> Vec<String> {
        let name = |file: &LocalFile| {
            Path::new(&file.path).file_name().unwrap().to_string_lossy().into_owned()
        };
        let files = find(location, folder).unwrap();
        let mut names: Vec<String> = files.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn files_folders_and_globs_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("deep")).unwrap();
        for name in
            ["a.parquet", "b.parquet", "_c.parquet", ".d.parquet", "e.csv", "deep/f.parquet"]
        {
            std::fs::write(root.join(name), "x").unwrap();
        }
        assert_eq!(names("a.parquet", root), ["a.parquet"]);
        assert_eq!(names("e.csv", root), ["e.csv"]);
        assert_eq!(names(".", root), ["a.parquet", "b.parquet", "f.parquet"]);
        assert_eq!(names("*.parquet", root), ["a.parquet", "b.parquet"]);
        assert_eq!(names("[ab].parquet", root), ["a.parquet", "b.parquet"]);
        assert_eq!(names("**/*.parquet", root), ["a.parquet", "b.parquet", "f.parquet"]);
        assert_eq!(names("deep", root), ["f.parquet"]);
    }

    #[test]
    fn missing_and_empty_locations_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("none")).unwrap();
        let is_missing = |location| matches!(find(location, root), Err(Error::Missing { .. }));
        let is_empty = |location| matches!(find(location, root), Err(Error::Empty { .. }));
        assert!(is_missing("gone.parquet") && is_missing("gone/*.parquet"));
        assert!(is_empty("none") && is_empty("none/*.parquet") && is_empty("*.parquet"));
    }
}
