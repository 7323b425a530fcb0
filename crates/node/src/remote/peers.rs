//! The other hosts of a cluster, as far as the tasks of queries need them. Control, which knows the
//! hosts, implements it.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_types::{ErrorReport, HostName};
use tokio::net::TcpStream;

use crate::TreePlace;

/// The hosts of a cluster beside this one.
pub trait Peers: Debug + Send + Sync {
    /// Those that have reported lately.
    fn others(&self) -> Vec<Arc<dyn Peer>>;

    /// The name of this host.
    fn own_name(&self) -> HostName;

    /// Where other hosts reach this one; its host part may be unspecified.
    fn own_address(&self) -> Option<SocketAddr>;

    /// The place of a host in the trees of an image or a file, which it is about to use.
    fn tree_place(&self, tree: &str, host: &HostName) -> Option<TreePlace>;

    /// Gives hosts that are about to use an image or a file their places in its trees at once. Each is
    /// told its own by whoever has it use that.
    fn join_tree(&self, tree: &str, hosts: &[HostName]);
}

/// Another host.
#[async_trait]
pub trait Peer: Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> HostName;

    /// Where its agent listens.
    fn address(&self) -> Option<SocketAddr>;

    /// Its cores.
    fn cores(&self) -> u32;

    /// Whether it gets new tasks.
    fn takes_work(&self) -> bool {
        true
    }

    /// Opens a connection that leaves HTTP. The caller speaks first.
    async fn connect(&self, path: &str) -> Result<TcpStream, ErrorReport>;

    /// Waits until it counts as lost.
    async fn lost(&self);
}
