//! The leader among several processes: a key under a lease, and its revision in every transaction.
//!
//! Invariant: a process that no longer leads changes nothing. Its lease may end without its
//! knowledge, as when it is paused; therefore each of its transactions expects the leader's key
//! that it made itself (a lock alone would exclude nobody).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::time::timeout;

use super::Etcd;
use super::lead_lease::{self, Keeping, LEADER_TTL, LeadWatch, keep};
use super::messages::Compare;
use crate::{Error, Expect, LeaseId, Page, Result, Revision, Since, Store, Transaction};

/// The most time that a candidate waits before it looks again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The condition that all transactions of a leader have.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    key: Vec<u8>,
    created: i64,
}

impl Fence {
    pub fn compare(&self) -> Compare {
        Compare::created(self.key.clone(), self.created)
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn created(&self) -> i64 {
        self.created
    }
}

/// The lead of this process. It ends when this is dropped, at the latest after the time to live of
/// its lease. While etcd does not answer, the process may or may not lead: it changes nothing.
#[derive(Debug)]
pub struct Lead {
    store: Etcd,
    lease: LeaseId,
    term: Revision,
    watch: LeadWatch,
    keeping: Keeping,
}

/// Another process that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLead {
    /// The text that it has put to its key.
    pub says: Bytes,
    /// The revision that created its key.
    pub term: Revision,
}

impl Lead {
    /// The store whose transactions are refused with [`Error::Deposed`] once another process leads.
    pub fn store(&self) -> Etcd {
        self.store.clone()
    }

    /// The revision that created the leader's key: it grows with each leader.
    pub fn term(&self) -> Revision {
        self.term
    }

    /// Waits until etcd says that the lease has ended. Another process may lead before, but not
    /// without the knowledge of etcd, which then refuses the transactions of this one.
    pub async fn lost(&self) {
        self.watch.ended().await;
    }

    /// The knowledge of this process whether it leads.
    pub fn watch(&self) -> LeadWatch {
        self.watch.clone()
    }

    /// Ends the lead at once, so that the next leader need not wait.
    pub async fn resign(self) -> Result<()> {
        drop(self.keeping);
        // Nobody here is sure any more when another process begins to lead.
        self.watch.ended().await;
        self.store.revoke(self.lease).await
    }
}

impl Etcd {
    /// Leads if no other process does; otherwise returns which one leads. `says` is what other
    /// processes learn of this one.
    pub async fn try_lead(&self, name: &str, says: &Bytes) -> Result<Result<Lead, OtherLead>> {
        let key = leader_key(name);
        if let Some(entry) = self.get(&key).await? {
            return Ok(Err(OtherLead { says: entry.value, term: Revision(entry.version.0) }));
        }
        let asked_at = lead_lease::now();
        let lease = self.lease(LEADER_TTL).await?;
        let put = Transaction::new().put_leased(&*key, says.clone(), Expect::Absent, lease);
        match self.transaction(put).await {
            Ok(done) => self.leading(&key, lease, done.revision, asked_at).map(Ok),
            Err(Error::Conflict { .. } | Error::LeaseOver { .. }) => {
                let _ = self.revoke(lease).await;
                let other = self.get(&key).await?.map_or_else(
                    || OtherLead { says: Bytes::new(), term: Revision::default() },
                    |entry| OtherLead { says: entry.value, term: Revision(entry.version.0) },
                );
                Ok(Err(other))
            }
            Err(error) => {
                let _ = self.revoke(lease).await;
                Err(error)
            }
        }
    }

    /// Waits until no process leads, or for some seconds.
    pub async fn await_no_leader(&self, name: &str) -> Result<()> {
        let key = leader_key(name);
        let listed = self.list(&key, Page::first(1)).await?;
        if listed.entries.first().is_none_or(|entry| entry.key != key) {
            return Ok(());
        }
        let mut changes = self.watch(&key, Since::Revision(listed.revision.next())).await?;
        // The first change of a leader's key is its end.
        if let Ok(Some(Err(error))) = timeout(LOOK_EVERY, changes.next()).await
            && !matches!(error, Error::Compacted { .. })
        {
            return Err(error);
        }
        Ok(())
    }

    fn leading(
        &self,
        key: &str,
        lease: LeaseId,
        term: Revision,
        asked_at: Duration,
    ) -> Result<Lead> {
        let fence = Fence { key: self.inner.key(key), created: term.0.cast_signed() };
        let store = Self { inner: Arc::clone(&self.inner), fence: Some(Arc::new(fence)) };
        let (watch, keeping) = keep(self.inner.channel.settings(), lease, asked_at)?;
        Ok(Lead { store, lease, term, watch, keeping })
    }
}

fn leader_key(name: &str) -> String {
    format!("leader/{name}")
}
