//! Wheels uploaded by users, addressed by the digest of their content.
//!
//! Security boundary: paths from users are never opened; the client sends the bytes. Invariant: the
//! file of a stored wheel has the digest in its requirement, because the resolver records that
//! digest and the installer verifies it.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use snowmelt_kernel::disk::check_room;

use super::name::normalized;
use crate::storage::{PackageStore, make_folder, write_atomically};
use crate::{Error, Result};

const MAX_NAME_LENGTH: usize = 200;

/// A requirement `name @ sha256:<digest>/<file>.whl`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UploadedWheel {
    /// The normalised distribution name.
    pub(crate) name: String,
    sha256: String,
    file: String,
}

impl UploadedWheel {
    /// Parses a requirement. `None` for requirements of any other form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, address) = text.split_once(" @ sha256:")?;
        let (sha256, file) = address.split_once('/')?;
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let whole = sha256.len() == 64 && sha256.chars().all(is_hex);
        let found = name_of(file).filter(|found| whole && *found == normalized(name))?;
        Some(Self { name: found, sha256: sha256.to_owned(), file: file.to_owned() })
    }

    /// The line for the resolver. Fails if the file does not exist.
    pub(crate) fn line(&self, store: &PackageStore) -> Result<String> {
        let path = folder(store, &self.sha256).join(&self.file);
        if !path.is_file() {
            return Err(Error::UploadedWheelMissing { wheel: self.file.clone() });
        }
        Ok(format!("{} @ {}", self.name, url(&path)))
    }
}

/// Stores a wheel's content and returns the requirement that refers to it. Blocks.
pub(crate) fn keep(store: &PackageStore, file: &str, content: &[u8]) -> Result<String> {
    let Some(name) = name_of(file) else {
        return Err(Error::Requirement {
            line: file.chars().take(MAX_NAME_LENGTH).collect(),
            reason: "it is not the file name of a wheel".to_owned(),
            hint: "build one (pip wheel), and give its path: `dist/own-1.0-py3-none-any.whl`"
                .to_owned(),
        });
    };
    super::archive::check(content, file).map_err(|reason| Error::Requirement {
        line: file.to_owned(),
        reason,
        hint: "build one (pip wheel), and give its path".to_owned(),
    })?;
    let digest = Sha256::digest(content);
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = folder(store, &sha256);
    make_folder(&all(store), 0o700)?;
    make_folder(&folder, 0o700)?;
    let path = folder.join(file);
    if !path.is_file() {
        let room = check_room(&folder, content.len() as u64);
        room.map_err(Error::io("write", &path))?;
        write_atomically(&path, content)?;
    }
    Ok(format!("{name} @ sha256:{sha256}/{file}"))
}

/// Whether the wheel with one of these hashes (`sha256:…`) is stored.
pub(crate) fn is_kept(store: &PackageStore, hashes: &[String]) -> bool {
    let mut digests = hashes.iter().filter_map(|hash| hash.strip_prefix("sha256:"));
    digests.any(|sha256| folder(store, sha256).is_dir())
}

/// The version in the file name of a wheel's URL.
pub(crate) fn version_of(address: &str) -> Option<String> {
    let file = address.rsplit('/').next()?;
    file.split('-').nth(1).map(|version| version.replace("%2B", "+"))
}

/// Part of the cache and removed with it: clients upload a wheel again at each use.
fn all(store: &PackageStore) -> PathBuf {
    store.cache().join("own")
}

fn folder(store: &PackageStore, sha256: &str) -> PathBuf {
    all(store).join(sha256)
}

/// The distribution name in `name-version(-build)-python-abi-platform.whl`.
fn name_of(file: &str) -> Option<String> {
    let parts: Vec<&str> = file.strip_suffix(".whl")?.split('-').collect();
    let plain = |part: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.+!".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(allowed)
    };
    let is_name = parts.first()?.starts_with(|c: char| c.is_ascii_alphanumeric());
    let whole = (5..=6).contains(&parts.len()) && parts.iter().all(plain);
    (whole && is_name && file.len() <= MAX_NAME_LENGTH).then(|| normalized(parts[0]))
}

fn url(path: &Path) -> String {
    let mut text = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_wheels_with_a_digest() {
        let digest = "0a".repeat(32);
        let of = |name: &str, file: &str| {
            UploadedWheel::parse(&format!("{name} @ sha256:{digest}/{file}"))
        };
        let found = of("Own.Pkg", "own_pkg-1.0+local.1-py3-none-any.whl").unwrap();
        assert_eq!(found.name, "own-pkg");
        for (name, file) in [
            ("own", "../own-1.0-py3-none-any.whl"),
            ("own", "own-1.0-py3-none-any.whl/../x-1-py3-none-any.whl"),
            ("other", "own-1.0-py3-none-any.whl"),
            ("own", "own-1.0.tar.gz"),
            ("own", "own-1.0-any.whl"),
            ("own", "own-1.0-py3-none-any.whl --index-url evil"),
            ("own", "own-1.0-py3-${HOME}-any.whl"),
            ("own", "own-1.0-..-none-any.whl"),
        ] {
            assert_eq!(of(name, file), None, "{file}");
        }
        assert_eq!(UploadedWheel::parse("own @ sha256:00/own-1.0-py3-none-any.whl"), None);
        assert_eq!(UploadedWheel::parse("own @ file:///etc/own-1.0-py3-none-any.whl"), None);
        assert_eq!(UploadedWheel::parse("six==1.16.0"), None);
    }

    #[test]
    fn a_stored_wheel_is_found_by_its_requirement() {
        let folder = tempfile::tempdir().unwrap();
        let store = PackageStore::open(folder.path().join("a b"), None).unwrap();
        make_folder(&store.cache(), 0o700).unwrap();
        let info = |file| format!("own_pkg-1.0+x.dist-info/{file}");
        let files = ["METADATA", "WHEEL", "RECORD"].map(info);
        let wheel = crate::wheels::archive::made(&files.each_ref().map(|file| (file.as_str(), 1)));
        let requirement = keep(&store, "own_pkg-1.0+x-py3-none-any.whl", &wheel).unwrap();
        let line = UploadedWheel::parse(&requirement).unwrap().line(&store).unwrap();
        assert!(line.starts_with("own-pkg @ file:///") && line.contains("a%20b"), "{line}");
        assert_eq!(version_of(&line).unwrap(), "1.0+x");
        let absent = format!("own @ sha256:{}/own-1-py3-none-any.whl", "0".repeat(64));
        assert!(UploadedWheel::parse(&absent).unwrap().line(&store).is_err());
        assert!(keep(&store, "../own-1.0-py3-none-any.whl", &wheel).is_err());
        let before = std::fs::read_dir(all(&store)).unwrap().count();
        let refused = keep(&store, "own_pkg-1.0+x-py3-none-any.whl", b"any bytes").unwrap_err();
        assert!(refused.to_string().contains("zip archive"), "{refused}");
        assert_eq!(std::fs::read_dir(all(&store)).unwrap().count(), before, "it is not stored");
    }
}
