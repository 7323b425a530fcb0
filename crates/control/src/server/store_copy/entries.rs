//! Records from one store to another: both are read in the order of their keys, and what differs is
//! written.

use std::collections::VecDeque;

use snowmelt_store::{Expect, KeyOperation, Page, Result, Store, StoreEntry, Transaction};
use snowmelt_types::Digest;

use super::CopyStep;
use crate::state::records::format::COPYING_KEY;

/// The prefix of the keys that say who leads, which are of no platform.
const LEADERS: &str = "leader/";
/// The entries that are read at once: one may have megabytes.
const READ_AT_ONCE: usize = 64;
/// The most operations of a transaction: etcd takes 128, of which some are its own.
const MAX_OPERATIONS: usize = 60;
/// The bytes at which a transaction is written: etcd takes 1.5 MiB.
const WRITTEN_FROM: usize = 512 << 10;
/// The most bytes of a value that are in a transaction: longer ones are files.
const IN_TRANSACTION: usize = 64 << 10;

/// The records of a store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordSum {
    pub records: u64,
    pub digest: Digest,
}

/// Whether a key says something of one store, and is not copied.
pub(super) fn is_apart(key: &str) -> bool {
    key == COPYING_KEY || key.starts_with(LEADERS)
}

/// Makes the records of a store those of another one.
pub(super) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    watch: &(dyn Fn(CopyStep) + Send + Sync),
) -> Result<()> {
    let mut source = Walk::of(from);
    let mut target = Walk::of(to);
    let mut batch = CopyBatch::default();
    let mut records = 0;
    let mut bytes = 0;
    while let Some(entry) = source.next().await? {
        // Left by an earlier attempt, before the source was used again.
        while let Some(extra) = target.next_if(|at| at.key < entry.key).await? {
            batch.delete(extra.key);
        }
        records += 1;
        bytes += entry.value.len() as u64;
        let there = target.next_if(|at| at.key == entry.key).await?;
        if there.is_none_or(|there| there.value != entry.value) {
            batch.put(entry);
        }
        if batch.is_full() {
            std::mem::take(&mut batch).write(to).await?;
            watch(CopyStep::Records(records, bytes));
        }
    }
    while let Some(extra) = target.next().await? {
        batch.delete(extra.key);
        if batch.is_full() {
            std::mem::take(&mut batch).write(to).await?;
        }
    }
    batch.write(to).await?;
    watch(CopyStep::Records(records, bytes));
    Ok(())
}

/// Reads all records of a store.
pub(super) async fn sum(
    store: &dyn Store,
    watch: &(dyn Fn(CopyStep) + Send + Sync),
) -> Result<RecordSum> {
    let mut walk = Walk::of(store);
    let mut sum = RecordSum { records: 0, digest: Digest::of("") };
    while let Some(entry) = walk.next().await? {
        let parts = [sum.digest.as_str().as_bytes(), entry.key.as_bytes(), &entry.value];
        sum = RecordSum { records: sum.records + 1, digest: Digest::of_parts(parts) };
        if sum.records.is_multiple_of(READ_AT_ONCE as u64) {
            watch(CopyStep::Compared(sum.records));
        }
    }
    Ok(sum)
}

/// The records of a store in the order of their keys.
struct Walk<'a> {
    store: &'a dyn Store,
    read: VecDeque<StoreEntry>,
    /// The next page to read; `None` after the last one.
    page: Option<Page>,
}

impl<'a> Walk<'a> {
    fn of(store: &'a dyn Store) -> Self {
        Self { store, read: VecDeque::new(), page: Some(Page::first(READ_AT_ONCE)) }
    }

    async fn next(&mut self) -> Result<Option<StoreEntry>> {
        self.next_if(|_| true).await
    }

    /// Takes the next record if it is such a one.
    async fn next_if(
        &mut self,
        is_such: impl Fn(&StoreEntry) -> bool,
    ) -> Result<Option<StoreEntry>> {
        while self.read.is_empty() {
            let Some(page) = self.page.take() else { return Ok(None) };
            let listed = self.store.list("", page).await?;
            let last = listed.entries.last().filter(|_| listed.more);
            self.page = last.map(|last| Page::after(&*last.key, READ_AT_ONCE));
            self.read = listed.entries.into();
            self.read.retain(|entry| !is_apart(&entry.key));
        }
        Ok(self.read.pop_front_if(|entry| is_such(entry)))
    }
}

/// Changes that are written together.
#[derive(Default)]
struct CopyBatch {
    transaction: Transaction,
    bytes: usize,
}

impl CopyBatch {
    fn put(&mut self, entry: StoreEntry) {
        self.bytes += entry.key.len() + entry.value.len().min(IN_TRANSACTION);
        let StoreEntry { key, value, .. } = entry;
        let put = KeyOperation::Put { key, value, expect: Expect::Any, lease: None };
        self.transaction.operations.push(put);
    }

    fn delete(&mut self, key: String) {
        self.transaction.operations.push(KeyOperation::Delete { key, expect: Expect::Any });
    }

    fn is_full(&self) -> bool {
        self.transaction.operations.len() >= MAX_OPERATIONS || self.bytes >= WRITTEN_FROM
    }

    async fn write(self, to: &dyn Store) -> Result<()> {
        if self.transaction.operations.is_empty() {
            return Ok(());
        }
        to.transaction(self.transaction).await.map(drop)
    }
}
