//! Acknowledged state that survives a crash: deployed functions, asynchronous calls, bursts and keys,
//! as typed records over a [`Store`].
//!
//! Boundary: this folder defines keys and values (JSON); the store defines transactions. The
//! embedded store is `state.redb`, which a server holds open and embedded runs open for one
//! transaction each.

mod call_writes;
mod calls;
pub(crate) mod format;
mod functions;
mod hosts;
mod index;
mod jobs;
mod joins;
mod keys;
mod migration;
mod quotas;
#[cfg(test)]
pub(crate) mod tests;
mod udf_keys;
mod udf_uses;
mod udfs;

use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_api::{FunctionSpec, Invocation};
use snowmelt_node::PackageAt;
use snowmelt_store::redb::Redb;
use snowmelt_store::{Clock, Page, Store, StoreEntry};
use snowmelt_types::{Code, Digest, ErrorReport, Report, Tenant};
use tokio::sync::Mutex;

use super::backups;
use call_writes::CallWrites;
pub(crate) use functions::FunctionId;
use index::CallIndex;
pub(crate) use jobs::{JobEnd, JobRecord, PartRecord};
pub(crate) use joins::{JoinTokenRecord, JoinUse, MemberRecord};
pub(crate) use keys::KeyRecord;
use udf_uses::LeasedVersions;
pub(crate) use udf_uses::{LeasedVersion, Superseded};
pub(crate) use udfs::{Existing, UdfEntry, UdfRecord};

/// The number of records that are read at once: a record may have megabytes.
const PAGE: usize = 64;

/// A deployed function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionRecord {
    /// The tenant that deployed the function. The tenant in the specification is ignored.
    pub tenant: Tenant,
    /// The specification without the files of a program, which the node keeps by their digest.
    pub spec: FunctionSpec,
    pub deployed_ms: u64,
    #[serde(default)]
    pub files: Option<Digest>,
    /// The code package to which the name in the specification referred at the deployment.
    #[serde(default)]
    pub packed: Option<PackageAt>,
}

impl FunctionRecord {
    pub fn id(&self) -> FunctionId {
        FunctionId { tenant: self.tenant.clone(), name: self.spec.name.clone() }
    }
}

/// An asynchronous call, with what is needed to run it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InvocationRecord {
    pub invocation: Invocation,
    pub event: Box<RawValue>,
}

/// The records. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    store: Arc<dyn Store>,
    /// The store of the records once more, if it is a file.
    file: Option<Redb>,
    // Locked while a call is written, so that it stays equal to the entries in the store. It is
    // complete if the store is held open: no other process has asynchronous calls.
    calls: Arc<Mutex<CallIndex>>,
    writes: Arc<CallWrites>,
    is_held: bool,
    leased: LeasedVersions,
}

impl Records {
    /// Opens the records in a file, which the first write creates. `hold` keeps the file open for
    /// this process only.
    pub async fn open(path: PathBuf, hold: bool) -> Result<Self, ErrorReport> {
        if !hold {
            let older = Some(migration::layout());
            let file = Redb::visit(path, older);
            format::check_visited(&file).await?;
            let visited = Self::new(Arc::new(file.clone()), CallIndex::default()).in_file(file);
            return Ok(Self { is_held: false, ..visited });
        }
        let file = hold_file(path).await?;
        Ok(Self::over(Arc::new(file.clone())).await?.in_file(file))
    }

    /// Notes which versions can read the records, before any is written.
    pub async fn note_format(&self) -> Result<(), ErrorReport> {
        format::note(&*self.store).await
    }

    /// Returns the file of the records, if they are in one.
    pub fn file(&self) -> Option<&Redb> {
        self.file.as_ref()
    }

    fn in_file(self, file: Redb) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Makes the records of a store that no other process uses.
    ///
    /// # Errors
    /// `SM-0540` for records of a newer version, `SM-0541` for a part of a platform's records.
    pub async fn over(store: Arc<dyn Store>) -> Result<Self, ErrorReport> {
        format::check(&*store).await?;
        let index = calls::load(&*store).await?;
        Ok(Self::new(store, index))
    }

    fn new(store: Arc<dyn Store>, index: CallIndex) -> Self {
        let calls = Arc::new(Mutex::new(index));
        let leased = LeasedVersions::default();
        Self { store, file: None, calls, writes: Arc::default(), is_held: true, leased }
    }

    async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ErrorReport> {
        let entry = self.store.get(key).await.map_err(|error| error.report())?;
        entry.map(|entry| parse(&entry)).transpose()
    }
}

/// Opens the file of records for this process only.
pub(crate) async fn hold_file(path: PathBuf) -> Result<Redb, ErrorReport> {
    let at = path.clone();
    let older = Some(migration::layout());
    let opening = tokio::task::spawn_blocking(|| Redb::hold(path, older, Clock::real()));
    let file = opening.await.map_err(panicked)?;
    file.map_err(|error| backups::explained(&at, &error))
}

/// Maps every entry of a prefix, which is read in pages.
async fn collect<T>(
    store: &dyn Store,
    prefix: &str,
    limit: usize,
    made: impl Fn(&StoreEntry) -> Result<T, ErrorReport>,
) -> Result<Vec<T>, ErrorReport> {
    let mut all = Vec::new();
    let mut page = Page::first(limit);
    loop {
        let listed = store.list(prefix, page).await.map_err(|error| error.report())?;
        for entry in &listed.entries {
            all.push(made(entry)?);
        }
        match listed.entries.last().filter(|_| listed.more) {
            Some(last) => page = Page::after(&*last.key, limit),
            None => return Ok(all),
        }
    }
}

fn parse<T: DeserializeOwned>(entry: &StoreEntry) -> Result<T, ErrorReport> {
    serde_json::from_slice(&entry.value).map_err(|error| {
        let message = format!("the record `{}` cannot be read: {error}", entry.key);
        ErrorReport::new(Code::STATE, message)
    })
}

fn written(value: &impl Serialize) -> Result<Vec<u8>, ErrorReport> {
    serde_json::to_vec(value).map_err(|error| ErrorReport::new(Code::STATE, error.to_string()))
}

fn panicked(error: tokio::task::JoinError) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("a transaction panicked: {error}"))
}
