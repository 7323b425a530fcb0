//! The store in etcd, for several processes and hosts: versions 3.4 and later.
//!
//! The calls of etcd's protocol are made here over HTTP/2, with messages that are written by hand:
//! a client that is generated needs the compiler of protocol buffers for every build.
//!
//! Keys are `PREFIX/keys/KEY`; beside them are the slots of transactions (`slots.rs`). A revision
//! is that of the whole etcd, so it also grows by what other platforms write.

mod channel;
mod connection;
mod grpc;
mod lead_lease;
mod leader;
mod leases;
mod messages;
mod settings;
mod slots;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch as watches;

use channel::EtcdChannel;
use grpc::CallFailure;
pub use lead_lease::LeadWatch;
pub use leader::{Lead, OtherLead};
use messages::{KeyValue, RangeFound, RangeQuery, StatusRequest, StatusResponse, revision};
pub use settings::{EtcdServer, EtcdSettings};
use slots::Slots;
pub use write::{MAX_BYTES, MAX_OPERATIONS};

use crate::{Committed, EntryPage, Error, KeyVersion, LeaseId, Page, Result, Revision};
use crate::{Since, Store, StoreEntry, Transaction, Watch};

/// The entries of a page that are asked for at once; fewer if together they are too long.
const CHUNK: usize = 1024;

/// A store in etcd. Clones of it are the same store.
#[derive(Clone, Debug)]
pub struct Etcd {
    inner: Arc<EtcdInner>,
    /// The condition of all transactions, if this is the store of a leader.
    fence: Option<Arc<leader::Fence>>,
}

#[derive(Debug)]
struct EtcdInner {
    channel: Arc<EtcdChannel>,
    slots: Slots,
    /// Closed with the store, which ends the watches.
    open: watches::Sender<()>,
}

/// A range of keys of etcd, without its end.
#[derive(Clone, Debug)]
struct KeyRange {
    from: Vec<u8>,
    to: Vec<u8>,
}

/// The state of a server of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStatus {
    /// The version of etcd.
    pub version: String,
    /// The size of its database in bytes.
    pub bytes: u64,
    /// Alarms and errors, such as a database that is full.
    pub errors: Vec<String>,
}

impl Etcd {
    /// Makes a store. Nothing is sent yet: etcd need not be there.
    ///
    /// # Errors
    /// [`Error::Settings`] for settings that contradict each other, and for files that cannot be
    /// read.
    pub fn new(settings: EtcdSettings) -> Result<Self> {
        let channel = Arc::new(EtcdChannel::new(settings)?);
        let open = watches::Sender::new(());
        let inner = EtcdInner { channel, slots: Slots::default(), open };
        Ok(Self { inner: Arc::new(inner), fence: None })
    }

    /// The servers in words.
    pub fn place(&self) -> String {
        self.inner.channel.settings().place()
    }

    /// Asks a server for its version and state.
    pub async fn status(&self) -> Result<EtcdStatus> {
        let asked = self.inner.channel.repeat("Maintenance/Status", &StatusRequest {}).await;
        let status: StatusResponse = asked.map_err(|failure| self.inner.channel.error(&failure))?;
        let bytes = unsigned(status.size);
        Ok(EtcdStatus { version: status.version, bytes, errors: status.errors })
    }
}

impl EtcdInner {
    /// The key of etcd for a key of the store.
    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}/keys/{key}", self.channel.settings().prefix).into_bytes()
    }

    /// The bytes of a key of etcd before that of the store.
    fn strip(&self) -> usize {
        self.key("").len()
    }

    fn range_of(&self, prefix: &str) -> KeyRange {
        let from = self.key(prefix);
        let mut to = from.clone();
        // The prefix of the platform ends with a byte that can be incremented.
        while to.last() == Some(&u8::MAX) {
            to.pop();
        }
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        KeyRange { from, to }
    }

    async fn range(&self, request: &RangeQuery) -> Result<RangeFound, CallFailure> {
        self.channel.repeat("KV/Range", request).await
    }

    fn entry(&self, found: &KeyValue) -> StoreEntry {
        StoreEntry {
            key: text_of(&found.key, self.strip()),
            value: found.value.clone(),
            version: KeyVersion(unsigned(found.mod_revision)),
        }
    }

    /// A page of one snapshot, read in parts. `None` if the snapshot was compacted meanwhile.
    async fn page(&self, prefix: &str, page: &Page) -> Result<Option<EntryPage>> {
        let mut range = self.range_of(prefix);
        if let Some(after) = page.after.as_deref().filter(|after| *after >= prefix) {
            range.from = [self.key(after), vec![0]].concat();
        }
        if range.from >= range.to {
            // Nothing follows; the revision is still that of a snapshot.
            range.to = [range.from.clone(), vec![0]].concat();
        }
        let limit = page.limit.unwrap_or(usize::MAX);
        let mut listed = EntryPage { more: true, ..EntryPage::default() };
        let mut chunk = CHUNK;
        while listed.more {
            let wanted = (limit - listed.entries.len()).clamp(1, chunk);
            let request = RangeQuery {
                key: range.from.clone(),
                range_end: range.to.clone(),
                limit: wanted as i64,
                revision: listed.revision.0.cast_signed(),
                ..RangeQuery::default()
            };
            let found = match self.range(&request).await {
                Ok(found) => found,
                Err(failure) if failure.says("has been compacted") => return Ok(None),
                Err(failure) if failure.says(grpc::TOO_LONG) && wanted > 1 => {
                    chunk = wanted / 2;
                    continue;
                }
                Err(failure) => return Err(self.channel.error(&failure)),
            };
            if listed.revision == Revision::default() {
                listed.revision = Revision(unsigned(revision(found.header.as_ref())));
            }
            if limit == 0 {
                listed.more = !found.kvs.is_empty();
                break;
            }
            if let Some(last) = found.kvs.last() {
                range.from = [&last.key[..], &[0]].concat();
            }
            listed.entries.extend(found.kvs.iter().map(|found| self.entry(found)));
            listed.more = found.more;
            if listed.entries.len() >= limit {
                break;
            }
        }
        Ok(Some(listed))
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<StoreEntry>> {
        let request = RangeQuery { key: self.inner.key(key), ..RangeQuery::default() };
        let found = self.inner.range(&request).await;
        let found = found.map_err(|failure| self.inner.channel.error(&failure))?;
        Ok(found.kvs.first().map(|found| self.inner.entry(found)))
    }

    async fn list(&self, prefix: &str, page: Page) -> Result<EntryPage> {
        loop {
            if let Some(listed) = self.inner.page(prefix, &page).await? {
                return Ok(listed);
            }
        }
    }

    async fn transaction(&self, transaction: Transaction) -> Result<Committed> {
        self.inner.transact(transaction, self.fence.as_deref()).await
    }

    async fn watch(&self, prefix: &str, since: Since) -> Result<Watch> {
        let range = self.inner.range_of(prefix);
        let closing = self.inner.open.subscribe();
        watch::open(&self.inner.channel, range, self.inner.strip(), since, closing).await
    }

    async fn lease(&self, ttl: Duration) -> Result<LeaseId> {
        leases::grant(&self.inner.channel, ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        let id = lease.0.cast_signed();
        match leases::keep_alive(&self.inner.channel, id).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::LeaseOver { lease }),
            Err(failure) => Err(self.inner.channel.error(&failure)),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        leases::revoke(&self.inner.channel, lease).await
    }
}

/// The key of the store for a key of etcd.
fn text_of(key: &[u8], strip: usize) -> String {
    String::from_utf8_lossy(key.get(strip..).unwrap_or_default()).into_owned()
}

/// Revisions of etcd are never negative.
fn unsigned(number: i64) -> u64 {
    number.max(0).cast_unsigned()
}
