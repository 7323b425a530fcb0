//! `RECORD`, a wheel's list of installed files with their hashes and sizes.
//!
//! Invariant: a RECORD is verified against the files, so a full disk, a crash or a damaged cache
//! cannot leave an incomplete package.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::name::normalized;
use crate::{Error, Result};

/// An installed distribution.
#[derive(Debug)]
pub(crate) struct Record {
    /// The normalised name.
    pub(crate) name: String,
    entries: Vec<RecordEntry>,
}

#[derive(Debug, PartialEq, Eq)]
struct RecordEntry {
    path: String,
    sha256: Option<String>,
    size: Option<u64>,
}

/// The RECORDs of all distributions in a folder.
pub(crate) fn records(site: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(site).map_err(Error::io("read", site))? {
        let folder = entry.map_err(Error::io("read", site))?.path();
        if folder.extension().is_some_and(|end| end == "dist-info") {
            records.push(Record::read(&folder)?);
        }
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

impl Record {
    pub(crate) fn read(dist_info: &Path) -> Result<Self> {
        let path = dist_info.join("RECORD");
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let stem = dist_info.file_stem().unwrap_or_default().to_string_lossy();
        // `name-version`: a version never contains `-` in a folder's name.
        let name = normalized(stem.rsplit_once('-').map_or(&*stem, |(name, _)| name));
        Ok(Self { name, entries: text.lines().filter_map(entry).collect() })
    }

    /// Verifies the size and hash of every file.
    pub(crate) fn verify(&self, site: &Path) -> Result<()> {
        self.entries.iter().try_for_each(|entry| verify(site, entry))
    }

    /// Path and line of each file in the folder of packages that has a hash.
    pub(crate) fn verified(&self) -> impl Iterator<Item = (&str, String)> {
        self.entries.iter().filter_map(|entry| {
            inside(Path::new(""), &entry.path)?;
            let hash = entry.sha256.as_ref()?;
            let size = entry.size?;
            let path = match entry.path.contains([',', '"']) {
                true => format!("\"{}\"", entry.path.replace('"', "\"\"")),
                false => entry.path.clone(),
            };
            Some((entry.path.as_str(), format!("{path},sha256={hash},{size}")))
        })
    }

    /// The path of a line of [`Self::verified`].
    pub(crate) fn path(line: &str) -> Option<String> {
        entry(line).map(|entry| entry.path)
    }

    /// The top-level names that can be imported, sorted.
    pub(crate) fn modules(&self) -> Vec<String> {
        let all: BTreeSet<&str> =
            self.entries.iter().filter_map(|entry| module(&entry.path)).collect();
        all.into_iter().map(str::to_owned).collect()
    }

    /// The number of files from which byte code is compiled.
    pub(crate) fn sources(&self) -> usize {
        self.entries.iter().filter(|entry| entry.path.ends_with(".py")).count()
    }
}

/// The modules of a distribution that are meant for import by others: without private ones and
/// tests, unless there are no others.
pub(crate) fn public(modules: &[String]) -> Vec<String> {
    let public: Vec<String> = modules.iter().filter(|name| is_public(name)).cloned().collect();
    if public.is_empty() { modules.to_vec() } else { public }
}

fn verify(site: &Path, entry: &RecordEntry) -> Result<()> {
    let corrupt = |reason: String| Error::Corrupt { file: entry.path.clone(), reason };
    // Files outside of the package folder (data, headers) are not needed and not visible in
    // sandboxes. A RECORD with a path outside of the folder must not cause a read there.
    let Some(path) = inside(site, &entry.path) else { return Ok(()) };
    let Some(expected) = &entry.sha256 else { return Ok(()) };
    let mut file = File::open(&path).map_err(|error| corrupt(error.to_string()))?;
    let mut hasher = Hasher(Sha256::new());
    let size = io::copy(&mut file, &mut hasher).map_err(|error| corrupt(error.to_string()))?;
    if entry.size.is_some_and(|expected| expected != size) {
        return Err(corrupt(format!("it has {size} bytes")));
    }
    if &URL_SAFE_NO_PAD.encode(hasher.0.finalize()) != expected {
        return Err(corrupt("its content has another hash".to_owned()));
    }
    Ok(())
}

/// Hashes the output of `io::copy` in pieces, so that a file of any size needs little memory.
struct Hasher(Sha256);

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn inside(site: &Path, relative: &str) -> Option<PathBuf> {
    let relative = Path::new(relative);
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    plain.then(|| site.join(relative))
}

/// Parses a line `path,sha256=hash,size`; a path with a comma is in double quotes.
fn entry(line: &str) -> Option<RecordEntry> {
    let (rest, size) = line.trim_end().rsplit_once(',')?;
    let (path, hash) = rest.rsplit_once(',')?;
    let unquoted = path.strip_prefix('"').and_then(|path| path.strip_suffix('"'));
    let path = unquoted.map_or_else(|| path.to_owned(), |path| path.replace("\"\"", "\""));
    let sha256 = hash.strip_prefix("sha256=").map(|hash| hash.trim_end_matches('=').to_owned());
    Some(RecordEntry { path, sha256, size: size.parse().ok() })
}

/// The module of a file: `a` for `a/b.py` and `a.cpython-311-x86_64-linux-gnu.so`.
fn module(path: &str) -> Option<&str> {
    let is_code = path.ends_with(".py") || path.ends_with(".so");
    let first = path.split('/').next()?;
    let name = first.split('.').next()?;
    // A folder with a dot in its name (`numpy.libs`, `x.dist-info`) cannot be imported.
    let importable = !path.contains('/') || name == first;
    (is_code && importable && is_identifier(name)).then_some(name)
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c == '_' || c.is_alphanumeric())
}

fn is_public(name: &str) -> bool {
    const NOT_PUBLIC: [&str; 7] =
        ["test", "tests", "testing", "docs", "examples", "benchmarks", "bin"];
    !name.starts_with('_') && !NOT_PUBLIC.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(paths: &[&str]) -> Record {
        let entries = paths.iter().map(|path| entry(&format!("{path},,")).unwrap()).collect();
        Record { name: "x".to_owned(), entries }
    }

    #[test]
    fn finds_packages_modules_and_extensions() {
        let paths = [
            "numpy/__init__.py",
            "numpy.libs/libblas.so",
            "six.py",
            "_cffi_backend.cpython-311-x86_64-linux-gnu.so",
            "google/cloud/storage.py",
            "numpy-2.0.dist-info/METADATA",
            "bin/f2py",
            "tests/test_it.py",
            "../../../etc/evil.py",
        ];
        let modules = record(&paths).modules();
        assert_eq!(modules, ["_cffi_backend", "google", "numpy", "six", "tests"]);
        assert_eq!(public(&modules), ["google", "numpy", "six"]);
        assert_eq!(public(&record(&["_only.so"]).modules()), ["_only"]);
    }

    #[test]
    fn parses_quoted_paths() {
        let read = entry("\"a,\"\"b\"\".py\",sha256=AAA=,12").unwrap();
        let expected = RecordEntry {
            path: "a,\"b\".py".to_owned(),
            sha256: Some("AAA".to_owned()),
            size: Some(12),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn detects_missing_short_and_changed_files_and_stays_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest("good"));
        let check = |path: &str| {
            let entries = vec![entry(&format!("{path},sha256={hash},4")).unwrap()];
            Record { name: "x".to_owned(), entries }.verify(folder.path())
        };
        for (content, reason) in [("good", None), ("goo", Some("3 bytes")), ("evil", Some("hash"))]
        {
            fs::write(folder.path().join("a.py"), content).unwrap();
            let found = check("a.py").err().map(|error| error.to_string());
            assert_eq!(found.is_some(), reason.is_some());
            assert!(found.unwrap_or_default().contains(reason.unwrap_or_default()));
        }
        assert!(check("missing.py").is_err());
        assert!(check("../../etc/shadow").is_ok(), "it must not be opened at all");
    }
}
