//! The life of a server: its resources while it runs, and their removal when it ends.
//!
//! | part | file |
//! |---|---|
//! | folders, budgets and sockets | `settings` |
//! | a platform with its socket, from its start to its end | here |
//! | its listeners for clients | `doors` |
//! | the process of a host that joined a cluster | `member` |
//! | the user that a server of root becomes, and its broker | `server_user`, `rights` |
//! | the user namespace of a platform that is not root's | `rootless` |
//! | a server of images alone, inside a command | `image_server` |
//! | the lead among several controls of one store | `standby` |
//! | the records, hosts and audit of a platform, and what it goes on with | `start` |
//! | records that are moved to or from etcd | `store_copy` |
//!
//! Invariant: the spawner is started before any thread. It ends after all sandboxes, and before the
//! networks that it made are closed.

mod doors;
pub mod image_server;
pub mod member;
mod own_cluster;
mod rights;
mod rootless;
mod server_user;
mod settings;
mod standby;
mod start;
pub mod store_copy;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_kernel::lock::Lock;
use snowmelt_node::Node;
use snowmelt_rpc::server::Ending;
use snowmelt_rpc::server::client_relay::relayed_clients;
use snowmelt_sandbox::{Spawner, SpawnerProcess};
use snowmelt_tasks::TaskHost;
use snowmelt_types::{ByteSize, ErrorReport, Report};
use tokio_util::sync::CancellationToken;

use crate::access::permissions;
pub use crate::access::quotas::QuotaLimits;
use crate::access::quotas::Quotas;
use crate::access::redaction::Folders;
use crate::access::secrets::SecretSources;
use crate::bursts::{BurstStorage, Bursts};
use crate::cluster::ClusterResources;
use crate::cluster::hosts::listener;
pub use crate::cluster::placements::PlacementSettings as Placing;
use crate::cluster::placements::Placements;
use crate::cluster::pool::HostPool;
pub use crate::cluster::pool::HostProgram;
use crate::cluster::trees::{OwnPlaces, Trees};
use crate::functions::Functions;
use crate::functions::async_calls::AsyncCalls;
use crate::gateway::{self, Door};
use crate::images::{END_TIMEOUT, Images};
use crate::leases::Leases;
use crate::now_ms;
use crate::platform::prunings::Prunings;
use crate::platform::{GatewayPlatform, Grace};
use crate::queries::Queries;
use crate::state::analysis_cache::AnalysisCache;
use crate::state::disk::TenantDisk;
use crate::state::keys::Keys;
use crate::state::quotas::StoredQuotas;
use crate::times::PRIVATE_GRACE;
use crate::udfs::{UdfCatalog, UdfLogs, UdfRegistry};
use doors::{lease_socket, serve_connections, serve_hosts, serve_others};
use own_cluster::OwnCluster;
pub use rights::broker_main;
use rights::{becoming, close_state};
pub use server_user::{FileLinks, ServerUser};
pub use settings::{
    ClusterProof, ClusterSettings, EtcdSettings, Remote, ServerSettings, StoreSettings,
};
use standby::{Leading, Listeners, Turn};
pub use standby::{StoreState, check_store};
use start::audit;

/// How long calls and queries may run once the server is asked to end, by default.
const GRACE: Duration = Duration::from_secs(10);

/// The process of a server before any thread is started: its spawner runs.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    settings: ServerSettings,
    run_dir: PathBuf,
    control_group: String,
    spawner: SpawnerProcess,
}

impl ServerProcess {
    /// Sweeps what crashed processes left and starts the spawner.
    pub fn prepare(settings: ServerSettings) -> Result<Self, ErrorReport> {
        // A task can be granted thousands of files. The limits of sandboxes are their own.
        if let Err(error) = snowmelt_kernel::fds::raise_limit() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        rootless::enter(&settings)?;
        let becoming = becoming(&settings)?;
        if let Some(user) = &becoming {
            // Logins of registries and the like are those of the user that the process becomes.
            snowmelt_kernel::process::set_home(&user.home);
        }
        // Members of the group may pass once the server has become its user.
        let group = settings.group.as_ref().filter(|_| becoming.is_none());
        permissions::state_folder(&settings.state_dir, group)?;
        if let Some(store) = &settings.store {
            let becomes = becoming.as_ref().map(|user| user.user);
            permissions::shared_folder(&store.folder, becomes)?;
        }
        permissions::open_folder(&settings.run_base)?;
        snowmelt_sandbox::sweep(&settings.run_base).map_err(|error| error.report())?;
        let run_dir = settings.run_base.join(format!("{}-{}", std::process::id(), now_ms()));
        let name = run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let control_group = format!("snowmelt/{name}");
        let options = snowmelt_sandbox::Options {
            run_dir: run_dir.clone(),
            spawner_command: settings.spawner_command.clone(),
            parent_cgroup: control_group.clone(),
            total: settings.total,
            server_user: becoming.as_ref().map(|user| user.user),
        };
        let spawner = Spawner::launch(options).map_err(|error| error.report())?;
        Ok(Self { settings, run_dir, control_group, spawner })
    }

    /// Returns the folder of the host's persistent data.
    pub fn state_dir(&self) -> &Path {
        &self.settings.state_dir
    }

    /// Returns the most memory that bursts have on this host.
    pub fn memory(&self) -> Option<ByteSize> {
        self.settings.memory
    }

    /// Makes the node of the spawner; needs the runtime.
    pub fn node(self) -> Result<Node, ErrorReport> {
        let spawner = self.spawner.attach().map_err(|error| error.report())?;
        let settings = self.settings;
        let options = snowmelt_node::Options {
            state_dir: settings.state_dir,
            shared_dir: settings.store.map(|store| store.folder),
            worker_binary: settings.worker_binary,
            program: settings.program,
            images_dir: self.run_dir.join("images"),
            python: settings.python,
            trusted: settings.trusted,
            handler_cache: settings.handler_cache,
            import_cache: settings.import_cache,
            zygotes: None,
            capacity: snowmelt_node::capacity(&settings.total),
            overcommit: settings.overcommit,
            images: settings.images,
            control_group: self.control_group,
            enforcement: settings.enforcement,
            networks_dir: settings.networks_dir.unwrap_or_else(|| self.run_dir.join("networks")),
        };
        Node::new(options, spawner).map_err(|error| error.report())
    }
}

/// A server whose spawner runs and whose socket is bound, before any thread is started.
#[derive(Debug)]
pub struct Launch {
    started: ServerProcess,
    listener: std::os::unix::net::UnixListener,
    leases: std::os::unix::net::UnixListener,
    hosts: Option<std::net::TcpListener>,
    remote: Option<std::net::TcpListener>,
    socket: PathBuf,
    // The broker of a server that has given up root.
    broker: Option<OwnedFd>,
    // Held until the end: one server that is not private for each state folder.
    _lock: Option<Lock>,
}

impl Launch {
    /// Sweeps what crashed servers left, starts the spawner, binds the socket. Call it before the
    /// runtime exists: the spawner must not be forked from a process with threads.
    pub fn prepare(settings: ServerSettings) -> Result<Self, ErrorReport> {
        // Before the state folder exists: a platform that cannot run here leaves nothing.
        rootless::enter(&settings)?;
        permissions::state_folder(&settings.state_dir, settings.group.as_ref())?;
        let lock = (!settings.private)
            // Before anything is swept or bound: a second server must change nothing.
            .then(|| permissions::server_lock(&settings.state_dir))
            .transpose()?;
        let hosts = settings.cluster.as_ref().map(|cluster| listener::bind(cluster.listen));
        // Bound before the spawner starts: an address in use is an error of the user, and is found
        // at once.
        let hosts = hosts.transpose()?;
        let remote = settings.remote.as_ref().map(|remote| listener::bind(remote.listen));
        let remote = remote.transpose()?;
        let links = close_state(&settings)?;
        let started = ServerProcess::prepare(settings)?;
        let socket = started.settings.socket.clone();
        let socket = socket.unwrap_or_else(|| started.run_dir.join("api.sock"));
        let group = started.settings.group.as_ref().filter(|_| !started.settings.private);
        let listener = permissions::listen(&socket, group)?;
        let leases = permissions::listen(&lease_socket(&socket), group)?;
        // Last: all that takes root is done, and no byte of a client was read.
        let broker = started.give_up_root(&socket, links)?;
        Ok(Self { started, listener, leases, hosts, remote, socket, broker, _lock: lock })
    }

    /// Returns the socket of the API.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Serves until it is asked to end; on return every sandbox, cgroup and folder is gone. What
    /// runs when it is asked may end within the grace time.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ErrorReport> {
        let settings = self.started.settings.clone();
        let node = self.started.node()?;
        // A platform that lives for one command rarely needs them.
        if !settings.private {
            node.open_networks();
        }
        let ending = Ending { asked: shutdown.clone(), over: CancellationToken::new() };
        if let Some(broker) = self.broker {
            rights::end_with_broker(broker, ending.asked.clone())?;
        }
        let listeners = Listeners {
            local: &self.listener,
            hosts: self.hosts.as_ref(),
            remote: self.remote.as_ref(),
            leases: &self.leases,
            socket: &self.socket,
        };
        let leading = match standby::turn(&settings, listeners, &node, &ending).await? {
            Turn::Serve(leading) => leading,
            Turn::End => return doors::end(&self.socket, &node).await,
        };
        let host = TaskHost::new(node.clone());
        let platform =
            platform(&settings, &self.socket, host.clone(), &ending, leading.as_ref()).await?;
        if !settings.private {
            start::go_on(&platform, &ending, leading.is_some()).await?;
        }
        let (entrance, relayed) = relayed_clients();
        let entrance = settings.remote.is_some().then_some(entrance);
        let joining = serve_hosts(self.hosts, &platform, host, entrance, ending.over.clone());
        let router = gateway::router(Arc::clone(&platform), Door::Socket);
        let remote = self.remote.zip(settings.remote.clone());
        let serving = async {
            let all_ended = CancellationToken::new();
            let local = serve_connections(self.listener, router, ending.clone());
            let others = serve_others(remote, relayed, &settings, &platform, &ending);
            let serving = async { tokio::try_join!(local, others).map(|_| ()) };
            let ((), served) = tokio::join!(drain(&platform, &ending, &all_ended), async {
                let served = serving.await;
                all_ended.cancel();
                served
            });
            served
        };
        let leasing = Arc::clone(&platform.leases).serve(self.leases, ending.over.clone());
        let leads = Leading::end_when_lost(leading.as_ref(), &ending);
        let (served, joined, leased, led) = tokio::join!(serving, joining, leasing, leads);
        // What its connections had asked for is cancelled now.
        platform.images.idle(END_TIMEOUT).await;
        platform.queries.cleaned(END_TIMEOUT).await;
        // After all who hold leases: their sandboxes are ended by them, with the reasons that they
        // know.
        let stopped = doors::end(&self.socket, &node).await;
        // After all whose ends it tells.
        platform.audit.close().await;
        // After all that was written.
        if let Some(leading) = leading {
            leading.resign().await;
        }
        led.and(served).and(joined).and(leased).and(stopped)
    }
}

/// Starts no waiting call once the server is asked to end, and gives running ones the grace time.
async fn drain(platform: &GatewayPlatform, ending: &Ending, all_ended: &CancellationToken) {
    tokio::select! {
        () = ending.asked.cancelled() => {}
        // It could not serve at all.
        () = all_ended.cancelled() => {}
    }
    // Waiting calls are left to the next server; only running ones use the grace time.
    platform.functions.stop();
    let idle = async {
        all_ended.cancelled().await;
        platform.async_calls.idle().await;
    };
    let _ = tokio::time::timeout(platform.grace.get(), idle).await;
    ending.over.cancel();
}

async fn platform(
    settings: &ServerSettings,
    socket: &Path,
    host: TaskHost,
    ending: &Ending,
    leading: Option<&Leading>,
) -> Result<Arc<GatewayPlatform>, ErrorReport> {
    let node = host.node().clone();
    let records = start::records(settings, leading, ending).await?;
    let analysis = AnalysisCache::new(settings.state_dir.join("known"));
    let logs = start::logs(settings, &records).await?;
    let term = leading.map(Leading::term);
    let OwnCluster { hosts, authority } =
        OwnCluster::open(settings, &node, &records, &ending.over, term).await?;
    // A private platform has no other hosts, and runs beside a server that holds the store.
    if !settings.private {
        records.drained().await?.iter().for_each(|host| hosts.set_drained(host, true));
    }
    // A platform that ends with its client has nothing to go on with.
    let folder = settings.shared_folder().join("bursts");
    let kept = (!settings.private).then(|| BurstStorage::new(records.clone(), folder));
    host.limit_reads(&settings.secrets_dir, settings.http_sources.clone());
    let secrets = SecretSources::new(&settings.secrets_dir);
    let trees = Trees::new(settings.images.trees);
    let places = OwnPlaces { hosts: hosts.clone(), trees: trees.clone() };
    let catalog = UdfCatalog::new(host.clone(), analysis.clone(), secrets.clone(), places);
    let udf_logs = UdfLogs::new(settings.state_dir.join("udf-logs"));
    let udfs = UdfRegistry::new(records.clone(), Arc::new(catalog), udf_logs);
    let placing = settings.placing;
    let quotas = Quotas::new(settings.quotas.clone());
    let audit = audit(settings, ending)?;
    let placements = Placements::new(node.clone(), hosts.clone(), trees.clone(), placing);
    let placements = placements.within(quotas.clone());
    start::take_reports(settings, &placements, ending);
    let cluster = ClusterResources { hosts: hosts.clone(), trees, placements: placements.clone() };
    let over = ending.over.clone();
    let bursts =
        Bursts::new(node.clone(), analysis.clone(), cluster.clone(), secrets.clone(), kept, over);
    let functions =
        Functions::new(node.clone(), analysis, records, logs, placements.clone(), secrets);
    let provider = settings.provider.as_ref();
    let pool = HostPool::of(provider, placing.reclaim_after, hosts.clone(), placements);
    tokio::spawn(pool.clone().keep(ending.over.clone()));
    let folders = [&settings.state_dir, &settings.run_base, &settings.secrets_dir];
    let folders = Folders::new(folders.map(PathBuf::as_path));
    let disk = TenantDisk::new(&settings.state_dir, functions.records(), &quotas);
    Ok(Arc::new(GatewayPlatform {
        leases: Arc::new(
            Leases::new(functions.clone(), udfs.clone(), folders.clone())
                .watched(audit.clone(), leading.map(Leading::watch)),
        ),
        queries: Queries::new(host, cluster, udfs.clone(), ending.over.clone()).hiding(folders),
        udfs,
        images: Images::new(&settings.state_dir, settings.images.clone(), ending.over.clone())
            .beside(functions.records(), &disk),
        disk,
        async_calls: AsyncCalls::new(functions.clone()),
        keys: Keys::open(functions.records().clone()).await?,
        audit: audit.clone(),
        certificate: settings.remote.as_ref().map(|remote| remote.certificate.clone()),
        quotas: StoredQuotas::open(quotas, functions.records().clone()).await?,
        functions,
        bursts,
        pool,
        prunings: Prunings::default(),
        hosts,
        authority,
        node,
        shutdown: ending.asked.clone(),
        grace: Grace::new(if settings.private { PRIVATE_GRACE } else { GRACE }),
        private: settings.private,
        lead: leading.map(Leading::of_platform),
        socket: socket.display().to_string(),
        started_ms: now_ms(),
    }))
}
