//! Providers of hosts: they give a cluster its hosts, and take them back.

use std::fmt::Debug;

use async_trait::async_trait;
use snowmelt_types::{ErrorReport, HostName};

/// A provider of hosts. A host that the provider starts joins the cluster by itself, under the name
/// by which the provider knows it.
#[async_trait]
pub(crate) trait HostProvider: Debug + Send + Sync {
    /// Describes the provider, for display.
    fn describe(&self) -> String;

    /// Returns whether the provider starts and ends hosts at all.
    fn is_elastic(&self) -> bool {
        true
    }

    /// Returns the hosts that the provider runs or starts now, in the cluster or not yet.
    async fn hosts(&self) -> Result<Vec<HostName>, ErrorReport>;

    /// Has at least `count` hosts run, with those that run already. It may return before the hosts
    /// have joined.
    async fn start(&self, count: u32) -> Result<(), ErrorReport>;

    /// Ends a host that gets no new work and runs nothing.
    async fn release(&self, host: &HostName) -> Result<(), ErrorReport>;
}

/// A provider that starts and ends nothing: hosts join and leave by themselves.
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
