//! The hosts of the cluster, as the tasks of queries see them.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_node::TreePlace;
use snowmelt_node::remote::peers::{Peer, Peers};
use snowmelt_types::{ErrorReport, HostName};
use tokio::net::TcpStream;

use super::{Host, Hosts};
use crate::trees::Trees;

/// The hosts of a cluster, and the trees in which they read images and files.
#[derive(Debug)]
pub(crate) struct QueryPeers {
    pub hosts: Hosts,
    pub trees: Trees,
}

impl Peers for QueryPeers {
    fn others(&self) -> Vec<Arc<dyn Peer>> {
        let others = self.hosts.all().into_iter().filter(|host| !host.is_local());
        others.map(|host| host as Arc<dyn Peer>).collect()
    }

    fn own_name(&self) -> HostName {
        self.hosts.local().name.clone()
    }

    fn own_address(&self) -> Option<SocketAddr> {
        self.hosts.local().address()
    }

    fn tree_place(&self, tree: &str, host: &HostName) -> Option<TreePlace> {
        let host = self.hosts.all().into_iter().find(|known| known.name == *host)?;
        // Control's own host has a place already if it needs one: it has read the signatures in the
        // image. It is no member of the trees of files, as it has them.
        self.trees.place(tree, &self.hosts, &[host]).pop()
    }

    fn join_tree(&self, tree: &str, hosts: &[HostName]) {
        let known = self.hosts.all().into_iter();
        let joining: Vec<_> = known.filter(|known| hosts.contains(&known.name)).collect();
        self.trees.place(tree, &self.hosts, &joining);
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

    fn takes_work(&self) -> bool {
        !self.is_drained()
    }

    async fn connect(&self, path: &str) -> Result<TcpStream, ErrorReport> {
        self.agent.connect(path).await
    }

    async fn lost(&self) {
        Self::lost(self).await;
    }
}
