//! What a layer says about one path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::EntryPath;
use super::path::Text;

/// Extended attributes by name; `security.capability` is one of them.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Since 1970, possibly before it.
    pub seconds: i64,
    /// Below a second.
    pub nanos: u32,
}

/// What every file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The twelve bits of permissions, set-id and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change.
    pub mtime: Time,
    /// Extended attributes.
    #[serde(with = "pairs", default, skip_serializing_if = "Xattrs::is_empty")]
    pub xattrs: Xattrs,
}

/// Where the bytes of a file are: one run in the blob of its layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes of the file.
    pub size: u64,
    /// Where the run begins, in units of 4096 raw bytes; 0 for an empty file.
    pub block: u64,
}

/// What a file is. Device nodes do not occur: a sandbox has its own `/dev`, and mounts that are
/// `nodev` would not let them work anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File(Extent),
    /// A symbolic link and where it points.
    Symlink(Target),
    /// A named pipe.
    Fifo,
}

/// Where a symbolic link points: any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Text", into = "Text")]
pub struct Target(pub Vec<u8>);

impl From<Text> for Target {
    fn from(text: Text) -> Self {
        Self(text.into())
    }
}

impl From<Target> for Text {
    fn from(target: Target) -> Self {
        target.0.into()
    }
}

/// What a layer does with a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Puts a file there; a folder that is there keeps what is in it.
    Put(Kind, Attributes),
    /// Gives the file at the other path this name too.
    Link(EntryPath),
    /// Hides what lower layers have there.
    Hide,
    /// Hides what lower layers have in the folder there.
    HideContent,
}

/// One line of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub path: EntryPath,
    /// What.
    pub change: Change,
}

/// JSON has only text as keys: a list of pairs.
mod pairs {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Text, Xattrs};

    pub fn serialize<S: Serializer>(xattrs: &Xattrs, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            xattrs
                .iter()
                .map(|(name, value)| (Text::from(name.clone()), Text::from(value.clone()))),
        )
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Xattrs, D::Error> {
        let pairs: Vec<(Text, Text)> = Vec::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
