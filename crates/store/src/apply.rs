//! The application of a transaction to rows, the same in every backend of this crate.

use bytes::Bytes;

use crate::{Committed, Error, KeyChange, KeyOperation, LeaseId, Result, Revision, StoreEvent};
use crate::{KeyVersion, Transaction};

/// The rows that one transaction reads and writes. If the transaction fails, the backend rolls
/// back.
pub(crate) trait StoreRows {
    type Failure: From<Error>;

    fn version(&self, key: &str) -> Result<Option<KeyVersion>, Self::Failure>;

    fn put(
        &mut self,
        key: &str,
        value: &Bytes,
        version: KeyVersion,
        lease: Option<LeaseId>,
    ) -> Result<(), Self::Failure>;

    fn delete(&mut self, key: &str) -> Result<(), Self::Failure>;
}

/// A transaction that was applied, with its changes.
#[derive(Debug)]
pub(crate) struct Applied {
    pub committed: Committed,
    pub events: Vec<StoreEvent>,
}

/// Applies a transaction to a store with this revision. All preconditions are checked before the
/// first write.
pub(crate) fn apply<R: StoreRows>(
    rows: &mut R,
    transaction: Transaction,
    at: Revision,
) -> Result<Applied, R::Failure> {
    transaction.validated()?;
    let mut found = Vec::with_capacity(transaction.operations.len());
    for operation in &transaction.operations {
        let version = rows.version(operation.key())?;
        if !operation.expect().is_met(version) {
            let key = operation.key().to_owned();
            return Err(Error::Conflict { key, found: version }.into());
        }
        found.push(version);
    }
    let mut events = Vec::new();
    for (operation, found) in transaction.operations.into_iter().zip(&found) {
        let change = write(rows, operation, *found, at.next())?;
        events.extend(change.map(|(key, change)| StoreEvent { revision: at.next(), key, change }));
    }
    let revision = if events.is_empty() { at } else { at.next() };
    Ok(Applied { committed: Committed { revision, found }, events })
}

fn write<R: StoreRows>(
    rows: &mut R,
    operation: KeyOperation,
    found: Option<KeyVersion>,
    revision: Revision,
) -> Result<Option<(String, KeyChange)>, R::Failure> {
    match operation {
        KeyOperation::Put { key, value, lease, .. } => {
            rows.put(&key, &value, KeyVersion(revision.0), lease)?;
            Ok(Some((key, KeyChange::Put(value))))
        }
        KeyOperation::Delete { key, .. } if found.is_some() => {
            rows.delete(&key)?;
            Ok(Some((key, KeyChange::Delete)))
        }
        KeyOperation::Delete { .. } | KeyOperation::Check { .. } => Ok(None),
    }
}
