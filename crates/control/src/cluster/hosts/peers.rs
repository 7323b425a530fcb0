//! A host of the cluster, as the tasks of queries see it.

use std::net::SocketAddr;

use async_trait::async_trait;
use snowmelt_rpc::HostStream;
use snowmelt_tasks::peers::Peer;
use snowmelt_types::{ErrorReport, HostName};

use super::ClusterHost;

#[async_trait]
impl Peer for ClusterHost {
    fn name(&self) -> HostName {
        self.name.clone()
    }

    fn address(&self) -> Option<SocketAddr> {
        Self::address(self)
    }

    fn cores(&self) -> u32 {
        Self::cores(self)
    }

    fn takes_work(&self) -> bool {
        !self.is_drained()
    }

    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport> {
        self.agent.connect(path).await
    }

    async fn lost(&self) {
        Self::lost(self).await;
    }

    async fn is_there(&self) -> bool {
        Self::is_there(self).await
    }
}
