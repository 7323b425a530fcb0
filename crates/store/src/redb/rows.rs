//! The tables of the file, and the reads and writes of one transaction.

use std::ops::Bound;

use ::redb::{
    AccessGuard, ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use bytes::Bytes;

use super::write_failure::WriteFailure;
use crate::apply::StoreRows;
use crate::{EntryPage, KeyVersion, LeaseId, Page, Revision, StoreEntry};

/// The table of entries: key to version and value.
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// The table of keys under a lease, with the number of the lease. It is separate, so that the start
/// of a server does not read all entries.
const LEASED: TableDefinition<&str, u64> = TableDefinition::new("leased");
/// The table of numbers about the store as a whole.
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");

const REVISION: &str = "revision";

type StoredValue<'a> = AccessGuard<'a, (u64, &'static [u8])>;

/// The tables, opened for one write.
pub(super) struct WriteTables<'a> {
    entries: Table<'a, &'static str, (u64, &'static [u8])>,
    leased: Table<'a, &'static str, u64>,
    numbers: Table<'a, &'static str, u64>,
}

impl<'a> WriteTables<'a> {
    pub fn of(write: &'a WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            entries: write.open_table(ENTRIES)?,
            leased: write.open_table(LEASED)?,
            numbers: write.open_table(NUMBERS)?,
        })
    }

    pub fn revision(&self) -> Result<Revision, WriteFailure> {
        revision_in(&self.numbers)
    }

    pub fn set_revision(&mut self, revision: Revision) -> Result<(), WriteFailure> {
        self.numbers.insert(REVISION, revision.0)?;
        Ok(())
    }
}

impl StoreRows for WriteTables<'_> {
    type Failure = WriteFailure;

    fn version(&self, key: &str) -> Result<Option<KeyVersion>, WriteFailure> {
        Ok(self.entries.get(key)?.map(|value| KeyVersion(value.value().0)))
    }

    fn put(
        &mut self,
        key: &str,
        value: &Bytes,
        version: KeyVersion,
        lease: Option<LeaseId>,
    ) -> Result<(), WriteFailure> {
        self.entries.insert(key, (version.0, &value[..]))?;
        match lease {
            Some(lease) => self.leased.insert(key, lease.0)?,
            None => self.leased.remove(key)?,
        };
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), WriteFailure> {
        self.entries.remove(key)?;
        self.leased.remove(key)?;
        Ok(())
    }
}

/// The revision of the store.
pub(super) fn revision(read: &ReadTransaction) -> Result<Revision, WriteFailure> {
    table(read, NUMBERS)?.map_or(Ok(Revision::default()), |table| revision_in(&table))
}

fn revision_in(numbers: &impl ReadableTable<&'static str, u64>) -> Result<Revision, WriteFailure> {
    let found = numbers.get(REVISION)?;
    Ok(Revision(found.map_or(0, |number| number.value())))
}

/// The entry of a key.
pub(super) fn entry(read: &ReadTransaction, key: &str) -> Result<Option<StoreEntry>, WriteFailure> {
    let Some(table) = table(read, ENTRIES)? else { return Ok(None) };
    Ok(table.get(key)?.map(|value| made(key, &value)))
}

/// A page of entries.
pub(super) fn list(
    read: &ReadTransaction,
    prefix: &str,
    page: &Page,
) -> Result<EntryPage, WriteFailure> {
    let mut listed = EntryPage { revision: revision(read)?, ..EntryPage::default() };
    let Some(table) = table(read, ENTRIES)? else { return Ok(listed) };
    for row in table.range::<&str>((page.begin(prefix), Bound::Unbounded))? {
        let (key, value) = row?;
        if !key.value().starts_with(prefix) {
            break;
        }
        if page.limit.is_some_and(|limit| listed.entries.len() >= limit) {
            listed.more = true;
            break;
        }
        listed.entries.push(made(key.value(), &value));
    }
    Ok(listed)
}

/// Writes all entries that are not under a lease, with their versions and the revision.
pub(super) fn copy(
    read: &ReadTransaction,
    to: &mut WriteTables<'_>,
) -> Result<Revision, WriteFailure> {
    let at = revision(read)?;
    let leased = table(read, LEASED)?;
    if let Some(entries) = table(read, ENTRIES)? {
        for row in entries.iter()? {
            let (key, value) = row?;
            let is_leased = match &leased {
                Some(leased) => leased.get(key.value())?.is_some(),
                None => false,
            };
            if !is_leased {
                to.entries.insert(key.value(), value.value())?;
            }
        }
    }
    to.set_revision(at)?;
    Ok(at)
}

/// The keys under a lease, or under any lease.
pub(super) fn leased(
    read: &ReadTransaction,
    lease: Option<LeaseId>,
) -> Result<Vec<String>, WriteFailure> {
    let Some(table) = table(read, LEASED)? else { return Ok(Vec::new()) };
    let mut keys = Vec::new();
    for row in table.iter()? {
        let (key, found) = row?;
        if lease.is_none_or(|lease| lease.0 == found.value()) {
            keys.push(key.value().to_owned());
        }
    }
    Ok(keys)
}

fn made(key: &str, value: &StoredValue<'_>) -> StoreEntry {
    let (version, value) = value.value();
    let value = Bytes::copy_from_slice(value);
    StoreEntry { key: key.to_owned(), value, version: KeyVersion(version) }
}

/// A table; absent before the first write.
fn table<V: ::redb::Value + 'static>(
    read: &ReadTransaction,
    table: TableDefinition<&'static str, V>,
) -> Result<Option<ReadOnlyTable<&'static str, V>>, WriteFailure> {
    match read.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}
