//! The listeners of a control that stands by.

use std::path::{Path, PathBuf};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use snowmelt_api::{PoolStatus, Status};
use snowmelt_node::Node;
use snowmelt_rpc::server::client_relay::ClientRelay;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::{Credential, HostTarget, Peer, Problem, admit, body};
use snowmelt_store::Error;
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Listeners;
use super::leader::KnownLeader;
use crate::cluster::hosts::listener;
use crate::gateway::remote_clients;
use crate::leases;
use crate::now_ms;
use crate::server::{Remote, ServerSettings};

/// The listener for hosts of a control that stands by.
struct HostDoor {
    listener: std::net::TcpListener,
    router: Router,
    credential: Credential,
}

/// The listeners of a control that stands by.
pub(super) struct Doors {
    local: UnixListener,
    local_router: Router,
    leases: UnixListener,
    hosts: Option<HostDoor>,
    remote: Option<(std::net::TcpListener, Remote)>,
    leader: watch::Receiver<Option<HostTarget>>,
    /// The folder that all controls of the store have.
    shared: PathBuf,
    ending: CancellationToken,
}

impl Doors {
    /// Takes copies of the listeners: connections that are not accepted wait for the leader.
    pub fn open(
        settings: &ServerSettings,
        listeners: Listeners<'_>,
        status: StandbyStatus,
        credential: Option<Credential>,
        asked: CancellationToken,
        ending: &CancellationToken,
    ) -> Result<Self, ErrorReport> {
        let failed = |error: std::io::Error| {
            ErrorReport::new(Code::INTERNAL, format!("cannot stand by: {error}"))
        };
        let local = listeners.local.try_clone().map_err(failed)?;
        let leases = listeners.leases.try_clone().map_err(failed)?;
        let asynchronous = |listener: std::os::unix::net::UnixListener| {
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        };
        let local = asynchronous(local).map_err(failed)?;
        let leases = asynchronous(leases).map_err(failed)?;
        let copied = |listener: Option<&std::net::TcpListener>| {
            listener.map(std::net::TcpListener::try_clone).transpose().map_err(failed)
        };
        let hosts = copied(listeners.hosts)?.zip(credential).map(|(listener, credential)| {
            let layer = axum::middleware::from_fn_with_state(credential.clone(), admit);
            let router = Router::new().fallback(elsewhere).layer(layer);
            // A host that has no certificate yet.
            HostDoor { listener, router: router.route("/v1/join", post(elsewhere)), credential }
        });
        let remote = copied(listeners.remote)?.zip(settings.remote.clone());
        let leader = status.known.target();
        let answer = move || async move { body::json(StatusCode::OK, &status.now()) };
        let local_router = health()
            .route("/v1/status", get(answer))
            .route("/v1/shutdown", post(shutdown))
            .with_state(asked)
            .fallback(elsewhere);
        let shared = settings.shared_folder().to_owned();
        let ending = ending.clone();
        Ok(Self { local, local_router, leases, hosts, remote, leader, shared, ending })
    }

    pub async fn serve(self) {
        let over = self.ending;
        let ending = Ending { asked: over.clone(), over: over.clone() };
        let local = server::serve(self.local, self.local_router, server::LOCAL, ending.clone());
        let leases = leases::refuse_all(self.leases, elsewhere().await.report, over.clone());
        let hosts = async {
            if let Some(HostDoor { listener, router, credential }) = self.hosts {
                drop(listener::serve(listener, router, credential, over.clone()).await);
            }
        };
        let remote = async {
            if let Some((listener, Remote { certificate, .. })) = self.remote {
                tokio::spawn(certificate.clone().follow(self.shared, over.clone()));
                let own = health::<()>().fallback(elsewhere);
                let relay = ClientRelay::new(self.leader, own);
                drop(remote_clients::relay(listener, certificate.shown(), relay, ending).await);
            }
        };
        tokio::join!(local, leases, hosts, remote);
    }
}

/// Answers supervisors, and load balancers while no control that leads can be reached.
fn health<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let standing_by = (StatusCode::SERVICE_UNAVAILABLE, "another control leads\n");
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { standing_by }))
}

/// Ends a server that stands by, for its own user and root.
async fn shutdown(
    State(asked): State<CancellationToken>,
    Extension(peer): Extension<Peer>,
) -> Result<StatusCode, Problem> {
    let own = rustix::process::geteuid().as_raw();
    if !matches!(peer, Peer::User(user) if user == own || user == 0) {
        let message = "only the user of the server and root may end a server that stands by";
        return Err(ErrorReport::new(Code::RIGHT_MISSING, message).into());
    }
    asked.cancel();
    Ok(StatusCode::ACCEPTED)
}

/// Answers what only the leader does. Nothing about it is said to who has not shown a token.
async fn elsewhere() -> Problem {
    let report = ErrorReport { retryable: true, ..Error::Deposed.report() };
    Problem { status: StatusCode::SERVICE_UNAVAILABLE, report }
}

/// The state of a control that stands by.
#[derive(Clone)]
pub(super) struct StandbyStatus {
    started: Status,
    place: String,
    node: Node,
    known: KnownLeader,
    remote: Option<Remote>,
}

impl StandbyStatus {
    pub fn of(
        settings: &ServerSettings,
        node: &Node,
        socket: &Path,
        place: String,
        known: &KnownLeader,
    ) -> Self {
        let started = Status {
            version: snowmelt_rpc::version().to_owned(),
            pid: std::process::id(),
            started_ms: now_ms(),
            socket: socket.display().to_string(),
            memory_bytes: 0,
            queries: 0,
            workers: [0, 0],
            instances: [0, 0],
            zygotes: 0,
            functions: 0,
            spawner: node.spawner(),
            pool: PoolStatus {
                provider: "static".to_owned(),
                is_elastic: false,
                least: 1,
                most: 1,
                provided: 0,
                lacking: 0,
                failure: None,
                retry_ms: None,
            },
            image_trees: settings.images.trees,
            store: String::new(),
            certificate: None,
        };
        let remote = settings.remote.clone();
        Self { started, place, node: node.clone(), known: known.clone(), remote }
    }

    fn now(&self) -> Status {
        let leader = self.known.name();
        let clock = self.known.clock().complaint();
        let clock = if clock.is_empty() { clock } else { format!(", and{clock}") };
        let store = format!("{}; this control stands by{clock}, `{leader}` leads", self.place);
        let certificate = self.remote.as_ref().map(|remote| remote.certificate.status());
        Status { spawner: self.node.spawner(), store, certificate, ..self.started.clone() }
    }
}
