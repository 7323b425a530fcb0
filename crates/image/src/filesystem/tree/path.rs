//! Paths of entries: relative, without `.` and `..`, within the limits of the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The most bytes of a name: Linux's NAME_MAX.
pub const MAX_NAME_BYTES: usize = 255;
/// The most bytes of a path: Linux's PATH_MAX.
const MAX_PATH_BYTES: usize = 4096;

/// The path of an entry below the root; the root's path is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub struct EntryPath(Vec<Vec<u8>>);

impl EntryPath {
    /// Parses a path of an archive: a leading `/` and `.` are ignored; `..` is refused even where
    /// it would stay inside the root, because no image builder writes it.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let refuse = |reason: &str| {
            let shown: String = escaped(bytes).chars().take(200).collect();
            Err(Error::refused(format!("the entry `{shown}`"), reason))
        };
        if bytes.len() > MAX_PATH_BYTES {
            return refuse("its path is longer than 4096 bytes");
        }
        if bytes.contains(&0) {
            return refuse("its path has a zero byte");
        }
        let names = bytes.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        if names.iter().any(|name| name == b"..") {
            return refuse("its path has `..`");
        }
        if names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
            return refuse("a name in its path is longer than 255 bytes");
        }
        Ok(Self(names))
    }

    /// Returns the names in the path, starting at the root.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Returns the path of the parent and the last name; `None` for the root.
    pub fn split(&self) -> Option<(&[Vec<u8>], &[u8])> {
        self.0.split_last().map(|(name, folder)| (folder, name.as_slice()))
    }

    /// Returns the path with another last name.
    pub(crate) fn renamed(&self, name: &[u8]) -> Self {
        let mut names = self.0.clone();
        names.pop();
        names.push(name.to_vec());
        Self(names)
    }

    /// Returns the parent's path.
    pub(crate) fn parent(&self) -> Self {
        let mut names = self.0.clone();
        names.pop();
        Self(names)
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", escaped(&self.0.join(&b'/')))
    }
}

/// Bytes in JSON: text if they are UTF-8, which is the normal case, numbers otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Utf8)
    }
}

impl From<Text> for Vec<u8> {
    fn from(text: Text) -> Self {
        match text {
            Text::Utf8(text) => text.into_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }
}

impl From<EntryPath> for Text {
    fn from(path: EntryPath) -> Self {
        path.0.join(&b'/').into()
    }
}

impl TryFrom<Text> for EntryPath {
    type Error = Error;

    fn try_from(text: Text) -> Result<Self> {
        Self::parse(&Vec::from(text))
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_entry_has_the_same_path() {
        let plain = EntryPath::parse(b"usr/bin/env").unwrap();
        for other in [&b"./usr/bin/env"[..], b"/usr//bin/./env", b"usr/bin/env/"] {
            assert_eq!(EntryPath::parse(other).unwrap(), plain);
        }
        assert!(EntryPath::parse(b"./").unwrap().names().is_empty());
    }

    #[test]
    fn refuses_paths_outside_the_root_and_long_names() {
        let long = [b'a'; 256];
        for bad in [&b"../etc/passwd"[..], b"a/../../b", b"a\0b", &long] {
            EntryPath::parse(bad).unwrap_err();
        }
        EntryPath::parse(&b"a/".repeat(3000)).unwrap_err();
    }
}
