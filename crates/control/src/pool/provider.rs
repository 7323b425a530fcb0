//! Who gives a cluster its hosts, and takes them back.

use std::fmt::Debug;

use async_trait::async_trait;
use snowmelt_types::{ErrorReport, HostName};

/// A provider of hosts. A host that it starts joins the cluster by itself, under the name by which the
/// provider knows it.
#[async_trait]
pub(crate) trait HostProvider: Debug + Send + Sync {
    /// What it is, for display.
    fn describe(&self) -> String;

    /// Whether it starts and ends hosts at all.
    fn is_elastic(&self) -> bool {
        true
    }

    /// The hosts that it runs or starts now, in the cluster or not yet.
    async fn hosts(&self) -> Result<Vec<HostName>, ErrorReport>;

    /// Has at least so many hosts run, those included that run already. It may return before they
    /// have joined.
    async fn start(&self, count: u32) -> Result<(), ErrorReport>;

    /// Ends a host that gets no new work and runs nothing.
    async fn release(&self, host: &HostName) -> Result<(), ErrorReport>;
}

/// Hosts join and leave by themselves: nothing is started and nothing is ended.
#[derive(Debug)]
pub(crate) struct Static;

#[async_trait]
impl HostProvider for Static {
    fn describe(&self) -> String {
        "static".to_owned()
    }

    fn is_elastic(&self) -> bool {
        false
    }

    async fn hosts(&self) -> Result<Vec<HostName>, ErrorReport> {
        Ok(Vec::new())
    }

    async fn start(&self, _: u32) -> Result<(), ErrorReport> {
        Ok(())
    }

    async fn release(&self, _: &HostName) -> Result<(), ErrorReport> {
        Ok(())
    }
}
