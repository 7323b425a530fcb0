//! The versions of UDFs that engines use: leased now, or lately.
//!
//! An engine stays with the version that it found, and leases it again and again. Invariant: such a
//! version is not removed because newer ones exist, also after a restart of the server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_store::{Expect, StoreEntry, Transaction};
use snowmelt_types::{ErrorReport, Report, Tenant};

use super::udf_keys::{self, USES, use_key, without};
use super::{PAGE, Records, collect, parse, written};

/// The number of versions of a UDF that are kept, in use or not.
const MAX_VERSIONS: usize = 16;

/// How long a version stays in use after its last lease.
const USED_FOR_MS: u64 = 7 * 24 * 3600 * 1000;

/// The interval at which the time of a use is written again.
const WRITTEN_EVERY_MS: u64 = 3600 * 1000;

/// The most versions of a name that are kept, with those in use.
const MAX_KEPT: usize = 64;

/// The number of leases of each version, by the version's key.
#[derive(Clone, Debug, Default)]
pub(super) struct LeasedVersions(Arc<Mutex<HashMap<String, usize>>>);

/// A version that is leased; dropping it ends that.
#[derive(Debug)]
pub(crate) struct LeasedVersion {
    all: LeasedVersions,
    key: String,
}

impl LeasedVersions {
    fn change(&self, key: &str, change: impl FnOnce(usize) -> usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = change(all.get(key).copied().unwrap_or_default());
        match count {
            0 => drop(all.remove(key)),
            _ => drop(all.insert(key.to_owned(), count)),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }
}

impl Drop for LeasedVersion {
    fn drop(&mut self) {
        self.all.change(&self.key, |count| count.saturating_sub(1));
    }
}

/// A version that is not the last one of its name, and that no engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub tenant: Tenant,
    key: String,
    /// The length of the version's record, in bytes.
    pub bytes: u64,
}

impl Records {
    /// Counts a lease of a version from now on.
    pub fn lease_udf(&self, tenant: &Tenant, name: &str, version: u32) -> LeasedVersion {
        let all = self.leased.clone();
        let key = udf_keys::key(tenant, name, version);
        all.change(&key, |count| count + 1);
        LeasedVersion { all, key }
    }

    /// Notes that a version is used now, at most once an hour.
    pub async fn note_use(&self, of: &LeasedVersion, now_ms: u64) -> Result<(), ErrorReport> {
        let key = use_key(&of.key);
        let last: Option<u64> = self.get(&key).await?;
        if last.is_some_and(|last| now_ms.saturating_sub(last) < WRITTEN_EVERY_MS) {
            return Ok(());
        }
        let put = self.store.put(&key, written(&now_ms)?.into(), Expect::Any).await;
        put.map(drop).map_err(|error| error.report())
    }

    /// Returns those of the `known` versions, oldest first, that are to be removed so that there is
    /// room for one more: versions that no engine uses, and, if too many are kept, also used ones.
    pub(super) async fn removable(
        &self,
        tenant: &Tenant,
        name: &str,
        known: &[u32],
        now_ms: u64,
    ) -> Result<Vec<u32>, ErrorReport> {
        let old = &known[..known.len().saturating_sub(MAX_VERSIONS - 1)];
        if old.is_empty() {
            return Ok(Vec::new());
        }
        let in_use = self.in_use(&udf_keys::prefix(tenant, name), now_ms).await?;
        let is_used = |version: &u32| {
            let key = udf_keys::key(tenant, name, *version);
            in_use.contains(&key) || self.leased.has(&key)
        };
        let too_many = known.len().saturating_sub(MAX_KEPT - 1);
        let may_go = |(at, version): &(usize, &u32)| *at < too_many || !is_used(version);
        Ok(old.iter().enumerate().filter(may_go).map(|(_, version)| *version).collect())
    }

    /// Returns the keys of versions with a prefix that were leased lately.
    async fn in_use(&self, prefix: &str, now_ms: u64) -> Result<BTreeSet<String>, ErrorReport> {
        let prefix = use_key(prefix);
        let all = collect(&*self.store, &prefix, PAGE, |entry| {
            let is_recent = now_ms.saturating_sub(parse::<u64>(entry)?) < USED_FOR_MS;
            Ok(entry.key.strip_prefix(USES).filter(|_| is_recent).map(str::to_owned))
        });
        Ok(all.await?.into_iter().flatten().collect())
    }

    /// Returns the versions that are not the last ones of their names and that no engine uses, of
    /// all tenants or of one.
    pub async fn superseded(
        &self,
        of: Option<&Tenant>,
        now_ms: u64,
    ) -> Result<Vec<Superseded>, ErrorReport> {
        let prefix = of.map_or_else(|| udf_keys::PREFIX.to_owned(), udf_keys::all_of);
        let in_use = self.in_use(&prefix, now_ms).await?;
        let of_entry = |entry: &StoreEntry| Ok((entry.key.to_string(), entry.value.len() as u64));
        let all = collect(&*self.store, &prefix, PAGE, of_entry).await?;
        let name = |key: &str| key.rsplit_once('/').map(|(name, _)| name.to_owned());
        let followed = all.windows(2).filter(|two| name(&two[0].0) == name(&two[1].0));
        let gone = followed.map(|two| two[0].clone());
        let unused = gone.filter(|(key, _)| !in_use.contains(key) && !self.leased.has(key));
        Ok(unused
            .filter_map(|(key, bytes)| {
                Some(Superseded { tenant: udf_keys::tenant(&key)?, key, bytes })
            })
            .collect())
    }

    /// Removes versions, each by itself, so that an interruption leaves whole ones.
    pub async fn remove_superseded(&self, gone: &[Superseded]) -> Result<(), ErrorReport> {
        for Superseded { key, .. } in gone.iter().filter(|one| !self.leased.has(&one.key)) {
            let removal = without(Transaction::new(), key);
            self.store.transaction(removal).await.map_err(|error| error.report())?;
        }
        Ok(())
    }
}
