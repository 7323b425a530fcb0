//! Entries of layers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::EntryPath;
use super::path::Text;

/// Extended attributes by name; `security.capability` is one of them.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// The fraction of the second, in nanoseconds.
    pub nanos: u32,
}

/// Attributes of a file of any type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The twelve bits of permissions, set-id and sticky bit.
    pub mode: u16,
    /// The numeric id of the owner.
    pub uid: u32,
    /// The numeric id of the group.
    pub gid: u32,
    /// The modification time.
    pub mtime: Time,
    /// The extended attributes.
    #[serde(with = "pairs", default, skip_serializing_if = "Xattrs::is_empty")]
    pub xattrs: Xattrs,
}

/// The position of a file's bytes: a contiguous range in the blob of its layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The size of the file in bytes.
    pub size: u64,
    /// The start of the range in units of 4096 raw bytes; 0 for an empty file.
    pub block: u64,
}

/// The type of a file. Device nodes do not occur: a sandbox has its own `/dev`, and device nodes do
/// not work on `nodev` mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A folder.
    Folder,
    /// A regular file.
    File(Extent),
    /// A symbolic link and its target.
    Symlink(LinkTarget),
    /// A named pipe.
    Fifo,
}

/// The target of a symbolic link: any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Text", into = "Text")]
pub struct LinkTarget(pub Vec<u8>);

impl From<Text> for LinkTarget {
    fn from(text: Text) -> Self {
        Self(text.into())
    }
}

impl From<LinkTarget> for Text {
    fn from(target: LinkTarget) -> Self {
        target.0.into()
    }
}

/// The change that a layer makes to a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerChange {
    /// Adds a file; an existing folder keeps its content.
    Put(FileKind, Attributes),
    /// Adds this path as another name of an existing file.
    Link(EntryPath),
    /// Hides the path in lower layers.
    Hide,
    /// Hides the folder's content in lower layers.
    HideContent,
}

/// An entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerEntry {
    /// The path that the entry changes.
    pub path: EntryPath,
    /// The change to the path.
    pub change: LayerChange,
}

/// Serializes attributes as a list of pairs, because JSON keys must be text.
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
