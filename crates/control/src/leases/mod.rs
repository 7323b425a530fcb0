//! The lease service gives an instance to whoever asks for one: on the local socket as a connected
//! descriptor, by the API over the connection of the request. On a cluster the scheduler of calls
//! decides on which host the instance is.
//!
//! A container manager of another engine, or a runtime, gets instances here. Invariants: a client
//! gets instances of functions of its own tenant only, and none of its connections to an instance
//! outlives its lease. Nothing waits for a client that is gone.
//!
//! | part | file |
//! |---|---|
//! | a client on its connection, and clients that no descriptor can reach | `client`, `watch`, `relay` |
//! | the leased instance, of a function or a UDF | `lease`, `udf` |
//! | requests while another control leads | `refusal` |

mod client;
mod lease;
mod refusal;
mod relay;
mod udf;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use snowmelt_api::{LeaseOf, LeaseRequest, Leased};
use snowmelt_node::LOAD_LIMIT;
use snowmelt_rpc::upgrade::Incoming;
use snowmelt_schedule::CallDemand;
use snowmelt_store::etcd::LeadWatch;
use snowmelt_tasks::remote::leases::InstanceLeased;
use snowmelt_types::{Code, ErrorReport, Report, Right, Tenant};
use snowmelt_wire::{Frame, Kind, Mode, read_frame_within, write_frame};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::identity::Identity;
use crate::access::key::KeyLife;
use crate::access::quotas::Shares;
use crate::access::redaction::Folders;
use crate::cluster::placements::{Acquired, Callee, Placements, Ran};
use crate::functions::Functions;
use crate::functions::preparation::instance_room;
use crate::reports::audit::Audit;
use crate::reports::{DROPPED, Durations, SUCCEEDED};
use crate::state::records::FunctionId;
use crate::udfs::UdfRegistry;
use client::{Keep, LeaseClient, broken};
use lease::{LeasePlace, LeasedInstance, Out};
pub(crate) use refusal::refuse_all;
use relay::RelayConnection;
use udf::LeasedUdf;
use watch::LeaseConnection;

/// The most bytes of a request, which may have the code of a UDF.
const MAX_REQUEST: u32 = 64 << 20;

/// The most leases and connections that ask for one, together.
const MAX_CONNECTIONS: usize = 4096;

/// The most leases by the API at one time, of all tenants.
const MAX_RELAYED: usize = 1024;

/// The most leases by the API of one tenant, with connections that have asked for none yet.
const MAX_OF_TENANT: u64 = 512;

/// Gives leases of instances.
#[derive(Debug)]
pub(crate) struct Leases {
    functions: Functions,
    udfs: UdfRegistry,
    folders: Folders,
    relayed: Relays,
    durations: Durations,
    audit: Audit,
    /// Whether this control leads, where several share a store.
    lead: Option<LeadWatch>,
}

/// The reason why a lease is over that was not returned.
enum Over {
    /// The client is gone, and has had no instance.
    Gone,
    /// The error that the client is to be told.
    Failed(Box<ErrorReport>),
}

impl From<ErrorReport> for Over {
    fn from(error: ErrorReport) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// The leases by the API.
#[derive(Debug)]
struct Relays {
    room: Arc<Semaphore>,
    shares: Shares,
    tasks: TaskTracker,
    over: CancellationToken,
}

impl Leases {
    pub fn new(functions: Functions, udfs: UdfRegistry, folders: Folders) -> Self {
        let room = Arc::new(Semaphore::new(MAX_RELAYED));
        let shares = Shares::new(MAX_OF_TENANT);
        let over = CancellationToken::new();
        let relayed = Relays { room, shares, tasks: TaskTracker::new(), over };
        let durations = Durations::default();
        Self { functions, udfs, folders, relayed, durations, audit: Audit::default(), lead: None }
    }

    /// Writes a line of the audit for each lease, and gives none while another control may lead.
    pub fn watched(self, audit: Audit, lead: Option<LeadWatch>) -> Self {
        Self { audit, lead, ..self }
    }

    /// Returns the durations of leases, with the wait for their instances.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Returns the folders whose paths are not shown to clients on other hosts.
    pub fn folders(&self) -> &Folders {
        &self.folders
    }

    /// Serves until the server ends, which ends all leases.
    pub async fn serve(
        self: Arc<Self>,
        listener: std::os::unix::net::UnixListener,
        over: CancellationToken,
    ) -> Result<(), ErrorReport> {
        listener.set_nonblocking(true).map_err(broken)?;
        let listener = UnixListener::from_std(listener).map_err(broken)?;
        let mut connections = JoinSet::new();
        loop {
            let is_full = connections.len() >= MAX_CONNECTIONS;
            tokio::select! {
                () = over.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if !is_full => match accepted {
                    Ok((stream, _)) => {
                        let leases = Arc::clone(&self);
                        let client = LeaseConnection::new(stream);
                        connections.spawn(async move { leases.connection(client).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a lease cannot be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(connections);
        self.relayed.over.cancel();
        self.relayed.tasks.close();
        self.relayed.tasks.wait().await;
        Ok(())
    }

    /// Serves one lease over the connection of a request, once the connection has left HTTP. The
    /// lease ends with the key of the request.
    ///
    /// # Errors
    /// Refuses a lease above the most that there may be.
    pub fn relay(
        self: &Arc<Self>,
        incoming: Incoming,
        identity: Identity,
        mut life: KeyLife,
    ) -> Result<(), ErrorReport> {
        let share = self.relayed.shares.take(&identity.tenant, 1).ok_or_else(|| {
            let tenant = &identity.tenant;
            let message = format!(
                "tenant `{tenant}` has {MAX_OF_TENANT} leases by the API, which are the most"
            );
            ErrorReport::new(Code::NO_ROOM, message).hint("end some of them, or share an instance")
        })?;
        let room = Arc::clone(&self.relayed.room).try_acquire_owned().map_err(|_| {
            let message = format!("there are {MAX_RELAYED} leases by the API, which are the most");
            ErrorReport::new(Code::NO_ROOM, message).hint("try again when others have ended")
        })?;
        let leases = Arc::clone(self);
        let over = self.relayed.over.clone();
        self.relayed.tasks.spawn(async move {
            let served = async {
                // The client may have ended meanwhile.
                if let Ok(stream) = incoming.stream().await {
                    let stream = LeaseConnection::new(stream);
                    leases.connection(RelayConnection { stream, identity }).await;
                }
            };
            tokio::select! {
                () = over.cancelled() => {}
                () = life.over() => {}
                () = served => {}
            }
            drop((room, share));
        });
        Ok(())
    }

    /// Serves the lease of a connection, from its request to its return.
    async fn connection(&self, mut client: impl LeaseClient) {
        let within = client.asks_within();
        let served = async {
            let asked = tokio::time::timeout(within, asked(&mut client)).await;
            let Some(request) = asked.unwrap_or(Ok(None))? else { return Ok(()) };
            self.lease(&mut client, request).await
        };
        if let Err(Over::Failed(error)) = served.await
            && let error = if client.is_near() { *error } else { self.folders.hide(*error) }
            && let Ok(failure) = Frame::json(Kind::Failure, &error)
        {
            // A client that is gone needs no reason.
            let _ = write_frame(client.stream(), &failure).await;
            let _ = client.stream().shutdown().await;
        }
    }

    async fn lease(
        &self,
        client: &mut impl LeaseClient,
        request: LeaseRequest,
    ) -> Result<(), Over> {
        if let Some(lead) = &self.lead {
            lead.sure().await.map_err(|error| error.report())?;
        }
        let LeaseRequest { tenant, runs, here } = request;
        let identity = client.identity(tenant)?;
        let name = match &runs {
            LeaseOf::Function(name) => name.to_string(),
            LeaseOf::Udf { name, .. } | LeaseOf::Registered { name, .. } => name.clone(),
        };
        let begun = Instant::now();
        let note = identity.note(&self.audit, None, "lease", &name);
        let allowed = check(&identity, &runs).and_then(|()| self.audit.check());
        let tenant = identity.tenant;
        // It counts as a call as long as it lasts.
        let quotas = self.functions.placements().quotas();
        let begun_call = allowed.and_then(|()| quotas.calls(&tenant, &name, 1));
        let has_begun = begun_call.is_ok();
        let done = match begun_call {
            Ok(_begun) => self.run(client, &tenant, runs, here).await,
            Err(refused) => Err(refused.into()),
        };
        let outcome = match &done {
            Ok(()) => SUCCEEDED,
            Err(Over::Gone) => DROPPED,
            Err(Over::Failed(error)) => error.known_code().code,
        };
        if has_begun {
            self.durations.record(&tenant, &name, outcome, begun.elapsed());
        }
        if let Some(note) = note {
            note.ended(if outcome == SUCCEEDED { "" } else { outcome });
        }
        done
    }

    async fn run(
        &self,
        client: &mut impl LeaseClient,
        tenant: &Tenant,
        runs: LeaseOf,
        here: bool,
    ) -> Result<(), Over> {
        match runs {
            LeaseOf::Function(name) => {
                let id = FunctionId { tenant: tenant.clone(), name };
                let live = waiting(client, self.functions.find(&id)).await?;
                // It counts as one of the calls that the function may have.
                let permit = async { live.permits.acquire().await.map_err(broken) };
                let _permit = waiting(client, permit).await?;
                self.follow(client, live.callee(), here, &|_| ()).await
            }
            LeaseOf::Udf { source, name } => {
                self.udf(client, tenant, here, source, &name, &|_| ()).await
            }
            LeaseOf::Registered { name, version } => {
                let (source, leased) = self.udfs.leased(tenant, &name, version).await?;
                let keep = |text: &str| self.udfs.keep_log(tenant, &name, text);
                let done = self.udf(client, tenant, here, source, &name, &keep).await;
                self.udfs.note_use(&leased).await;
                done
            }
        }
    }

    async fn udf(
        &self,
        client: &mut impl LeaseClient,
        tenant: &Tenant,
        here: bool,
        source: snowmelt_api::UdfSource,
        name: &str,
        keep: Keep<'_>,
    ) -> Result<(), Over> {
        let sources = [source];
        let set = waiting(client, self.udfs.prepare(tenant, &sources)).await?;
        let binding = set.bindings.iter().find(|udf| udf.name.eq_ignore_ascii_case(name));
        let binding = binding.ok_or_else(|| {
            let defined: Vec<_> = set.bindings.iter().map(|udf| udf.name.as_str()).collect();
            let message = format!("the code does not define a UDF `{name}`");
            ErrorReport::new(Code::FUNCTION_MISSING, message)
                .hint(format!("it defines: {}", defined.join(", ")))
        })?;
        if binding.load.mode == Mode::Aggregate {
            let message = format!("`{name}` is an aggregate function, which only SQL can call");
            return Err(ErrorReport::new(Code::PLAN_UNSUPPORTED, message)
                .hint("call it in a query of the platform: `snowmelt sql` or sm.sql")
                .into());
        }
        let udf = LeasedUdf::new(tenant, binding, self.functions.placements());
        self.follow(client, udf.callee(), here, keep).await
    }

    /// Places a lease, hands its instance over, and waits for its end.
    async fn follow(
        &self,
        client: &mut impl LeaseClient,
        callee: Callee<'_>,
        here: bool,
        keep: Keep<'_>,
    ) -> Result<(), Over> {
        let placements = self.functions.placements();
        let room = instance_room(callee.whose.function, callee.limits);
        let _room = placements.quotas().room(&callee.needs.tenant, room)?;
        let needs = match placements.is_alone() {
            true => Arc::clone(callee.needs),
            false => {
                let call = (**callee.needs).clone();
                let only = if here { Some(placements.own_name()) } else { call.only };
                Arc::new(CallDemand { only, near_first: true, ..call })
            }
        };
        let out = waiting(client, open(placements, Callee { needs: &needs, ..callee })).await?;
        Ok(client.follow(out, keep).await?)
    }
}

/// Refuses an instance that the client may not have. Who calls functions may lease those that are
/// there; code that the request brings needs the right to bring code.
fn check(identity: &Identity, runs: &LeaseOf) -> Result<(), ErrorReport> {
    match runs {
        LeaseOf::Function(name) => identity.check_name(name.as_str()),
        LeaseOf::Registered { name, .. } => identity.check_udf_name(name),
        LeaseOf::Udf { source, name } => {
            identity.check_right(Right::Develop, "lease an instance of its own code")?;
            identity.check_udf_source(source)?;
            identity.check_udf_name(name)
        }
    }
}

/// Waits for something on behalf of a client, as long as the client is there.
async fn waiting<T>(
    client: &mut impl LeaseClient,
    what: impl Future<Output = Result<T, ErrorReport>>,
) -> Result<T, Over> {
    tokio::select! {
        // One that is gone takes nothing from others.
        biased;
        () = client.stream().closed() => Err(Over::Gone),
        done = what => Ok(done?),
    }
}

/// Opens an instance with a connection on which the function is loaded.
async fn open<'a>(placements: &'a Placements, callee: Callee<'a>) -> Result<Out<'a>, ErrorReport> {
    let timeout_ms = u64::try_from(callee.whose.limit.as_millis()).unwrap_or(u64::MAX);
    let held =
        |at, placed| LeasedInstance { at, placed, placements, callee, output: OnceLock::new() };
    let mut acquired = placements.acquire(callee).await?;
    let mut failures = 0;
    loop {
        let mut placed = match acquired {
            Acquired::Here(lease, mut placed) => {
                // If the client is gone before it has the instance, that ends.
                placed.has_one_less();
                let connection = lease.open(callee.load, LOAD_LIMIT).await;
                let connection = connection.map_err(|error| error.report())?;
                let start = lease.start;
                let cold = lease.cold;
                let leased = Leased { start, cold, timeout_ms, host: None };
                return Ok(Out { held: held(LeasePlace::Here(lease), placed), connection, leased });
            }
            Acquired::There(placed) => placed,
        };
        placed.has_one_less();
        match placements.lease(&placed.host, callee).await? {
            Ran::Done((far, connection, InstanceLeased { start, cold })) => {
                let host = Some(placed.host.name.clone());
                let leased = Leased { start, cold, timeout_ms, host };
                return Ok(Out { held: held(LeasePlace::There(far), placed), connection, leased });
            }
            Ran::Not { error, failed } => {
                let again = placements.acquire_again(callee, placed, error, failed, &mut failures);
                acquired = again.await?;
            }
        }
    }
}

/// Reads the request of a connection; `None` if the connection ended without one.
async fn asked(client: &mut impl LeaseClient) -> Result<Option<LeaseRequest>, ErrorReport> {
    let frame =
        read_frame_within(client.stream(), MAX_REQUEST).await.map_err(|error| error.report())?;
    let Some(frame) = frame else { return Ok(None) };
    let request = frame.expect(Kind::Request, "LeaseRequest").and_then(|frame| frame.parse());
    request.map(Some).map_err(|error: snowmelt_wire::Error| error.report())
}

#[cfg(test)]
mod tests;
