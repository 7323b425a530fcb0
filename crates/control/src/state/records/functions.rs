//! Deployed functions, by tenant and name.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use snowmelt_store::{Expect, KeyVersion};
use snowmelt_types::{ErrorReport, FunctionName, Report, Tenant};

use super::{FunctionRecord, PAGE, Records, collect, parse, written};

/// The prefix of the keys of functions.
const PREFIX: &str = "functions/";

/// The identifier of a function: each tenant has its own names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FunctionId {
    pub tenant: Tenant,
    pub name: FunctionName,
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.name)
    }
}

/// Returns the key of a function.
pub(super) fn key(tenant: &Tenant, name: &str) -> String {
    format!("{PREFIX}{tenant}/{name}")
}

impl FunctionId {
    fn key(&self) -> String {
        key(&self.tenant, self.name.as_str())
    }
}

impl Records {
    /// Writes or replaces a function; on return it survives a crash.
    pub async fn put_function(&self, record: &FunctionRecord) -> Result<(), ErrorReport> {
        let key = record.id().key();
        let value = written(record)?;
        let put = self.store.put(&key, value.into(), Expect::Any).await;
        put.map(|_: KeyVersion| ()).map_err(|error| error.report())
    }

    /// Returns a function.
    pub async fn function(&self, id: &FunctionId) -> Result<Option<FunctionRecord>, ErrorReport> {
        self.get(&id.key()).await
    }

    /// Returns the functions of a tenant, by name.
    pub async fn functions(&self, tenant: &Tenant) -> Result<Vec<FunctionRecord>, ErrorReport> {
        collect(&*self.store, &key(tenant, ""), PAGE, parse).await
    }

    /// Returns the functions of all tenants.
    pub async fn all_functions(&self) -> Result<Vec<FunctionRecord>, ErrorReport> {
        collect(&*self.store, PREFIX, PAGE, parse).await
    }

    /// Returns the contents of files that functions have, by tenant.
    pub async fn function_files(&self) -> Result<BTreeSet<(Tenant, String)>, ErrorReport> {
        let all = self.all_functions().await?.into_iter();
        let of = |FunctionRecord { tenant, spec, .. }: FunctionRecord| {
            spec.files.into_values().map(move |file| (tenant.clone(), file.digest))
        };
        Ok(all.flat_map(of).collect())
    }

    /// Removes a function; false if there was none.
    pub async fn remove_function(&self, id: &FunctionId) -> Result<bool, ErrorReport> {
        let removed = self.store.delete(&id.key(), Expect::Any).await;
        removed.map(|found| found.is_some()).map_err(|error| error.report())
    }
}
