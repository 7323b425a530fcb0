//! Which Parquet files a location stands for: a file, a folder, a glob, or the like on S3.
//!
//! Hidden files (a name that begins with `.` or `_`) are what other engines leave beside their
//! data; a folder or a glob never matches them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::execution::object_store::ObjectStoreUrl;
use glob::{MatchOptions, Pattern};
use object_store::{ObjectMeta, ObjectStore};
use snowmelt_wire::LocalFile;

use super::{LocalFiles, bucket};
use crate::scan::{S3Settings, local_path, local_version};
use crate::{Error, Result};

/// The files of a table and the store that they are in.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// `file://` or `s3://bucket`.
    pub(super) url: ObjectStoreUrl,
    /// Where their footers are read.
    pub(super) source: Source,
    /// True if S3 is read without keys.
    pub(super) anonymous: bool,
    /// In the order of their names.
    pub(super) files: Vec<ObjectMeta>,
}

/// Where the bytes of a table's files are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// On this machine.
    Local(Arc<dyn LocalFiles>),
    /// In a bucket.
    Bucket(Arc<dyn ObjectStore>),
}

/// True if a table name of the SQL can only be a location.
pub(super) fn looks_like_location(name: &str) -> bool {
    let parquet =
        Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"));
    parquet || name.contains(['/', '*', '\\']) || name.starts_with('.')
}

/// Finds the files of a location.
pub(super) async fn locate(
    location: &str,
    files: &Arc<dyn LocalFiles>,
    s3: &S3Settings,
) -> Result<Located> {
    let mut found = match location.split_once("://") {
        None => local(location, files).await?,
        Some(("file", path)) => local(path, files).await?,
        Some(("s3" | "s3a", rest)) => bucket::locate(location, rest, s3).await?,
        Some((scheme, _)) => {
            let why = format!("`{scheme}://` is not known: local paths and s3:// are");
            return Err(Error::LocationInvalid { location: location.to_owned(), why });
        }
    };
    found.files.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(found)
}

async fn local(location: &str, files: &Arc<dyn LocalFiles>) -> Result<Located> {
    let listed = files.list(location).await?;
    let found = listed.iter().map(object_meta).collect::<Result<_>>()?;
    let source = Source::Local(Arc::clone(files));
    Ok(Located { url: ObjectStoreUrl::local_filesystem(), source, anonymous: false, files: found })
}

fn object_meta(file: &LocalFile) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: local_path(Path::new(&file.path))?,
        last_modified: modified(file.modified_nanos).into(),
        size: file.bytes,
        e_tag: None,
        version: Some(file.version.clone()),
    })
}

fn modified(nanos: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    let moment = match nanos < 0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    moment.unwrap_or(UNIX_EPOCH)
}

/// The Parquet files of a location on this machine: a file, a folder or a glob, relative to
/// `folder`.
///
/// # Errors
/// If there is none, with what was there instead.
pub fn local_files(location: &str, folder: &Path) -> Result<Vec<LocalFile>> {
    let path = folder.join(location);
    let mut paths = Vec::new();
    if path.is_file() {
        paths.push(path.clone());
    } else if path.is_dir() {
        walk(&path, &mut |file| file_is_parquet(file), &mut paths)?;
    } else if has_glob(location) {
        glob_files(location, &path, &mut paths)?;
    } else {
        return Err(missing(location, &path));
    }
    if paths.is_empty() {
        return Err(empty(location, &path));
    }
    paths.iter().map(|path| local_file(path)).collect()
}

fn local_file(path: &Path) -> Result<LocalFile> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    // Links are followed once, here: what a worker is granted is the file that was planned with.
    let path = match path.canonicalize() {
        Err(_) if dangles(path) => {
            let location = path.display().to_string();
            let looked = path.read_link().unwrap_or_default().display().to_string();
            return Err(Error::LinkDangling { location, looked });
        }
        found => found.map_err(io)?,
    };
    let metadata = path.metadata().map_err(io)?;
    let modified = metadata.modified().map_err(io)?;
    // Refused here, where its name is known as it is.
    local_path(&path)?;
    let since = modified.duration_since(UNIX_EPOCH);
    let nanos = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    Ok(LocalFile {
        path: path.display().to_string(),
        bytes: metadata.len(),
        modified_nanos: since.map_or_else(|before| -nanos(before.duration()), nanos),
        version: local_version(&metadata),
    })
}

fn glob_files(location: &str, path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let base = glob_base(path);
    if !base.is_dir() {
        return Err(missing(location, &base));
    }
    let invalid = |why: String| Error::LocationInvalid { location: location.to_owned(), why };
    let text = path.to_str().ok_or_else(|| invalid("it is not UTF-8".to_owned()))?;
    let pattern = Pattern::new(text).map_err(|error| invalid(error.to_string()))?;
    walk(&base, &mut |file| pattern.matches_path_with(file, MATCHING), found)
}

pub(super) const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The longest leading part of a path without a wildcard.
pub(super) fn glob_base(path: &Path) -> PathBuf {
    let plain = |part: &Component<'_>| !has_glob(&part.as_os_str().to_string_lossy());
    path.components().take_while(plain).collect()
}

pub(super) fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

pub(super) fn hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('_')
}

pub(super) fn file_is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
}

fn walk(
    folder: &Path,
    wanted: &mut dyn FnMut(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> Result<()> {
    let io = |source| Error::Io { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_none_or(|name| hidden(&name)) {
            continue;
        }
        // A link to a folder is not followed: it could lead back to this one.
        if path.is_dir() && !path.is_symlink() {
            walk(&path, wanted, found)?;
        } else if wanted(&path) && (path.is_file() || dangles(&path)) {
            // A link that leads nowhere fails when it is opened, by name: to skip it would be to
            // answer without its rows.
            found.push(path);
        }
    }
    Ok(())
}

fn dangles(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

pub(super) fn missing(location: &str, path: &Path) -> Error {
    let looked = path.display().to_string();
    Error::LocationMissing { location: location.to_owned(), looked }
}

pub(super) fn empty(location: &str, path: &Path) -> Error {
    let found = match std::fs::read_dir(path) {
        Ok(entries) => what_else(entries.flatten().map(|entry| entry.path()).collect()),
        Err(_) => "nothing matches it".to_owned(),
    };
    Error::LocationEmpty { location: location.to_owned(), found }
}

/// What a folder has instead of Parquet files.
fn what_else(entries: Vec<PathBuf>) -> String {
    let count = entries.len();
    if let Some(dangling) = entries.iter().find(|path| path.is_symlink() && !path.exists()) {
        return format!("the link {} leads nowhere", dangling.display());
    }
    let text = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "csv" || end == "json" || end == "jsonl")
    };
    match entries.iter().any(text) {
        true => format!("the folder holds {count} other entries, and CSV and JSON are not read"),
        false => format!("the folder holds {count} other entries"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(location: &str, folder: &Path) -> Vec<String> {
        let name = |file: &LocalFile| {
            Path::new(&file.path).file_name().unwrap().to_string_lossy().into_owned()
        };
        let files = local_files(location, folder).unwrap();
        let mut names: Vec<String> = files.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn finds_files_folders_and_globs() {
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
    fn tells_missing_from_empty() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("none")).unwrap();
        let missing =
            |location| matches!(local_files(location, root), Err(Error::LocationMissing { .. }));
        let empty =
            |location| matches!(local_files(location, root), Err(Error::LocationEmpty { .. }));
        assert!(missing("gone.parquet") && missing("gone/*.parquet"));
        assert!(empty("none") && empty("none/*.parquet") && empty("*.parquet"));
    }

    #[test]
    fn names_with_spaces_and_percents_survive() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a b%20c ü#.parquet");
        std::fs::write(&odd, "x").unwrap();
        let files = local_files("*.parquet", folder.path()).unwrap();
        let meta = object_meta(&files[0]).unwrap();
        let back = crate::scan::file_path(&meta.location);
        assert_eq!(back, odd.canonicalize().unwrap());
    }

    #[test]
    fn only_paths_look_like_locations() {
        assert!(looks_like_location("data/x") && looks_like_location("s3://b/*.parquet"));
        assert!(looks_like_location("x.parquet"));
        assert!(!looks_like_location("lineitem"));
    }
}
