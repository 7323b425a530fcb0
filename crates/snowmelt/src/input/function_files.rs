//! The files that a user gives to functions (`snowmelt udf add --file`, `snowmelt fn deploy
//! --file`, `snowmelt sql --udf-file`): found, named and read once for their digests.
//!
//! Invariant: a file that cannot be read, or that changes while it is read, is an error, and then
//! nothing is sent. No link is followed below a folder: it could lead out of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use snowmelt_api::{FileRef, FileRefs, MAX_FILE_BYTES, MAX_FILES, check_file_name, check_files};
use snowmelt_control::client::LocalFile;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::terminal::text;

/// Reads the files that are named as `PATH` or `PATH:NAME`.
///
/// # Errors
/// `SM-0230` with the file that is missing, too large, changes, or cannot have its name.
pub fn collect(given: &[OsString]) -> Result<Vec<LocalFile>, ErrorReport> {
    let mut found = FunctionPaths::default();
    for text in given {
        let (path, name) = split(text);
        found.add(&path, name)?;
    }
    let mut files = Vec::new();
    for (name, path) in found.paths {
        let content = read(&path)?;
        files.push(LocalFile { name, path, content });
    }
    check_files(&refs(&files)).map_err(refused)?;
    Ok(files)
}

/// Contents by the names that functions use.
pub fn refs(files: &[LocalFile]) -> FileRefs {
    files.iter().map(|file| (file.name.clone(), file.content.clone())).collect()
}

/// A path, and the name behind its last colon. A path that exists may have colons.
fn split(text: &OsString) -> (PathBuf, Option<String>) {
    let whole = || (PathBuf::from(text), None);
    if Path::new(text).symlink_metadata().is_ok() {
        return whole();
    }
    match text.to_str().and_then(|text| text.rsplit_once(':')) {
        Some((path, name)) if !path.is_empty() => (PathBuf::from(path), Some(name.to_owned())),
        _ => whole(),
    }
}

/// Paths by the names that functions use.
#[derive(Default)]
struct FunctionPaths {
    paths: BTreeMap<String, PathBuf>,
    bytes: u64,
}

impl FunctionPaths {
    /// Adds a file, or all files of a folder. `.` as the name of a folder puts its files beside
    /// each other at the top.
    fn add(&mut self, path: &Path, name: Option<String>) -> Result<(), ErrorReport> {
        let found = path.metadata().map_err(|error| unreadable(path, &error))?;
        let own = || own_name(path);
        if !found.is_dir() {
            return self.file(path, &found, name.map_or_else(own, Ok)?);
        }
        match name.map_or_else(own, Ok)?.trim_end_matches('/') {
            "." => self.folder(path, ""),
            name => self.folder(path, &format!("{name}/")),
        }
    }

    fn folder(&mut self, folder: &Path, prefix: &str) -> Result<(), ErrorReport> {
        let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| unreadable(folder, &error))?.path();
            let name = format!("{prefix}{}", own_name(&path)?);
            let found = path.symlink_metadata().map_err(|error| unreadable(&path, &error))?;
            if found.is_symlink() {
                let message = format!("{} is a symbolic link", path.display());
                return Err(refused(message).hint("name what it leads to: --file PATH:NAME"));
            }
            if found.is_dir() {
                self.folder(&path, &format!("{name}/"))?;
            } else {
                self.file(&path, &found, name)?;
            }
        }
        Ok(())
    }

    /// Sizes and names are checked before any file is read.
    fn file(&mut self, path: &Path, found: &Metadata, name: String) -> Result<(), ErrorReport> {
        let shown = path.display();
        if !found.is_file() {
            return Err(refused(format!("{shown} is neither a file nor a folder")));
        }
        check_file_name(&name)
            .map_err(|reason| refused(format!("{shown} cannot be named `{name}`: {reason}")))?;
        self.bytes = self.bytes.saturating_add(found.len());
        if self.bytes > MAX_FILE_BYTES {
            let most = ByteSize(MAX_FILE_BYTES);
            let message = format!("the files are larger than {most} together, at {shown}");
            return Err(refused(message).hint("build an image with large files, and use --image"));
        }
        if self.paths.len() >= MAX_FILES {
            let message = format!("there are more than {MAX_FILES} files, at {shown}");
            return Err(refused(message).hint("put many small files into an archive or an image"));
        }
        match self.paths.insert(name.clone(), path.to_owned()) {
            Some(other) => {
                let other = other.display();
                let message = format!("{other} and {shown} both have the name `{name}`");
                Err(refused(message).hint("give one of them another name: --file PATH:NAME"))
            }
            None => Ok(()),
        }
    }
}

fn own_name(path: &Path) -> Result<String, ErrorReport> {
    let name = path.file_name().ok_or_else(|| {
        let message = format!("{} has no name", path.display());
        refused(message).hint("write a name behind it: --file PATH:NAME; for a folder also PATH:.")
    })?;
    let text = std::str::from_utf8(name.as_bytes());
    text.map(str::to_owned)
        .map_err(|_| refused(format!("the name of {} is not UTF-8", path.display())))
}

/// The content of a file that stays the same meanwhile.
fn read(path: &Path) -> Result<FileRef, ErrorReport> {
    let failed = |error| unreadable(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    let mut hasher = Sha256::new();
    let mut size = 0;
    let mut piece = vec![0; 256 << 10];
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        hasher.update(&piece[..read]);
        size += read as u64;
    }
    let after = file.metadata().map_err(failed)?;
    let state = |found: &Metadata| (found.len(), found.mtime(), found.mtime_nsec());
    if state(&before) != state(&after) || size != after.len() {
        let message = format!("{} changed while it was read", path.display());
        return Err(refused(message).hint("register the function when nothing writes the file"));
    }
    let digest = hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Ok(FileRef { digest, size })
}

fn refused(message: String) -> ErrorReport {
    ErrorReport::new(Code::FUNCTION_FILE, message)
}

fn unreadable(path: &Path, error: &std::io::Error) -> ErrorReport {
    refused(format!("{} cannot be read: {}", path.display(), text::reason(error)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn collected(given: &[String]) -> Result<Vec<String>, String> {
        let given: Vec<_> = given.iter().map(OsString::from).collect();
        let found = collect(&given).map_err(|report| report.to_string())?;
        Ok(found.into_iter().map(|file| format!("{} {}", file.name, file.content.size)).collect())
    }

    fn folder() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        std::fs::create_dir_all(folder.path().join("data/deep")).unwrap();
        for (name, text) in [("model.pkl", "model"), ("data/a.txt", "a"), ("data/deep/b", "bb")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn files_and_folders_have_their_names_or_given_ones() {
        let (_folder, path) = folder();
        let at = |text: &str| format!("{path}/{text}");
        assert_eq!(
            collected(&[at("model.pkl"), at("data")]).unwrap(),
            ["data/a.txt 1", "data/deep/b 2", "model.pkl 5"]
        );
        assert_eq!(
            collected(&[at("model.pkl:m/x.bin"), at("data/:words")]).unwrap(),
            ["m/x.bin 5", "words/a.txt 1", "words/deep/b 2"]
        );
        assert_eq!(collected(&[at("data:.")]).unwrap(), ["a.txt 1", "deep/b 2"]);
        std::fs::write(at("with:colon"), "").unwrap();
        assert_eq!(collected(&[at("with:colon")]).unwrap(), ["with:colon 0"]);
    }

    #[test]
    fn the_digest_is_a_sha_256() {
        let (_folder, path) = folder();
        std::fs::write(format!("{path}/abc"), "abc").unwrap();
        let found = collect(&[OsString::from(format!("{path}/abc"))]).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(found[0].content.digest, abc);
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let (_folder, path) = folder();
        let at = |text: &str| format!("{path}/{text}");
        let refusal = |given: &[String]| collected(given).unwrap_err();
        assert!(refusal(&[at("missing")]).contains("cannot be read"));
        for name in ["../model.pkl", "/etc/model", "a//b", ""] {
            let text = refusal(&[at(&format!("model.pkl:{name}"))]);
            assert!(text.contains("cannot be named"), "{name}: {text}");
        }
        assert!(refusal(&[at("data:../x")]).contains("cannot be named"));
        assert!(refusal(&[at("model.pkl"), at("data/a.txt:model.pkl")]).contains("both have"));
        assert!(refusal(&["/".to_owned()]).contains("has no name"));
        assert!(refusal(&["/dev/null".to_owned()]).contains("neither a file nor a folder"));
        symlink("/etc/passwd", at("data/link")).unwrap();
        assert!(refusal(&[at("data")]).contains("is a symbolic link"));
        std::fs::remove_file(at("data/link")).unwrap();
        let both = refusal(&[at("model.pkl:data"), at("data")]);
        assert!(both.contains("is a file and also the folder"), "{both}");
        let large = File::create(at("large")).unwrap();
        large.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(refusal(&[at("large")]).contains("larger than 4"));
        std::fs::create_dir(at("many")).unwrap();
        for n in 0..=MAX_FILES {
            File::create(at(&format!("many/{n}"))).unwrap();
        }
        assert!(refusal(&[at("many")]).contains("more than 1000 files"));
    }
}
