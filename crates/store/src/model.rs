//! Keys, values, versions and events.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;

/// The number of transactions that have changed the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl Revision {
    /// The next revision.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The version of a key: the revision of its last write (the `mod_revision` of etcd). A key that is
/// deleted and created again gets a version that it never had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyVersion(pub u64);

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The version to expect in a write that replaces the entry.
    pub version: KeyVersion,
}

/// The precondition of an operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No condition: the key may have any version, or be absent.
    Any,
    /// The key is absent.
    Absent,
    /// The key has this version.
    Version(KeyVersion),
}

impl Expect {
    /// Whether a key with this version, or an absent key, meets the precondition.
    pub fn is_met(self, found: Option<KeyVersion>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The key after which the part begins: only keys that sort after it. `None` for all.
    pub after: Option<String>,
    /// The maximum number of entries; all if absent.
    pub limit: Option<usize>,
}

impl Page {
    /// The first entries.
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit: Some(limit) }
    }

    /// The entries after a key.
    pub fn after(key: impl Into<String>, limit: usize) -> Self {
        Self { after: Some(key.into()), limit: Some(limit) }
    }

    /// The bound at which the keys of this part begin, among the keys with a prefix.
    pub(crate) fn begin<'a>(&'a self, prefix: &'a str) -> Bound<&'a str> {
        match &self.after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        }
    }
}

/// A page of entries of one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPage {
    /// The entries in the order of their keys.
    pub entries: Vec<StoreEntry>,
    /// Whether further entries follow the last one.
    pub more: bool,
    /// The revision of the snapshot; a watch from the next revision misses no change.
    pub revision: Revision,
}

/// The first change that a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The next change.
    Now,
    /// The changes of this revision.
    Revision(Revision),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The revision of the transaction, which all of its changes have.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// The change.
    pub change: KeyChange,
}

/// The kind of a change: put or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The key was written, with this value.
    Put(Bytes),
    /// The key was deleted.
    Delete,
}

impl StoreEvent {
    /// The size of key and value in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.change {
            KeyChange::Put(value) => value.len(),
            KeyChange::Delete => 0,
        };
        self.key.len() + value
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for KeyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
