//! Deployed functions, by name.

use snowmelt_store::{Expect, Version};
use snowmelt_types::{ErrorReport, FunctionName, Report};

use super::{FunctionRecord, PAGE, Records, collect, parse, written};

/// What the keys of functions begin with.
const PREFIX: &str = "functions/";

/// The key of a function.
pub(super) fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

impl Records {
    /// Writes a function in the place of the one of its name; on return it survives a crash.
    pub async fn put_function(&self, record: &FunctionRecord) -> Result<(), ErrorReport> {
        let (key, value) = (key(record.spec.name.as_str()), written(record)?);
        let put = self.store.put(&key, value.into(), Expect::Any).await;
        put.map(|_: Version| ()).map_err(|error| error.report())
    }

    /// A function.
    pub async fn function(
        &self,
        name: &FunctionName,
    ) -> Result<Option<FunctionRecord>, ErrorReport> {
        self.get(&key(name.as_str())).await
    }

    /// All functions, by name.
    pub async fn functions(&self) -> Result<Vec<FunctionRecord>, ErrorReport> {
        collect(&*self.store, PREFIX, PAGE, parse).await
    }

    /// Removes a function; false if there was none.
    pub async fn remove_function(&self, name: &FunctionName) -> Result<bool, ErrorReport> {
        let removed = self.store.delete(&key(name.as_str()), Expect::Any).await;
        removed.map(|found| found.is_some()).map_err(|error| error.report())
    }
}
