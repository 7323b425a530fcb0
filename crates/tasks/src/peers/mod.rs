//! Hosts of a cluster beside this one, as the tasks of queries see them: traits that control
//! implements, which knows the hosts, and what hosts say and send to each other.
//!
//! | member | job |
//! |---|---|
//! | `messages` | what control and the agent of another host say to each other |
//! | `remote_outputs` | outputs that are opened on other hosts |
//! | `relay` | bytes between two connections |
//! | `outputs` | outputs that this host keeps for the tasks that read them |
//! | `copies` | copies of outputs of other hosts |
//! | `stream_ends` | ends of streams for tasks that have not started |

pub(crate) mod copies;
pub(crate) mod messages;
pub(crate) mod outputs;
pub(crate) mod relay;
pub(crate) mod remote_outputs;
pub(crate) mod stream_ends;

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
    /// Returns the hosts that have reported lately.
    fn others(&self) -> Vec<Arc<dyn Peer>>;

    /// Returns the name of this host.
    fn own_name(&self) -> HostName;

    /// Returns the address at which other hosts reach this one; its IP address may be unspecified.
    fn own_address(&self) -> Option<SocketAddr>;

    /// Returns the place of a host in the tree of an image or a file that the host is about to use.
    fn tree_place(&self, tree: &str, host: &HostName) -> Option<TreePlace>;

    /// Gives hosts that are about to use an image or a file their places in its tree at once. Each
    /// host is told its own place with the request to use the image or file.
    fn join_tree(&self, tree: &str, hosts: &[HostName]);

    /// Returns whether the cluster decides for all work together where a task may run now. If not,
    /// each host decides alone.
    fn places_tasks(&self) -> bool {
        false
    }

    /// Requests a host for a task; `None` where each host decides alone.
    fn task(&self, needs: TaskNeeds) -> Option<Box<dyn TaskPlace>>;

    /// Gives tasks their places on the named hosts, all of them or none.
    ///
    /// # Errors
    /// Fails with the name of a host that has no room for its tasks.
    fn tasks(&self, tasks: Vec<(TaskNeeds, HostName)>)
    -> Result<Vec<Box<dyn TaskPlace>>, HostName>;

    /// Notes that a query uses a host: it may have outputs there also when no task runs there.
    fn uses(&self, tenant: &Tenant, host: &HostName) -> Option<Box<dyn TaskPlace>>;
}

/// The room that a task of a query needs.
#[derive(Clone, Debug)]
pub struct TaskNeeds {
    /// The tenant that runs the query.
    pub tenant: Tenant,
    /// The memory that the task's sandboxes reserve.
    pub memory: ByteSize,
    /// The processor share of the task's sandboxes.
    pub cpu: CpuMillis,
    /// True if no other host than this one can run the task.
    pub is_here_only: bool,
}

/// A wish of a task that waits for a host.
#[derive(Clone, Debug)]
pub struct TaskWish {
    /// The hosts that could run the task now, the best first.
    pub hosts: Vec<HostName>,
    /// The number of further tasks of the query that wait behind the task.
    pub behind: u32,
    /// The time for which tasks of the query have waited.
    pub waited: Duration,
}

/// The request of a task for a host, from its beginning until the task is over. It has a host,
/// waits for one, or does neither. Dropping it gives everything back.
#[async_trait]
pub trait TaskPlace: Debug + Send + Sync {
    /// Takes this host, if it has room for the task now.
    fn take(&mut self, host: &HostName) -> bool;

    /// Returns the host that the task has, or takes one of those that it wishes. Without one, the
    /// task waits from now on.
    fn wait(&mut self, wish: TaskWish) -> Option<HostName>;

    /// Waits until the task has a host, if it waits for one; for ever if it does not.
    async fn placed(&mut self);

    /// Notes that the host had no room after all: the task waits again where it waited before.
    fn refused(&mut self);

    /// Gives the host up. From now on the task neither has a host nor waits for one.
    fn leave(&mut self);
}

/// Another host of the cluster.
#[async_trait]
pub trait Peer: Debug + Send + Sync {
    /// Returns the name of the host.
    fn name(&self) -> HostName;

    /// Returns the address at which the host's agent listens.
    fn address(&self) -> Option<SocketAddr>;

    /// Returns the number of the host's cores.
    fn cores(&self) -> u32;

    /// Returns whether the host gets new tasks.
    fn takes_work(&self) -> bool {
        true
    }

    /// Opens a connection that leaves HTTP. The caller speaks first.
    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport>;

    /// Waits until the host counts as lost.
    async fn lost(&self);

    /// Returns whether the host is alive, when a connection to it broke: it answers, or goes on
    /// reporting. The result is known within some seconds.
    async fn is_there(&self) -> bool;
}
