//! Registered UDFs, by tenant, name and version.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use snowmelt_api::{FileRefs, UdfSource};
use snowmelt_store::{Error as StoreError, Expect, Page, StoreEntry, Transaction};
use snowmelt_types::{Code, ErrorReport, Report, Tenant};
use snowmelt_wire::Signature;

use super::udf_keys::{PREFIX, all_of, key, prefix, tenant, without};
use super::{Records, collect, parse, written};

/// The number of records that are read at once: a record has the code, which may have megabytes.
const PAGE: usize = 16;

/// Attempts to write next to another client that registers the same name.
const ATTEMPTS: usize = 8;

/// A version of a registered UDF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UdfRecord {
    pub version: u32,
    pub registered_ms: u64,
    pub signature: Signature,
    /// The code, which may define other functions as well.
    pub source: UdfSource,
}

impl UdfRecord {
    /// Returns the code as that of this function alone.
    pub fn source(&self) -> UdfSource {
        let signatures = Some(vec![self.signature.clone()]);
        UdfSource { signatures, ..self.source.clone() }
    }
}

/// The treatment of a registered function whose name a new one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The registered function gets another version.
    Replaced,
    /// The registered function stays, and the new one is refused.
    Refused,
}

/// The parts of a version's record that are listed.
#[derive(Clone, Debug)]
pub(crate) struct UdfEntry {
    pub version: u32,
    pub registered_ms: u64,
    pub signature: Signature,
    pub image: Option<String>,
    pub packages: Vec<String>,
    pub files: FileRefs,
    pub secrets: BTreeMap<String, String>,
}

impl From<UdfRecord> for UdfEntry {
    fn from(record: UdfRecord) -> Self {
        let UdfRecord { version, registered_ms, signature, source } = record;
        let UdfSource { image, packages, files, secrets, .. } = source;
        Self { version, registered_ms, signature, image, packages, files, secrets }
    }
}

fn refuse(name: &str, existing: Existing, versions: &[u32]) -> Result<(), ErrorReport> {
    if existing == Existing::Replaced || versions.is_empty() {
        return Ok(());
    }
    let message = format!("a function `{name}` is registered already");
    Err(ErrorReport::new(Code::FUNCTION_EXISTS, message)
        .hint("write CREATE OR REPLACE FUNCTION to give it another version"))
}

impl Records {
    /// Registers functions, each with the version after its last one: all of them or none.
    pub async fn put_udfs(
        &self,
        tenant: &Tenant,
        made: &[(Signature, UdfSource)],
        existing: Existing,
        now_ms: u64,
    ) -> Result<Vec<UdfRecord>, ErrorReport> {
        for _ in 0..ATTEMPTS {
            let mut transaction = Transaction::new();
            let mut records = Vec::new();
            for (signature, source) in made {
                let known = self.udf_versions(tenant, &signature.name).await?;
                refuse(&signature.name, existing, &known)?;
                let record = UdfRecord {
                    version: known.last().map_or(1, |last| last + 1),
                    registered_ms: now_ms,
                    signature: signature.clone(),
                    source: source.clone(),
                };
                let at = key(tenant, &signature.name, record.version);
                transaction = transaction.put(&at, written(&record)?, Expect::Absent);
                let old = self.removable(tenant, &signature.name, &known, now_ms).await?;
                for version in old {
                    transaction = without(transaction, &key(tenant, &signature.name, version));
                }
                records.push(record);
            }
            match self.store.transaction(transaction).await {
                Ok(_) => return Ok(records),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.report()),
            }
        }
        let message = "the functions are registered by many clients at the same time";
        Err(ErrorReport::new(Code::STATE, message).hint("register them again"))
    }

    /// Refuses a name that [`Records::put_udfs`] would refuse.
    pub async fn check_udf(
        &self,
        tenant: &Tenant,
        name: &str,
        existing: Existing,
    ) -> Result<(), ErrorReport> {
        refuse(name, existing, &self.udf_versions(tenant, name).await?)
    }

    /// Returns the versions of a name, oldest first.
    async fn udf_versions(&self, tenant: &Tenant, name: &str) -> Result<Vec<u32>, ErrorReport> {
        let number = |key: &str| key.rsplit('/').next().and_then(|text| text.parse().ok());
        let prefix = prefix(tenant, name);
        collect(&*self.store, &prefix, PAGE, |entry| Ok(number(&entry.key).unwrap_or(0))).await
    }

    /// Returns a version of a UDF; the last one if none is named.
    pub async fn udf(
        &self,
        tenant: &Tenant,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<UdfRecord>, ErrorReport> {
        let last = async || Ok(self.udf_versions(tenant, name).await?.last().copied());
        let version = match version {
            Some(version) => Some(version),
            None => last().await?,
        };
        let Some(version) = version else { return Ok(None) };
        self.get(&key(tenant, name, version)).await
    }

    /// Returns all versions of all UDFs of a tenant, by name, oldest first.
    pub async fn udfs(&self, tenant: &Tenant) -> Result<Vec<UdfEntry>, ErrorReport> {
        let entry = |entry: &_| parse::<UdfRecord>(entry).map(UdfEntry::from);
        collect(&*self.store, &all_of(tenant), PAGE, entry).await
    }

    /// Returns all versions of all UDFs of all tenants.
    pub async fn all_udfs(&self) -> Result<Vec<UdfRecord>, ErrorReport> {
        collect(&*self.store, PREFIX, PAGE, parse).await
    }

    /// Returns the contents of files that functions have, by tenant.
    pub async fn udf_files(&self) -> Result<BTreeSet<(Tenant, String)>, ErrorReport> {
        let of = |entry: &StoreEntry| {
            let record: UdfRecord = parse(entry)?;
            let files = record.source.files.into_values().map(|file| file.digest);
            Ok(tenant(&entry.key).into_iter().zip([files.collect::<Vec<_>>()]).collect::<Vec<_>>())
        };
        let all = collect(&*self.store, PREFIX, PAGE, of).await?.into_iter().flatten();
        let each = |(tenant, digests): (Tenant, Vec<String>)| {
            digests.into_iter().map(move |digest| (tenant.clone(), digest))
        };
        Ok(all.flat_map(each).collect())
    }

    /// Returns the length of all versions of all UDFs of a tenant, which have their code.
    pub async fn udf_bytes(&self, tenant: &Tenant) -> Result<u64, ErrorReport> {
        let length = |entry: &StoreEntry| Ok(entry.value.len() as u64);
        Ok(collect(&*self.store, &all_of(tenant), PAGE, length).await?.into_iter().sum())
    }

    /// Returns the images that UDFs run in, by tenant.
    pub async fn udf_images(&self) -> Result<BTreeSet<(Tenant, String)>, ErrorReport> {
        let of = |entry: &StoreEntry| {
            let record: UdfRecord = parse(entry)?;
            Ok(tenant(&entry.key).zip(record.source.image))
        };
        Ok(collect(&*self.store, PREFIX, PAGE, of).await?.into_iter().flatten().collect())
    }

    /// Returns whether a tenant has any UDFs.
    pub async fn has_udfs(&self, tenant: &Tenant) -> Result<bool, ErrorReport> {
        match self.store.list(&all_of(tenant), Page::first(1)).await {
            Ok(listed) => Ok(!listed.entries.is_empty()),
            // A platform that is embedded in a command beside a running server: a query without
            // registered functions needs nothing of the store.
            Err(StoreError::Busy { .. }) => Ok(false),
            Err(error) => Err(error.report()),
        }
    }

    /// Removes all versions of a UDF; false if there was none.
    pub async fn remove_udf(&self, tenant: &Tenant, name: &str) -> Result<bool, ErrorReport> {
        let known = self.udf_versions(tenant, name).await?;
        let delete = |transaction: Transaction, version: &u32| {
            without(transaction, &key(tenant, name, *version))
        };
        let transaction = known.iter().fold(Transaction::new(), delete);
        if !known.is_empty() {
            self.store.transaction(transaction).await.map_err(|error| error.report())?;
        }
        Ok(!known.is_empty())
    }
}
