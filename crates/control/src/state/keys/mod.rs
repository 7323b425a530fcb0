//! The keys of clients on other hosts: each is looked up by its identifier in memory, and each change
//! is in the store before it takes effect.
//!
//! Invariants: the text of a key is nowhere but in the answer that makes it. Nobody makes, rotates or
//! revokes a key that may do more than they may. The last use is written in the background.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use snowmelt_api::{KeyRequest, KeyRotation, KeySummary, MadeKey};
use snowmelt_types::{Code, ErrorReport, Role, Tenant};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::records::{KeyRecord, Records};
use crate::access::identity::{Identity, KeyHolder};
use crate::access::key::{self, KeyLife, NewKey};
use crate::access::tokens::check_tenant;
use crate::now_ms;

/// The most keys of a tenant, and of all tenants.
const MAX_OF_TENANT: usize = 1_000;
const MAX_KEYS: usize = 10_000;

/// The most names of a key, and the longest note in bytes.
const MAX_GRANTS: usize = 64;
const MAX_NOTE: usize = 200;

/// How often last uses are written.
const USES_EVERY: Duration = Duration::from_secs(60);

/// How long a key that has expired is listed.
const EXPIRED_KEPT_MS: u64 = 30 * 24 * 3600 * 1000;

/// The keys of all tenants. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    records: Records,
    table: Arc<RwLock<HashMap<String, KeyEntry>>>,
    /// Locked while the store and the table are changed, so that they stay equal.
    changes: Arc<Mutex<()>>,
}

/// A key of the table. Dropping it ends what the holder has begun.
#[derive(Debug)]
struct KeyEntry {
    record: KeyRecord,
    until: watch::Sender<Option<u64>>,
    /// When it was used last, and the last use that is in the store; 0: never.
    used_ms: AtomicU64,
    stored_ms: AtomicU64,
}

/// The numbers of keys of a tenant, and of all tenants.
#[derive(Clone, Copy, Debug)]
struct KeyCounts {
    own: usize,
    all: usize,
}

impl KeyEntry {
    fn new(record: KeyRecord, used_ms: u64) -> Self {
        let until = watch::Sender::new(record.expires_ms);
        let stored_ms = AtomicU64::new(used_ms);
        Self { record, until, used_ms: AtomicU64::new(used_ms), stored_ms }
    }

    fn has_expired(&self, now: u64) -> bool {
        self.record.expires_ms.is_some_and(|expires| expires <= now)
    }

    fn summary(&self) -> KeySummary {
        let KeyRecord { id, tenant, role, grants, note, created_ms, created_by, .. } =
            self.record.clone();
        let used_ms = Some(self.used_ms.load(Ordering::Relaxed)).filter(|used| *used > 0);
        let expires_ms = self.record.expires_ms;
        KeySummary { id, tenant, role, grants, note, created_ms, created_by, expires_ms, used_ms }
    }
}

impl Keys {
    /// Reads the keys of a platform. One that lives for a command reads them when they are needed.
    pub async fn open(records: Records) -> Result<Self, ErrorReport> {
        let keys = Self { records, table: Arc::default(), changes: Arc::default() };
        if keys.records.is_held() {
            keys.load().await?;
        }
        Ok(keys)
    }

    async fn load(&self) -> Result<(), ErrorReport> {
        let uses: HashMap<_, _> = self.records.key_uses().await?.into_iter().collect();
        let records = self.records.keys().await?;
        let entries = records.into_iter().map(|record| {
            let used = uses.get(&record.id).copied().unwrap_or_default();
            (record.id.clone(), KeyEntry::new(record, used))
        });
        let entries = entries.collect();
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    /// Returns the holder of a key, and how long the key lasts. `None` for a text that is no key, or
    /// that of another one.
    pub fn holder(&self, text: &str) -> Option<(KeyHolder, KeyLife)> {
        let id = key::id(text)?;
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.get(id).filter(|entry| key::has_digest(text, &entry.record.digest))?;
        let KeyRecord { id, tenant, role, grants, .. } = entry.record.clone();
        entry.used_ms.store(now_ms(), Ordering::Relaxed);
        let holder = KeyHolder { tenant, role, grants, key: Some(id) };
        Some((holder, KeyLife::Watched(entry.until.subscribe())))
    }

    /// Returns the keys that a request may manage, the oldest first.
    pub async fn list(&self, identity: &Identity) -> Result<Vec<KeySummary>, ErrorReport> {
        self.refreshed().await?;
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let listed = table.values().filter(|entry| is_managed(identity, &entry.record));
        let mut listed: Vec<_> = listed.map(KeyEntry::summary).collect();
        listed.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        Ok(listed)
    }

    /// Makes a key of the tenant of a request.
    pub async fn make(
        &self,
        identity: &Identity,
        request: KeyRequest,
    ) -> Result<MadeKey, ErrorReport> {
        let now = now_ms();
        let expires_ms = expiry(&request, now)?;
        let KeyRequest { role, grants, note, .. } = request;
        let wrong = |problem: String| ErrorReport::new(Code::OPTION, problem);
        check_tenant(&identity.tenant, role).map_err(|problem| {
            wrong(problem).hint(if role == Role::Operator {
                "omit the tenant: the key of an operator names one with each request"
            } else {
                "name a tenant: `snowmelt token new TENANT`"
            })
        })?;
        if grants.len() > MAX_GRANTS {
            return Err(wrong(format!("a key is for at most {MAX_GRANTS} patterns of names")));
        }
        if note.len() > MAX_NOTE || note.chars().any(char::is_control) {
            return Err(wrong(format!("a note is one line of at most {MAX_NOTE} bytes")));
        }
        if !identity.covers(role, &grants) {
            let message = format!("nobody makes a key with more rights than their own: `{role}`");
            return Err(ErrorReport::new(Code::RIGHT_MISSING, message)
                .hint("name a role and names that are within your own"));
        }
        let made = NewKey::make()?;
        let record = KeyRecord {
            id: made.id,
            tenant: identity.tenant.clone(),
            role,
            grants,
            note,
            digest: made.digest,
            created_ms: now,
            created_by: identity.who(),
            expires_ms,
        };
        let by = identity.clone();
        let key = self.change(async move |keys| keys.add(&by, record, None).await).await?;
        Ok(MadeKey { text: made.text, key })
    }

    /// Makes a key with the limits of another one, which ends after the overlap. The new one lasts
    /// as long as the other was made for.
    pub async fn rotate(
        &self,
        identity: &Identity,
        id_of: &str,
        rotation: &KeyRotation,
    ) -> Result<MadeKey, ErrorReport> {
        let made = NewKey::make()?;
        let by = identity.clone();
        let NewKey { id, digest, text } = made;
        let overlap_ms = rotation.overlap_ms;
        let of = id_of.to_owned();
        // Under the lock of changes: another rotation may have given the key an earlier end.
        let rotated = self.change(async move |keys| {
            let old = keys.find(&by, &of)?;
            let now = now_ms();
            if old.expires_ms.is_some_and(|expires| expires <= now) {
                return Err(ErrorReport::new(Code::OPTION, format!("the key `{of}` has expired"))
                    .hint("make a new one: `snowmelt token new`"));
            }
            let lasts = |expires: u64| now.saturating_add(expires.saturating_sub(old.created_ms));
            let record = KeyRecord {
                id,
                digest,
                created_ms: now,
                created_by: by.who(),
                expires_ms: old.expires_ms.map(lasts),
                ..old.clone()
            };
            let ends = now.saturating_add(overlap_ms);
            let ends = old.expires_ms.map_or(ends, |expires| expires.min(ends));
            let replaced = KeyRecord { expires_ms: Some(ends), ..old };
            keys.add(&by, record, Some(replaced)).await
        });
        Ok(MadeKey { text, key: rotated.await? })
    }

    /// Removes a key, which ends what its holder has begun.
    pub async fn revoke(&self, identity: &Identity, id: &str) -> Result<(), ErrorReport> {
        self.refreshed().await?;
        let found = self.find(identity, id)?.id;
        self.change(async move |keys| keys.forget(vec![found]).await).await
    }

    /// Writes last uses and removes what has expired long ago, until the server ends.
    pub async fn keep(self, over: CancellationToken) {
        loop {
            let ends = over.run_until_cancelled(tokio::time::sleep(USES_EVERY)).await.is_none();
            let kept = self.change(async move |keys| keys.tidy().await).await;
            if let Err(error) = kept {
                tracing::warn!(%error, "the last uses of keys are not written");
            }
            if ends {
                return;
            }
        }
    }

    async fn tidy(&self) -> Result<(), ErrorReport> {
        let old = now_ms().saturating_sub(EXPIRED_KEPT_MS);
        self.forget(self.ids(|entry| entry.has_expired(old))).await?;
        let used: Vec<_> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let uses = table.iter().map(|(id, entry)| {
                let used = entry.used_ms.load(Ordering::Relaxed);
                (id.clone(), used, entry.stored_ms.swap(used, Ordering::Relaxed))
            });
            uses.filter(|(_, used, stored)| used != stored)
                .map(|(id, used, _)| (id, used))
                .collect()
        };
        self.records.put_key_uses(&used).await
    }

    /// Adds a key, and replaces another one; gives the new key as it is listed. It does not outlast
    /// the key with which it is made.
    async fn add(
        &self,
        by: &Identity,
        mut new: KeyRecord,
        replaced: Option<KeyRecord>,
    ) -> Result<KeySummary, ErrorReport> {
        if let Some(end) = self.end_of_maker(by)? {
            new.expires_ms = Some(new.expires_ms.map_or(end, |expires| expires.min(end)));
        }
        self.make_room(by, &new.tenant).await?;
        let changed: Vec<_> = replaced.into_iter().chain([new.clone()]).collect();
        self.records.put_keys(&changed).await?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for record in changed {
            match table.get_mut(&record.id) {
                Some(entry) => {
                    entry.until.send_replace(record.expires_ms);
                    entry.record = record;
                }
                None => drop(table.insert(record.id.clone(), KeyEntry::new(record, 0))),
            }
        }
        table.get(&new.id).map(KeyEntry::summary).ok_or_else(|| missing(&new.id))
    }

    /// Returns the end of the key of a request, if that has one. The key may have been revoked since
    /// the request began: then nothing is made with it.
    fn end_of_maker(&self, by: &Identity) -> Result<Option<u64>, ErrorReport> {
        let Some(id) = by.key() else { return Ok(None) };
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let own = table.get(id).filter(|entry| !entry.has_expired(now_ms()));
        own.map(|entry| entry.record.expires_ms).ok_or_else(key::ended)
    }

    /// Refuses a further key where there are the most. Keys that have expired make room. Operators
    /// can always make one: they have to help where tenants have taken all.
    async fn make_room(&self, by: &Identity, tenant: &Tenant) -> Result<(), ErrorReport> {
        let counts = || {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let own = table.values().filter(|entry| entry.record.tenant == *tenant).count();
            KeyCounts { own, all: table.len() }
        };
        let max_all = if by.is_operator() { usize::MAX } else { MAX_KEYS };
        let is_full = |counts: KeyCounts| counts.own >= MAX_OF_TENANT || counts.all >= max_all;
        if is_full(counts()) {
            let now = now_ms();
            self.forget(self.ids(|entry| entry.has_expired(now))).await?;
        }
        let now = counts();
        if !is_full(now) {
            return Ok(());
        }
        let message = if now.own >= MAX_OF_TENANT {
            format!("tenant `{tenant}` has {MAX_OF_TENANT} keys, which are the most")
        } else {
            format!("all tenants together have {MAX_KEYS} keys, which are the most")
        };
        Err(ErrorReport::new(Code::KEYS_MOST, message).hint(
            "`snowmelt token ls` lists them, `snowmelt token revoke` removes those that nobody uses",
        ))
    }

    async fn forget(&self, ids: Vec<String>) -> Result<(), ErrorReport> {
        self.records.remove_keys(&ids).await?;
        let ids: HashSet<_> = ids.into_iter().collect();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.retain(|id, _| !ids.contains(id));
        Ok(())
    }

    fn ids(&self, which: impl Fn(&KeyEntry) -> bool) -> Vec<String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().filter(|entry| which(entry)).map(|entry| entry.record.id.clone()).collect()
    }

    fn find(&self, identity: &Identity, id: &str) -> Result<KeyRecord, ErrorReport> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.get(id).map(|entry| &entry.record);
        found.filter(|record| is_managed(identity, record)).cloned().ok_or_else(|| missing(id))
    }

    /// Reads the keys again where other processes may have written them.
    async fn refreshed(&self) -> Result<(), ErrorReport> {
        if self.records.is_held() { Ok(()) } else { self.load().await }
    }

    /// Runs a change in a task of its own. If it were dropped with its caller between the write to
    /// the store and the write to the table, the two would differ.
    async fn change<T, F>(
        &self,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<T, ErrorReport>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ErrorReport>> + Send + 'static,
    {
        let keys = self.clone();
        let changes = Arc::clone(&self.changes).lock_owned().await;
        let changing = tokio::spawn(async move {
            let _changes = changes;
            keys.refreshed().await?;
            work(keys).await
        });
        changing.await.unwrap_or_else(|error| {
            Err(ErrorReport::new(Code::INTERNAL, format!("a change of keys failed: {error}")))
        })
    }
}

/// Returns whether a request may manage a key: one of its tenant that may do no more than it may.
fn is_managed(identity: &Identity, record: &KeyRecord) -> bool {
    identity.only().is_none_or(|tenant| *tenant == record.tenant)
        && identity.covers(record.role, &record.grants)
}

fn expiry(request: &KeyRequest, now: u64) -> Result<Option<u64>, ErrorReport> {
    let expires = match (request.expires_ms, request.ttl_ms) {
        (Some(_), Some(_)) => {
            let message = "a key has `expires_ms` or `ttl_ms`, and not both";
            return Err(ErrorReport::new(Code::OPTION, message));
        }
        (expires, ttl) => expires.or(ttl.map(|ttl| now.saturating_add(ttl))),
    };
    if expires.is_some_and(|expires| expires <= now) {
        return Err(ErrorReport::new(Code::OPTION, "a new key may not have expired already"));
    }
    Ok(expires)
}

/// Makes the error of a key that is not there, or not for this client. What is no identifier may be
/// the text of a key by mistake, and is not shown.
fn missing(id: &str) -> ErrorReport {
    let is_id = id.len() <= 16 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let shown =
        if is_id { format!("there is no key `{id}`") } else { "there is no such key".to_owned() };
    ErrorReport::new(Code::KEY_MISSING, shown)
        .hint("`snowmelt token ls` lists the keys of the tenant")
}

#[cfg(test)]
mod tests;
