//! Keys of clients on other hosts, without their texts, and when each was used last.
//!
//! The last use has a key of its own in the store: it is written often, and says nothing of what
//! the key may do.

use serde::{Deserialize, Serialize};
use snowmelt_store::{Expect, Transaction};
use snowmelt_types::{Digest, ErrorReport, NamePattern, Report, Role, Tenant};

use super::{Records, collect, parse, written};

/// The prefix of the keys of records.
const PREFIX: &str = "keys/";

/// The prefix of the keys of last uses.
const USES: &str = "key-uses/";

/// The number of records that are read or written at once: each is small.
const KEYS_PAGE: usize = 1024;
/// The most keys that one transaction changes: etcd takes two entries of each in 128.
const MAX_WRITTEN: usize = 60;

/// A key, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyRecord {
    pub id: String,
    pub tenant: Tenant,
    pub role: Role,
    #[serde(default)]
    pub grants: Vec<NamePattern>,
    #[serde(default)]
    pub note: String,
    /// The digest of the text.
    pub digest: Digest,
    pub created_ms: u64,
    pub created_by: String,
    #[serde(default)]
    pub expires_ms: Option<u64>,
}

impl Records {
    /// Writes keys; on return they survive a crash.
    pub async fn put_keys(&self, keys: &[KeyRecord]) -> Result<(), ErrorReport> {
        let mut all = Transaction::new();
        for key in keys {
            all = all.put(format!("{PREFIX}{}", key.id), written(key)?, Expect::Any);
        }
        self.store.transaction(all).await.map(drop).map_err(|error| error.report())
    }

    /// Removes keys; on return they stay removed after a crash.
    pub async fn remove_keys(&self, ids: &[String]) -> Result<(), ErrorReport> {
        for some in ids.chunks(MAX_WRITTEN) {
            let all = some.iter().fold(Transaction::new(), |all, id| {
                all.delete(format!("{PREFIX}{id}"), Expect::Any)
                    .delete(format!("{USES}{id}"), Expect::Any)
            });
            self.store.transaction(all).await.map_err(|error| error.report())?;
        }
        Ok(())
    }

    /// Returns all keys.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, ErrorReport> {
        collect(&*self.store, PREFIX, KEYS_PAGE, parse).await
    }

    /// Writes when keys were used last, in milliseconds since 1970.
    pub async fn put_key_uses(&self, uses: &[(String, u64)]) -> Result<(), ErrorReport> {
        for some in uses.chunks(MAX_WRITTEN) {
            let mut all = Transaction::new();
            for (id, used_ms) in some {
                all = all.put(format!("{USES}{id}"), written(used_ms)?, Expect::Any);
            }
            self.store.transaction(all).await.map_err(|error| error.report())?;
        }
        Ok(())
    }

    /// Returns when each key was used last.
    pub async fn key_uses(&self) -> Result<Vec<(String, u64)>, ErrorReport> {
        collect(&*self.store, USES, KEYS_PAGE, |entry| {
            let id = entry.key.strip_prefix(USES).unwrap_or_default().to_owned();
            Ok((id, parse(entry)?))
        })
        .await
    }

    /// Returns whether no other process writes these records.
    pub fn is_held(&self) -> bool {
        self.is_held
    }
}
