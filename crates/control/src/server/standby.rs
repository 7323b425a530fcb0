//! A control among several that share a store: it leads, or stands by until it does.
//!
//! Invariants: only a control that leads makes a platform, reads records and gives orders. One that
//! stands by answers that another leads. A control that knows that it no longer leads ends: what it
//! has in memory is no longer true. Its process then begins again, to stand by.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use snowmelt_api::{PoolStatus, Status};
use snowmelt_node::Node;
use snowmelt_rpc::server::{self, Ending};
use snowmelt_rpc::{Credential, Peer, Problem, admit, body};
use snowmelt_store::etcd::{Etcd, Lead, LeadWatch, OtherLead};
use snowmelt_store::{Error, LongValues};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::own_cluster::standby_credential;
use super::{Remote, ServerSettings, StoreSettings};
use crate::cluster::hosts::listener;
use crate::gateway::remote_clients;
use crate::now_ms;
use crate::platform::PlatformLead;
use crate::state::records::Records;

/// The name of the lead of all functions of a platform.
const LEAD: &str = "control";
/// The most bytes of a record in etcd; longer ones are files of the shared folder.
const LONGEST: usize = 64 << 10;
/// The folder of long records in the shared folder.
const RECORDS: &str = "records";
/// Time between two removals of files that no record names.
const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_secs(3600);
/// The pause after a store that does not answer.
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(500);

/// The lead of this control, and its records.
#[derive(Debug)]
pub(super) struct Leading {
    lead: Lead,
    records: LongValues,
    place: String,
}

impl Leading {
    /// Opens the records.
    pub async fn records(&self) -> Result<Records, ErrorReport> {
        Records::over(Arc::new(self.records.clone())).await
    }

    /// The knowledge whether this control leads.
    pub fn watch(&self) -> LeadWatch {
        self.lead.watch()
    }

    /// The lead as the platform shows and checks it.
    pub fn of_platform(&self) -> PlatformLead {
        let term = self.lead.term();
        let store = format!("{}; this control leads since revision {term}", self.place);
        PlatformLead { store, watch: self.watch() }
    }

    /// The term of this leader, which grows with each.
    pub fn term(&self) -> u64 {
        self.lead.term().0
    }

    /// Ends the server at once when this control no longer leads, if it does among others.
    pub async fn end_when_lost(leading: Option<&Self>, ending: &Ending) -> Result<(), ErrorReport> {
        let Some(leading) = leading else { return Ok(()) };
        tokio::select! {
            () = leading.lead.lost() => {
                tracing::error!("this control no longer leads, and ends");
                ending.asked.cancel();
                ending.over.cancel();
                Err(Error::Deposed.report())
            }
            () = ending.over.cancelled() => Ok(()),
        }
    }

    /// Removes files that no record names, until the server ends.
    pub async fn sweep(records: LongValues, over: CancellationToken) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        while over.run_until_cancelled(tick.tick()).await.is_some() {
            if let Err(error) = records.sweep().await {
                tracing::warn!(%error, "files of the shared folder that no record names are kept");
            }
        }
    }

    /// The store of the records.
    pub fn store(&self) -> LongValues {
        self.records.clone()
    }

    /// Lets another control lead at once.
    pub async fn resign(self) {
        drop(self.lead.resign().await);
    }
}

/// The listeners of a server, which are shared while it stands by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listeners<'a> {
    pub local: &'a std::os::unix::net::UnixListener,
    pub hosts: Option<&'a std::net::TcpListener>,
    pub remote: Option<&'a std::net::TcpListener>,
    pub socket: &'a Path,
}

/// The next step of a server that has stood by.
pub(super) enum Turn {
    /// Serves: as the leader, or as the only control of its store.
    Serve(Option<Leading>),
    /// Ends, because it was asked to.
    End,
}

/// Waits until this server is to serve.
pub(super) async fn turn(
    settings: &ServerSettings,
    listeners: Listeners<'_>,
    node: &Node,
    ending: &Ending,
) -> Result<Turn, ErrorReport> {
    let Some(store) = &settings.store else { return Ok(Turn::Serve(None)) };
    let led = lead(settings, store, listeners, node, ending).await?;
    Ok(led.map_or(Turn::End, |leading| Turn::Serve(Some(leading))))
}

/// Leads, if need be after standing by. `None` if the server is asked to end before.
async fn lead(
    settings: &ServerSettings,
    store: &StoreSettings,
    listeners: Listeners<'_>,
    node: &Node,
    ending: &Ending,
) -> Result<Option<Leading>, ErrorReport> {
    let failed = |error: Error| error.report();
    let etcd = Etcd::new(store.etcd.clone()).map_err(failed)?;
    let says = Bytes::from(name(settings));
    // An etcd that is not there is an error of who starts the server.
    let mut other = match etcd.try_lead(LEAD, &says).await.map_err(failed)? {
        Ok(lead) => return leading(lead, store, etcd.place()).map(Some),
        Err(other) => other,
    };
    tracing::info!(leader = %named(&other), "another control leads, and this one stands by");
    let answering = CancellationToken::new();
    let status = status(settings, node, listeners.socket, &etcd, &other);
    let doors = Doors::open(settings, listeners, status, ending.asked.clone(), &answering)?;
    let doors = tokio::spawn(doors.serve());
    let led = loop {
        let tried = async {
            etcd.await_no_leader(LEAD).await?;
            etcd.try_lead(LEAD, &says).await
        };
        let Some(tried) = ending.asked.run_until_cancelled(tried).await else { break Ok(None) };
        match tried {
            Ok(Ok(lead)) => break leading(lead, store, etcd.place()).map(Some),
            Ok(Err(next)) => other = next,
            Err(error) => {
                tracing::warn!(%error, leader = %named(&other), "the store does not answer");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    };
    answering.cancel();
    drop(doors.await);
    led
}

fn leading(lead: Lead, store: &StoreSettings, place: String) -> Result<Leading, ErrorReport> {
    let folder = store.folder.join(RECORDS);
    let records = LongValues::new(Arc::new(lead.store()), &folder, LONGEST);
    let records = records.map_err(|error| error.report())?;
    Ok(Leading { lead, records, place })
}

/// The name of this control for others.
fn name(settings: &ServerSettings) -> String {
    let cluster = settings.cluster.as_ref();
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    cluster.map_or(machine, |cluster| format!("{} at {}", cluster.name, cluster.listen))
}

fn named(other: &OtherLead) -> String {
    String::from_utf8_lossy(&other.says).into_owned()
}

/// The listener for hosts of a control that stands by.
struct HostDoor {
    listener: std::net::TcpListener,
    router: Router,
    credential: Credential,
}

/// The listeners of a control that stands by.
struct Doors {
    local: UnixListener,
    local_router: Router,
    hosts: Option<HostDoor>,
    remote: Option<(std::net::TcpListener, Remote)>,
    ending: CancellationToken,
}

impl Doors {
    /// Takes copies of the listeners: connections that are not accepted wait for the leader.
    fn open(
        settings: &ServerSettings,
        listeners: Listeners<'_>,
        status: Status,
        asked: CancellationToken,
        ending: &CancellationToken,
    ) -> Result<Self, ErrorReport> {
        let failed = |error: std::io::Error| {
            ErrorReport::new(Code::INTERNAL, format!("cannot stand by: {error}"))
        };
        let local = listeners.local.try_clone().map_err(failed)?;
        local.set_nonblocking(true).map_err(failed)?;
        let local = UnixListener::from_std(local).map_err(failed)?;
        let copied = |listener: Option<&std::net::TcpListener>| {
            listener.map(std::net::TcpListener::try_clone).transpose().map_err(failed)
        };
        let credential = standby_credential(settings, ending)?;
        let hosts = copied(listeners.hosts)?.zip(credential).map(|(listener, credential)| {
            let layer = axum::middleware::from_fn_with_state(credential.clone(), admit);
            let router = Router::new().fallback(elsewhere).layer(layer);
            // A host that has no certificate yet.
            HostDoor { listener, router: router.route("/v1/join", post(elsewhere)), credential }
        });
        let remote = copied(listeners.remote)?.zip(settings.remote.clone());
        let answer = move || async move { body::json(StatusCode::OK, &status) };
        let local_router = health()
            .route("/v1/status", get(answer))
            .route("/v1/shutdown", post(shutdown))
            .with_state(asked)
            .fallback(elsewhere);
        Ok(Self { local, local_router, hosts, remote, ending: ending.clone() })
    }

    async fn serve(self) {
        let ending = Ending { asked: self.ending.clone(), over: self.ending.clone() };
        let local = server::serve(self.local, self.local_router, server::LOCAL, ending.clone());
        let hosts = async {
            if let Some(HostDoor { listener, router, credential }) = self.hosts {
                drop(listener::serve(listener, router, credential, self.ending.clone()).await);
            }
        };
        let remote = async {
            if let Some((listener, remote)) = self.remote {
                let router = health::<()>().fallback(elsewhere);
                let serving = remote_clients::serve(listener, remote.certificate, router, ending);
                drop(serving.await);
            }
        };
        tokio::join!(local, hosts, remote);
    }
}

/// Answers load balancers: this control lives, and takes no work.
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

fn status(
    settings: &ServerSettings,
    node: &Node,
    socket: &Path,
    etcd: &Etcd,
    other: &OtherLead,
) -> Status {
    let place = etcd.place();
    Status {
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
        store: format!("{place}; this control stands by, `{}` leads", named(other)),
    }
}

/// The state of a store, for `snowmelt doctor`.
#[derive(Clone, Debug)]
pub struct StoreState {
    /// The store in words.
    pub place: String,
    /// The version of etcd.
    pub version: String,
    /// The size of its database in bytes.
    pub bytes: u64,
    /// Alarms of etcd, and what is wrong with the shared folder.
    pub errors: Vec<String>,
    /// Whether records cross the network without encryption.
    pub sends_in_clear: bool,
}

/// Asks a store for its state.
///
/// # Errors
/// `SM-0526` if it does not answer, `SM-0110` for settings that are wrong.
pub async fn check_store(settings: &StoreSettings) -> Result<StoreState, ErrorReport> {
    let etcd = Etcd::new(settings.etcd.clone()).map_err(|error| error.report())?;
    let status = etcd.status().await.map_err(|error| error.report())?;
    let mut errors = status.errors;
    if !settings.folder.is_dir() {
        errors.push(format!("there is no folder {}", settings.folder.display()));
    }
    Ok(StoreState {
        place: etcd.place(),
        version: status.version,
        bytes: status.bytes,
        errors,
        sends_in_clear: settings.etcd.sends_in_clear(),
    })
}
