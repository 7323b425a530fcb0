//! The application of a transaction to rows, the same in every backend of this crate.

use bytes::Bytes;

use crate::{Change, Committed, Error, Event, LeaseId, Operation, Result, Revision};
use crate::{Transaction, Version};

/// The rows that one transaction reads and writes. If the transaction fails, the backend rolls
/// back.
pub(crate) trait Rows {
    type Failure: From<Error>;

    fn version(&self, key: &str) -> Result<Option<Version>, Self::Failure>;

    fn put(
        &mut self,
        key: &str,
        value: &Bytes,
        version: Version,
        lease: Option<LeaseId>,
    ) -> Result<(), Self::Failure>;

    fn delete(&mut self, key: &str) -> Result<(), Self::Failure>;
}

/// A transaction that was applied, with its changes.
#[derive(Debug)]
pub(crate) struct Applied {
    pub committed: Committed,
    pub events: Vec<Event>,
}

/// Applies a transaction to a store with this revision. All preconditions are checked before the
/// first write.
pub(crate) fn apply<R: Rows>(
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
        events.extend(change.map(|(key, change)| Event { revision: at.next(), key, change }));
    }
    let revision = if events.is_empty() { at } else { at.next() };
    Ok(Applied { committed: Committed { revision, found }, events })
}

fn write<R: Rows>(
    rows: &mut R,
    operation: Operation,
    found: Option<Version>,
    revision: Revision,
) -> Result<Option<(String, Change)>, R::Failure> {
    match operation {
        Operation::Put { key, value, lease, .. } => {
            rows.put(&key, &value, Version(revision.0), lease)?;
            Ok(Some((key, Change::Put(value))))
        }
        Operation::Delete { key, .. } if found.is_some() => {
            rows.delete(&key)?;
            Ok(Some((key, Change::Delete)))
        }
        Operation::Delete { .. } | Operation::Check { .. } => Ok(None),
    }
}
