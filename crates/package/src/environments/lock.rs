//! Lock files: exact versions with the hashes of their files, as written by the resolver.
//!
//! Invariant: a [`Pin`] identifies content. The installer accepts a file only if its hash is one of
//! the pin's, so wheels made from the same pin for the same kind of Python are equal.

use std::path::PathBuf;

use snowmelt_types::Digest;

use crate::wheels::{normalized, version_of};
use crate::{Pinned, Python};

/// Exact versions of all packages, as `uv pip install --require-hashes` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackageLock {
    pub(crate) text: String,
}

/// A package of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) pinned: Pinned,
    /// The package's lines of the lock, which form a valid lock by themselves.
    pub(crate) text: String,
    /// The hash of each acceptable file as `sha256:…`, sorted. A version has a file for each
    /// platform.
    pub(crate) hashes: Vec<String>,
    pub(crate) origin: PinOrigin,
}

/// The source of the files of a pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinOrigin {
    Index,
    /// An uploaded wheel, which is not on an index.
    Uploaded,
    /// An installed package, in a folder of packages.
    Installed {
        folder: PathBuf,
        info: PathBuf,
    },
}

impl PackageLock {
    /// The pins, sorted by name.
    pub(crate) fn pins(&self) -> Vec<Pin> {
        let mut pins: Vec<Pin> = self.entries().iter().filter_map(|text| Pin::read(text)).collect();
        pins.sort_by(|a, b| a.pinned.cmp(&b.pinned));
        pins
    }

    /// Splits the text into entries. An entry starts in the first column; its further lines are
    /// indented.
    fn entries(&self) -> Vec<String> {
        let mut entries: Vec<String> = Vec::new();
        for line in self.text.lines() {
            if line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
                entries.push(String::new());
            }
            if let Some(entry) = entries.last_mut() {
                entry.push_str(line);
                entry.push('\n');
            }
        }
        entries
    }
}

impl Pin {
    fn read(text: &str) -> Option<Self> {
        let uploaded = text.split_once(" @ file://");
        let (name, version) = match uploaded {
            Some((name, address)) => (name, version_of(address.split_whitespace().next()?)?),
            None => {
                let named = text.split([' ', '\\', ';', '\n']).next()?.split_once("==")?;
                (named.0, named.1.to_owned())
            }
        };
        let pinned = Pinned { name: normalized(name), version };
        let words = text.split_whitespace();
        let mut hashes: Vec<String> =
            words.filter_map(|word| word.strip_prefix("--hash=")).map(str::to_owned).collect();
        hashes.sort();
        let origin = if uploaded.is_some() { PinOrigin::Uploaded } else { PinOrigin::Index };
        Some(Self { pinned, text: text.to_owned(), hashes, origin })
    }

    /// Returns the digest of the pin's unpacked and compiled wheel. It covers the content and the
    /// kind of Python, because a version has different wheels for each, and byte code is valid for
    /// one only.
    pub(crate) fn digest(&self, python: &Python) -> Digest {
        let Pinned { name, version } = &self.pinned;
        let kind = [python.minor_version(), python.tag.clone(), python.platform.clone()];
        let parts = ["wheel-1".to_owned(), name.clone(), version.clone()];
        Digest::of_parts(parts.iter().chain(&kind).chain(&self.hashes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(text: &str) -> Vec<Pin> {
        PackageLock { text: text.to_owned() }.pins()
    }

    #[test]
    fn parses_the_entries_of_a_lock() {
        let pins = lock(
            "six==1.17.0 \\\n    --hash=sha256:22\nnumpy==2.4.6 \\\n    --hash=sha256:11 \\\n    \
             --hash=sha256:00\n",
        );
        let shown: Vec<_> = pins.iter().map(|pin| pin.pinned.to_string()).collect();
        assert_eq!(shown, ["numpy==2.4.6", "six==1.17.0"]);
        assert_eq!(pins[0].hashes, ["sha256:00", "sha256:11"]);
        assert_eq!(pins[1].text, "six==1.17.0 \\\n    --hash=sha256:22\n");
    }

    #[test]
    fn an_uploaded_wheel_is_pinned_by_its_hash() {
        let text = "own-pkg @ file:///a%20b/own_pkg-1.0%2Bx-py3-none-any.whl \\\n    \
                    --hash=sha256:11\n";
        let [pin] = &lock(text)[..] else { panic!("one pin") };
        assert_eq!(pin.pinned.to_string(), "own-pkg==1.0+x");
        assert!(pin.origin == PinOrigin::Uploaded && pin.hashes == ["sha256:11"]);
    }

    #[test]
    fn the_digest_of_a_wheel_covers_its_hashes_and_its_python() {
        let folder = tempfile::tempdir().unwrap();
        let python = Python::discover(None, folder.path()).unwrap();
        let digest = |text: &str, python: &Python| lock(text)[0].digest(python);
        let one = digest("six==1 \\\n  --hash=sha256:1 \\\n  --hash=sha256:2\n", &python);
        let reordered = digest("six==1 --hash=sha256:2 --hash=sha256:1\n", &python);
        assert_eq!(one, reordered);
        assert_ne!(one, digest("six==1 --hash=sha256:2\n", &python));
        let other = Python { tag: "cpython-399-x86_64-linux-gnu".to_owned(), ..python };
        assert_ne!(one, digest("six==1 --hash=sha256:1 --hash=sha256:2\n", &other));
    }
}
