//! The leader among several processes: a key under a lease, and its revision in every transaction.
//!
//! Invariant: a process that no longer leads changes nothing. Its lease may end without its
//! knowledge, as when it is paused; therefore each of its transactions expects the leader's key
//! that it made itself (a lock alone would exclude nobody).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use snowmelt_kernel::process::raise_scheduling_priority;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::channel::EtcdChannel;
use super::messages::Compare;
use super::settings::EtcdSettings;
use super::{Etcd, leases};
use crate::{Error, Expect, LeaseId, Page, Result, Revision, Since, Store, Transaction};

/// The time to live of a leader's lease: the least that etcd gives with its usual times.
const LEADER_TTL: Duration = Duration::from_secs(2);
/// Time between two requests of a leader to keep its lease alive.
const KEEP_EVERY: Duration = Duration::from_millis(400);
/// The most time for the answer to one of them: another one, on another connection, is in time.
const KEEP_TIMEOUT: Duration = Duration::from_millis(700);
/// The pause after one that failed.
const PAUSE: Duration = Duration::from_millis(100);
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
    // The lease is kept as long as somebody waits for its end.
    lost: watch::Receiver<bool>,
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
        let mut lost = self.lost.clone();
        // An error is the end of the task that keeps the lease: it leads no more either.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Ends the lead at once, so that the next leader need not wait.
    pub async fn resign(self) -> Result<()> {
        drop(self.lost);
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
        let lease = self.lease(LEADER_TTL).await?;
        let put = Transaction::new().put_leased(&*key, says.clone(), Expect::Absent, lease);
        match self.transaction(put).await {
            Ok(done) => self.leading(&key, lease, done.revision).map(Ok),
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

    fn leading(&self, key: &str, lease: LeaseId, term: Revision) -> Result<Lead> {
        let fence = Fence { key: self.inner.key(key), created: term.0.cast_signed() };
        let store = Self { inner: Arc::clone(&self.inner), fence: Some(Arc::new(fence)) };
        let ended = watch::Sender::new(false);
        let lost = ended.subscribe();
        keep(self.inner.channel.settings(), lease, ended)?;
        Ok(Lead { store, lease, term, lost })
    }
}

/// Keeps a lease alive, and says when it has ended. An etcd that is down for a while, with all its
/// members, has kept the lease.
///
/// The thread and the connection are its own: a process that is busy, or waits for etcd, leads on.
fn keep(settings: &EtcdSettings, lease: LeaseId, ended: watch::Sender<bool>) -> Result<()> {
    let settings = settings.clone();
    let failed = |error: std::io::Error| Error::Settings {
        what: format!("the thread that keeps the lead cannot be started: {error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let run = move || {
        if let Err(error) = raise_scheduling_priority() {
            tracing::debug!(%error, "the thread that keeps the lead runs without priority");
        }
        runtime.block_on(async {
            tokio::select! {
                () = keep_alive(&settings, lease) => {
                    ended.send_replace(true);
                }
                // The process leads no more.
                () = ended.closed() => {}
            }
        });
    };
    std::thread::Builder::new().name("lead".to_owned()).spawn(run).map(drop).map_err(failed)
}

/// Returns when a lease has ended.
async fn keep_alive(settings: &EtcdSettings, lease: LeaseId) {
    let mut was_kept = true;
    loop {
        let reason = match EtcdChannel::new(settings.clone()) {
            Ok(channel) => match keep_by(&channel, lease, &mut was_kept).await {
                None => return,
                Some(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        if was_kept {
            tracing::warn!(reason, "the lease of the leader cannot be kept alive");
        }
        was_kept = false;
        sleep(PAUSE).await;
    }
}

/// Keeps a lease alive until that fails: the reason is returned, or none if the lease has ended.
async fn keep_by(channel: &EtcdChannel, lease: LeaseId, was_kept: &mut bool) -> Option<String> {
    loop {
        let keeping = leases::keep_alive(channel, lease.0.cast_signed());
        match timeout(KEEP_TIMEOUT, keeping).await {
            Ok(Ok(true)) => *was_kept = true,
            Ok(Ok(false)) => return None,
            Ok(Err(failure)) => return Some(failure.reason().to_owned()),
            Err(_) => return Some("etcd does not answer".to_owned()),
        }
        sleep(KEEP_EVERY).await;
    }
}

fn leader_key(name: &str) -> String {
    format!("leader/{name}")
}
