//! Transactions: several operations that take effect together.

use std::collections::HashSet;

use bytes::Bytes;

use crate::{Error, Expect, KeyVersion, LeaseId, Result, Revision};

/// Operations on different keys, applied as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations in the order of their events.
    pub operations: Vec<KeyOperation>,
}

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// Writes a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// The precondition.
        expect: Expect,
        /// The lease that the key is deleted with; without a lease the key stays.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it is present.
    Delete {
        /// The key.
        key: String,
        /// The precondition.
        expect: Expect,
    },
    /// Checks a precondition and changes nothing.
    Check {
        /// The key.
        key: String,
        /// The precondition.
        expect: Expect,
    },
}

/// The result of a transaction that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision of the transaction; if it changed nothing, the revision of the store.
    pub revision: Revision,
    /// The version of each key before the transaction, in the order of the operations.
    pub found: Vec<Option<KeyVersion>>,
}

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes these keys, whatever their versions are.
    pub(crate) fn deleting(keys: Vec<String>) -> Self {
        keys.into_iter().fold(Self::new(), |all, key| all.delete(key, Expect::Any))
    }

    /// Adds a write.
    pub fn put(self, key: impl Into<String>, value: impl Into<Bytes>, expect: Expect) -> Self {
        self.with(KeyOperation::Put { key: key.into(), value: value.into(), expect, lease: None })
    }

    /// Adds a write under a lease.
    pub fn put_leased(
        self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
        expect: Expect,
        lease: LeaseId,
    ) -> Self {
        let lease = Some(lease);
        self.with(KeyOperation::Put { key: key.into(), value: value.into(), expect, lease })
    }

    /// Adds a delete.
    pub fn delete(self, key: impl Into<String>, expect: Expect) -> Self {
        self.with(KeyOperation::Delete { key: key.into(), expect })
    }

    /// Adds a check.
    pub fn check(self, key: impl Into<String>, expect: Expect) -> Self {
        self.with(KeyOperation::Check { key: key.into(), expect })
    }

    fn with(mut self, operation: KeyOperation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Refuses transactions that etcd refuses too.
    pub(crate) fn validated(&self) -> Result<()> {
        let mut keys = HashSet::new();
        for operation in &self.operations {
            let key = operation.key();
            if key.is_empty() {
                return Err(Error::Invalid { what: "a key is empty".to_owned() });
            }
            if !keys.insert(key) {
                let what = format!("a transaction names `{key}` twice");
                return Err(Error::Invalid { what });
            }
        }
        Ok(())
    }

    /// The leases that it puts keys under.
    pub(crate) fn leases(&self) -> impl Iterator<Item = LeaseId> + '_ {
        self.operations.iter().filter_map(|operation| match operation {
            KeyOperation::Put { lease, .. } => *lease,
            KeyOperation::Delete { .. } | KeyOperation::Check { .. } => None,
        })
    }
}

impl KeyOperation {
    /// The key of the operation.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } | Self::Check { key, .. } => key,
        }
    }

    /// The precondition of the operation.
    pub fn expect(&self) -> Expect {
        match self {
            Self::Put { expect, .. } | Self::Delete { expect, .. } | Self::Check { expect, .. } => {
                *expect
            }
        }
    }
}

impl Committed {
    /// The version of the keys that it wrote.
    pub fn version(&self) -> KeyVersion {
        KeyVersion(self.revision.0)
    }
}
