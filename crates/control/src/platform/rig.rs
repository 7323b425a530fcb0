//! A deployed function on a node with a spawner of its own, for tests that run it; and a platform
//! without sandboxes, for tests of what needs none.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{CallMode, FunctionOptions, FunctionSpec, HostJoin, Runtime};
use snowmelt_node::{EnforcementChoice, ImageSettings, Node, Options};
use snowmelt_rpc::{Credential, Token};
use snowmelt_sandbox::Spawner;
use snowmelt_tasks::{
    TaskHost,
    agent::{self, Agent},
};
use snowmelt_types::{ByteSize, HostName, SandboxId, Tenant};
use snowmelt_wire::SourceCode;
use tokio_util::sync::CancellationToken;

use super::prunings::Prunings;
use super::{GatewayPlatform, Grace};
use crate::access::redaction::Folders;
use crate::access::secrets::SecretSources;
use crate::bursts::{BurstStorage, Bursts};
use crate::cluster::ClusterResources;
use crate::cluster::hosts::{BEAT, Hosts, listener};
use crate::cluster::placements::{self, Placements};
use crate::cluster::pool::HostPool;
use crate::cluster::trees::Trees;
use crate::functions::Functions;
use crate::functions::async_calls::AsyncCalls;
use crate::images::Images;
use crate::leases::Leases;
use crate::queries::Queries;
use crate::reports::audit::Audit;
use crate::state::analysis_cache::AnalysisCache;
use crate::state::disk::TenantDisk;
use crate::state::keys::Keys;
use crate::state::logs::Logs;
use crate::state::quotas::StoredQuotas;
use crate::state::records::{FunctionId, Records};
use crate::udfs::{UdfCatalog, UdfLogs, UdfRegistry};

/// Deploys a Python function and runs a test with it.
pub(crate) fn with_functions<F: Future<Output = ()>>(
    text: &str,
    test: impl FnOnce(Functions, FunctionId) -> F,
) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    let base = tempfile::tempdir().unwrap();
    let control_group = format!("snowmelt/test-{}", SandboxId::new());
    let process = Spawner::launch(snowmelt_sandbox::Options {
        run_dir: base.path().join("run"),
        spawner_command: vec![spawner_program().into()],
        parent_cgroup: control_group.clone(),
        total: Default::default(),
        server_user: None,
    });
    let process = process.unwrap();
    let state_dir = base.path().join("state");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = options(base.path(), control_group);
        let node = Node::new(options, process.attach().unwrap()).unwrap();
        let analysis = AnalysisCache::new(state_dir.join("known"));
        let records = Records::open(state_dir.join("state.redb"), true).await.unwrap();
        let logs = Logs::new(state_dir.join("logs"));
        let placements = placements(&node, &hosts(&node));
        let secrets = SecretSources::new(base.path().join("secrets"));
        let functions = Functions::new(node.clone(), analysis, records, logs, placements, secrets);
        let deployed = functions.deploy(Tenant::default(), spec(text)).await.unwrap();
        test(functions, FunctionId { tenant: deployed.tenant, name: deployed.name }).await;
        node.stop().await.unwrap();
    });
}

fn options(base: &Path, control_group: String) -> Options {
    Options {
        shared_dir: None,
        state_dir: base.join("state"),
        worker_binary: std::env::current_exe().unwrap(),
        program: std::env::current_exe().unwrap(),
        images_dir: base.join("images"),
        python: None,
        trusted: None,
        handler_cache: ByteSize::mib(1024),
        import_cache: ByteSize::mib(1024),
        zygotes: None,
        capacity: snowmelt_node::capacity(&snowmelt_sandbox::Total::default()),
        overcommit: snowmelt_node::OVERCOMMIT,
        images: ImageSettings::default(),
        enforcement: EnforcementChoice::default(),
        control_group,
        networks_dir: base.join("networks"),
    }
}

/// Everything that a server has, over a process that says that it is a spawner and makes nothing: a
/// request that needs a sandbox is never answered. Needs no rights; nothing of it remains when it
/// is dropped.
pub(crate) struct IdlePlatform {
    pub platform: Arc<GatewayPlatform>,
    pub records: Records,
    base: tempfile::TempDir,
}

impl IdlePlatform {
    pub fn state_dir(&self) -> PathBuf {
        self.base.path().join("state")
    }
}

/// Takes the set-up message, answers that it is ready, and ends with its server.
const NO_SPAWNER: &str = "
import os, socket
control = socket.socket(fileno=os.dup(0))
control.recv(1 << 18)
socket.send_fds(control, [b'{\"Ok\": null}'], [os.pidfd_open(os.getpid())])
while control.recv(1 << 18): pass
";

pub(crate) async fn idle_platform() -> IdlePlatform {
    let base = tempfile::tempdir().unwrap();
    let control_group = format!("snowmelt/test-{}", SandboxId::new());
    let process = Spawner::launch(snowmelt_sandbox::Options {
        run_dir: base.path().join("run"),
        spawner_command: ["python3", "-I", "-S", "-c", NO_SPAWNER].map(Into::into).to_vec(),
        parent_cgroup: control_group.clone(),
        total: Default::default(),
        server_user: None,
    });
    let spawner = process.unwrap().attach().unwrap();
    let node = Node::new(options(base.path(), control_group), spawner).unwrap();
    let state_dir = base.path().join("state");
    let records = Records::open(state_dir.join("state.redb"), true).await.unwrap();
    let analysis = AnalysisCache::new(state_dir.join("known"));
    let logs = Logs::new(state_dir.join("logs"));
    let hosts = hosts(&node);
    let over = CancellationToken::new();
    let placements = placements(&node, &hosts);
    let secrets = SecretSources::new(base.path().join("secrets"));
    let functions = Functions::new(
        node.clone(),
        analysis.clone(),
        records.clone(),
        logs,
        placements,
        secrets.clone(),
    );
    let places = functions.placements().own_places();
    let host = TaskHost::new(node.clone());
    let catalog =
        Arc::new(UdfCatalog::new(host.clone(), analysis.clone(), secrets.clone(), places));
    let udfs = UdfRegistry::new(records.clone(), catalog, UdfLogs::new(state_dir.join("udf-logs")));
    let kept = BurstStorage::new(records.clone(), state_dir.join("bursts"));
    let placements = functions.placements().clone();
    let cluster = ClusterResources {
        hosts: hosts.clone(),
        trees: Trees::default(),
        placements: placements.clone(),
    };
    let disk = TenantDisk::new(&state_dir, &records, placements.quotas());
    let platform = GatewayPlatform {
        certificate: None,
        lead: None,
        keys: Keys::open(records.clone()).await.unwrap(),
        audit: Audit::default(),
        quotas: StoredQuotas::open(placements.quotas().clone(), records.clone()).await.unwrap(),
        pool: HostPool::of(None, Duration::ZERO, hosts.clone(), placements),
        queries: Queries::new(host, cluster.clone(), udfs.clone(), over.clone()),
        leases: Arc::new(Leases::new(functions.clone(), udfs.clone(), Folders::new([base.path()]))),
        udfs,
        async_calls: AsyncCalls::new(functions.clone()),
        functions,
        images: Images::new(&state_dir, ImageSettings::default(), over.clone())
            .beside(&records, &disk),
        disk,
        bursts: Bursts::new(node.clone(), analysis, cluster, secrets, Some(kept), over),
        hosts,
        authority: None,
        node,
        prunings: Prunings::default(),
        shutdown: CancellationToken::new(),
        grace: Grace::new(Duration::ZERO),
        private: false,
        socket: String::new(),
        started_ms: 0,
    };
    IdlePlatform { platform: Arc::new(platform), records, base }
}

/// Returns the functions of a control that runs none of them itself: they run on another host, an
/// agent of the same node, which is reached over HTTP until `over`.
pub(crate) fn on_another_host(functions: &Functions, over: &CancellationToken) -> Functions {
    on_another_host_behind(|address| address, functions, over)
}

/// Returns such functions, for a host that control reaches at another address than the one where it
/// listens.
pub(crate) fn on_another_host_behind(
    before: impl FnOnce(SocketAddr) -> SocketAddr,
    functions: &Functions,
    over: &CancellationToken,
) -> Functions {
    let (node, analysis) = functions.node_and_analysis();
    let credential = Credential::from(Token::new("sixteen-characters").unwrap());
    let own = Agent::new(node.clone(), Some(ByteSize(0)));
    let control = "control".to_owned().try_into().unwrap();
    let hosts = Hosts::new(control, own, Some(credential.clone()), None).unwrap();
    let far = Agent::new(node.clone(), None);
    let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = Some(before(listener.local_addr().unwrap()));
    let name: HostName = "far".to_owned().try_into().unwrap();
    let joined = hosts.clone();
    let reports = far.clone();
    let report = move || {
        let join = HostJoin { name: name.clone(), address, facts: reports.facts() };
        joined.join(join).unwrap();
    };
    report();
    let until = over.clone();
    tokio::spawn(async move {
        while until.run_until_cancelled(tokio::time::sleep(BEAT)).await.is_some() {
            report();
        }
    });
    let router = agent::router(far, TaskHost::new(node.clone()), credential.clone());
    tokio::spawn(listener::serve(listener, router, credential, over.clone()));
    let placements = placements(&node, &hosts);
    placements.take_reports();
    let logs = Logs::new(std::env::temp_dir().join("no-logs"));
    let secrets = SecretSources::new("/no/secrets");
    Functions::new(node, analysis, functions.records().clone(), logs, placements, secrets)
}

/// Returns the hosts of a platform with one host.
fn hosts(node: &Node) -> Hosts {
    let agent = Agent::new(node.clone(), None);
    Hosts::new("this-host".to_owned().try_into().unwrap(), agent, None, None).unwrap()
}

fn placements(node: &Node, hosts: &Hosts) -> Placements {
    let reclaim_after = std::time::Duration::from_secs(900);
    let burst_wait = std::time::Duration::from_secs(300);
    let settings = placements::PlacementSettings {
        instances_per_host: 20,
        reclaim_after,
        burst_wait,
        is_elastic: false,
    };
    Placements::new(node.clone(), hosts.clone(), Trees::default(), settings)
}

/// Returns the spawner program, which is built with the tests of the whole workspace.
fn spawner_program() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let program = here.ancestors().nth(2).unwrap().join("examples/spawner");
    assert!(program.is_file(), "build {} with `cargo build --examples`", program.display());
    program
}

pub(crate) fn spec(text: &str) -> FunctionSpec {
    FunctionSpec {
        name: "f".parse().unwrap(),
        code: SourceCode::Source { file: "f.py".into(), text: text.into() },
        handler: "handler".into(),
        runtime: Runtime::Python,
        command: Vec::new(),
        root: None,
        image: None,
        packed: None,
        mode: CallMode::Event,
        packages: Vec::new(),
        files: Default::default(),
        secrets: Default::default(),
        options: FunctionOptions::default(),
        tenant: None,
        expected: 1,
        ephemeral: false,
    }
}

/// Waits for something that happens in the background.
pub(crate) async fn until(what: &str, true_now: impl AsyncFn() -> bool) {
    let waiting = async {
        while !true_now().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "not within 60 s: {what}");
}
