//! Settings of a server, and of the process of a host.
//!
//! Invariant: settings are what a command has checked. Only the file of tokens is open, and is read
//! again when it changes; no socket is bound.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_rpc::Token;
pub use snowmelt_store::etcd::EtcdSettings;
use snowmelt_types::{ByteSize, HostName};

use super::server_user::ServerUser;
use crate::access::certificates::ServerCertificate;
use crate::access::oidc::Issuers;
use crate::access::permissions::UserGroup;
use crate::access::quotas::QuotaLimits;
use crate::access::tokens::Tokens;
use crate::cluster::placements::PlacementSettings as Placing;
use crate::cluster::pool::HostProgram;
use crate::reports::audit::AuditSettings;

/// Folders, budgets and sockets of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The folder of packages, code, functions and logs, which are kept.
    pub state_dir: PathBuf,
    /// The base of the folder of the running server, which is removed with the server.
    pub run_base: PathBuf,
    /// The socket to serve; `None` for one in the running server's own folder.
    pub socket: Option<PathBuf>,
    /// The folder of secrets of functions, with a folder for each tenant.
    pub secrets_dir: PathBuf,
    /// The servers of HTTP whose files queries may read.
    pub http_sources: Vec<snowmelt_wire::HttpSource>,
    /// The user that the server becomes once it has started what needs root; it stays who it is where
    /// absent.
    pub user: Option<ServerUser>,
    /// The user to whom packages in the state folder may belong, besides root and that of the process:
    /// whom servers of this state folder become.
    pub trusted: Option<u32>,
    /// The group whose members may use the server; only its own user where absent.
    pub group: Option<UserGroup>,
    /// How to start the spawner: this binary with `internal spawner`.
    pub spawner_command: Vec<OsString>,
    /// The binary that runs as a query worker.
    pub worker_binary: PathBuf,
    /// The path of this program, which is executed again as the image daemon.
    pub program: PathBuf,
    /// The interpreter for user code; found where absent.
    pub python: Option<PathBuf>,
    /// The most memory of idle instances, in bytes.
    pub handler_cache: ByteSize,
    /// The most memory of zygotes, in bytes.
    pub import_cache: ByteSize,
    /// Settings of images.
    pub images: snowmelt_node::ImageSettings,
    /// The most memory that bursts have on this host; what the machine has where absent.
    pub memory: Option<ByteSize>,
    /// The most memory and sandboxes that all sandboxes have together.
    pub total: snowmelt_sandbox::Total,
    /// An instance of a function reserves this part of its memory limit (1/N).
    pub overcommit: u32,
    /// The quotas of tenants that have none of their own.
    pub quotas: QuotaLimits,
    /// The audit; absent: none is written.
    pub audit: Option<AuditSettings>,
    /// The store of records; absent: a file in the state folder.
    pub store: Option<StoreSettings>,
    /// The rules of where calls of deployed functions run, and for how long hosts keep them.
    pub placing: Placing,
    /// The program that starts and ends hosts; absent: none does.
    pub provider: Option<HostProgram>,
    /// How the addresses of functions of a job are enforced.
    pub enforcement: snowmelt_node::EnforcementChoice,
    /// True for a server that ends with its client: it takes no lock and no asynchronous calls.
    pub private: bool,
    /// The folder of what is known of the networks of jobs, which is to outlive a crash; `None` for
    /// the running server's own folder.
    pub networks_dir: Option<PathBuf>,
    /// The cluster that other hosts may join.
    pub cluster: Option<ClusterSettings>,
    /// The address for clients of other hosts; absent: none is served.
    pub remote: Option<Remote>,
}

impl ServerSettings {
    /// Returns the folder of what several controls share, which is that of the state if there is
    /// only one.
    pub(crate) fn shared_folder(&self) -> &Path {
        self.store.as_ref().map_or(&self.state_dir, |store| &store.folder)
    }
}

/// A store of records that several controls share.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The servers of etcd, and how they are reached.
    pub etcd: EtcdSettings,
    /// The folder of long records and of code, on a disk that all controls share.
    pub folder: PathBuf,
}

/// The address at which hosts join, and how they are known.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The name of control's own host.
    pub name: HostName,
    /// The address at which hosts report to control.
    pub listen: SocketAddr,
    /// The proof by which its processes know each other.
    pub proof: ClusterProof,
}

/// The proof by which the processes of a cluster know each other.
#[derive(Clone, Debug)]
pub enum ClusterProof {
    /// Certificates of the cluster's authority, which last so long.
    Certificates(Duration),
    /// A secret that all of them have, in a closed network where nothing is encrypted.
    Token(Token),
}

/// The address for clients of other hosts, each served for the tenant of its token.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The address.
    pub listen: SocketAddr,
    /// The certificate that clients are shown.
    pub certificate: ServerCertificate,
    /// The tokens of clients, by tenant.
    pub tokens: Arc<Tokens>,
    /// The issuers whose tokens are accepted.
    pub issuers: Arc<Issuers>,
}
