//! The other hosts of a cluster, as far as the tasks of queries need them. Control, which knows the
//! hosts, implements it.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_node::TreePlace;
use snowmelt_rpc::HostStream;
use snowmelt_types::{ByteSize, CpuMillis, ErrorReport, HostName, Tenant};

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

    /// Whether it is decided for all work of the cluster together where a task may run now. If not,
    /// each host decides alone.
    fn places_tasks(&self) -> bool {
        false
    }

    /// A task that is to have a host; `None` where each host decides alone.
    fn task(&self, needs: TaskNeeds) -> Option<Box<dyn TaskPlace>>;

    /// Has tasks run on their hosts, all of them or none.
    ///
    /// # Errors
    /// The name of a host that has no room for its tasks.
    fn tasks(&self, tasks: Vec<(TaskNeeds, HostName)>)
    -> Result<Vec<Box<dyn TaskPlace>>, HostName>;

    /// A query uses a host, which has something of it also when no task runs there.
    fn uses(&self, tenant: &Tenant, host: &HostName) -> Option<Box<dyn TaskPlace>>;
}

/// What a task of a query needs.
#[derive(Clone, Debug)]
pub struct TaskNeeds {
    /// Whose it is.
    pub tenant: Tenant,
    /// The memory that its sandboxes reserve.
    pub memory: ByteSize,
    /// Their processor.
    pub cpu: CpuMillis,
    /// No other host than this one can run it.
    pub is_here_only: bool,
}

/// How a task waits for a host.
#[derive(Clone, Debug)]
pub struct TaskWish {
    /// The hosts that could run it now, the best first.
    pub hosts: Vec<HostName>,
    /// Further tasks of its query that wait behind it.
    pub behind: u32,
    /// For how long tasks of its query have waited.
    pub waited: Duration,
}

/// A task from when it is asked for until it is over: it is on a host, waits for one, or neither.
/// Dropping it gives everything back.
#[async_trait]
pub trait TaskPlace: Debug + Send + Sync {
    /// Takes this host, if there is room on it now for this task.
    fn take(&mut self, host: &HostName) -> bool;

    /// The host that it has, or has now, of those that it wishes. Without one, it waits from now on.
    fn wait(&mut self, wish: TaskWish) -> Option<HostName>;

    /// Waits until it has a host, if it waits for one; for ever if it does not.
    async fn placed(&mut self);

    /// Its host had no room after all: it waits where it waited before.
    fn refused(&mut self);

    /// It neither has a host nor waits for one from now on.
    fn leave(&mut self);
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
    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport>;

    /// Waits until it counts as lost.
    async fn lost(&self);

    /// Whether the host is alive, asked after a connection to it broke: it answers, or goes on reporting. This is
    /// known within some seconds.
    async fn is_there(&self) -> bool;
}
