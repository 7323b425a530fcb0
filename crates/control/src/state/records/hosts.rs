//! Hosts that are drained, by name.

use snowmelt_store::Expect;
use snowmelt_types::{ErrorReport, HostName, Report};

use super::{PAGE, Records, collect, parse, written};

/// The prefix of the keys of drained hosts.
const PREFIX: &str = "hosts/drained/";

impl Records {
    /// Writes that a host is drained, or is not; on return it survives a crash.
    pub async fn set_drained(&self, host: &HostName, drained: bool) -> Result<(), ErrorReport> {
        let key = format!("{PREFIX}{host}");
        if drained {
            let put = self.store.put(&key, written(host)?.into(), Expect::Any).await;
            return put.map(drop).map_err(|error| error.report());
        }
        let removed = self.store.delete(&key, Expect::Any).await;
        removed.map(drop).map_err(|error| error.report())
    }

    /// Returns the drained hosts.
    pub async fn drained(&self) -> Result<Vec<HostName>, ErrorReport> {
        collect(&*self.store, PREFIX, PAGE, parse).await
    }
}
