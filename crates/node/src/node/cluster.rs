//! The cluster that the host belongs to.

use snowmelt_rpc::Credential;
use snowmelt_types::HostName;

use crate::{ControlAddress, Node, Result};

impl Node {
    /// Lets this host read blocks of images from other hosts of a cluster, and serve them to hosts
    /// of it. `control` is the address where hosts report; `None` on
    /// control's own host.
    pub fn join_cluster(&self, credential: Credential, control: Option<ControlAddress>) {
        self.inner.images.join_cluster(credential, control);
    }

    /// Shows other hosts the certificate that this host has now, also where another process connects
    /// to them.
    pub async fn renew_certificate(&self) -> Result<()> {
        self.inner.images.renew().await
    }

    /// Returns the hosts that sent wrong blocks of images to this one.
    pub fn expelled_hosts(&self) -> Vec<HostName> {
        self.inner.images.expelled_hosts()
    }
}
