//! The hosts of the cluster, as the tasks of queries see them.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_node::remote::peers::{Peer, Peers};
use snowmelt_types::{ErrorReport, HostName};
use tokio::net::TcpStream;

use super::{Host, Hosts};

impl Peers for Hosts {
    fn others(&self) -> Vec<Arc<dyn Peer>> {
        let others = self.all().into_iter().filter(|host| !host.is_local());
        others.map(|host| host as Arc<dyn Peer>).collect()
    }

    fn own_name(&self) -> HostName {
        self.local().name.clone()
    }

    fn own_address(&self) -> Option<SocketAddr> {
        self.local().address()
    }
}

#[async_trait]
impl Peer for Host {
    fn name(&self) -> HostName {
        self.name.clone()
    }

    fn address(&self) -> Option<SocketAddr> {
        Self::address(self)
    }

    fn cores(&self) -> u32 {
        Self::cores(self)
    }

    async fn connect(&self, path: &str) -> Result<TcpStream, ErrorReport> {
        self.agent.connect(path).await
    }

    async fn lost(&self) {
        Self::lost(self).await;
    }
}
