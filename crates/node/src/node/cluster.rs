//! The cluster that the host belongs to.

use std::net::SocketAddr;

use snowmelt_rpc::Token;
use snowmelt_types::HostName;

use crate::Node;

impl Node {
    /// Lets this host read blocks of images from other hosts of a cluster, and serve them to hosts
    /// that know the cluster's token. `control` is the address where hosts report; `None` on
    /// control's own host.
    pub fn join_cluster(&self, token: Token, control: Option<SocketAddr>) {
        self.inner.images.join_cluster(token, control);
    }

    /// Returns the hosts that sent wrong blocks of images to this one.
    pub fn expelled_hosts(&self) -> Vec<HostName> {
        self.inner.images.expelled_hosts()
    }
}
