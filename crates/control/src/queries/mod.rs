//! Queries: from a request to the frames of its answer.

mod counts;
mod driver_request;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use snowmelt_api::{Event, Phase, QueryRequest};
use snowmelt_rpc::trace::{self, SPANS};
use snowmelt_tasks::{Driver, FileRights, Frames, QueryRunner, TaskHost, WorkerLimits};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, QueryId, Report, Tenant};
use snowmelt_wire::{
    Clean, Drive, Frame, Kind, MAX_ANSWER_BYTES, MediumChoice, exchange_folder, read_frame_within,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

use crate::access::identity::Identity;
use crate::access::quotas::Quotas;
use crate::access::redaction::Folders;
use crate::cluster::ClusterResources;
use crate::cluster::placements::QueryPeers;
use crate::now_ms;
use crate::reports::{DROPPED, Durations, EventReporter, Events, SUCCEEDED, encoded, output};
use crate::udfs::{UdfRegistry, UdfSet};
use counts::{QueryGuard, WithObjects};
use driver_request::{drive, driver_threads, workers};

/// How long a query waits for its driver until the user is told.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(2);

/// Runs queries. Cheap to share.
#[derive(Debug)]
pub(crate) struct Queries {
    host: TaskHost,
    peers: QueryPeers,
    udfs: UdfRegistry,
    shutdown: CancellationToken,
    running: Arc<AtomicU32>,
    durations: Durations,
    // Queries whose objects are not removed yet.
    with_objects: watch::Sender<u32>,
    // Folders that clients on other hosts are not shown.
    folders: Folders,
}

impl Queries {
    pub fn new(
        host: TaskHost,
        cluster: ClusterResources,
        udfs: UdfRegistry,
        shutdown: CancellationToken,
    ) -> Self {
        let ClusterResources { hosts, trees, placements } = cluster;
        let with_objects = watch::Sender::default();
        let peers = QueryPeers { hosts, trees, placements, is_alone: false };
        let durations = Durations::default();
        let running = Arc::default();
        let folders = Folders::default();
        Self { host, peers, udfs, shutdown, running, durations, with_objects, folders }
    }

    /// Shows clients on other hosts no paths into these folders.
    pub fn hiding(self, folders: Folders) -> Self {
        Self { folders, ..self }
    }

    /// Returns the number of running queries.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Returns the durations of queries.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Waits until the objects of all queries are removed, or the time is up. The server ends then.
    pub async fn cleaned(&self, limit: Duration) {
        let mut count = self.with_objects.subscribe();
        let _ = tokio::time::timeout(limit, count.wait_for(|count| *count == 0)).await;
    }

    /// Returns the quotas of tenants.
    pub fn quotas(&self) -> &Quotas {
        self.peers.placements.quotas()
    }

    /// Runs a query and sends its frames. It ends early when the client disconnects, when its time
    /// is up, and when the server ends; dropping it destroys its sandboxes. Returns how it ended, as
    /// durations name it.
    pub async fn run(
        &self,
        identity: &Identity,
        rights: FileRights,
        id: QueryId,
        request: QueryRequest,
        frames: mpsc::Sender<Bytes>,
    ) -> &'static str {
        let tenant = &identity.tenant;
        let _running = QueryGuard::new(&self.running);
        let begun = Instant::now();
        let limit = request.options.timeout_ms;
        let time_is_up = async {
            match limit {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(Duration::from_millis(limit)).await,
            }
        };
        let span = tracing::debug_span!(
            target: SPANS,
            "query",
            snowmelt.query.id = id.as_str(),
            snowmelt.tenant = tenant.as_str(),
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        // A refused query must not even remove objects: that would be a request to its store.
        let refused = identity.check_query(&request, &self.host.http_sources()).err();
        let by_objects = refused.is_none() && request.options.exchange.by_objects();
        // Held until this future ends: the server waits for the removal of the objects when it
        // ends.
        let _with_objects = by_objects.then(|| WithObjects::new(&self.with_objects));
        let folder = exchange_folder(now_ms() / 1000, id.as_str());
        // Boxed, because the compiler follows the types of futures only to some depth.
        let answered = AtomicBool::new(false);
        let asked = AcceptedQuery {
            identity,
            rights,
            request: &request,
            id: id.clone(),
            answered: &answered,
            folder: folder.clone(),
        };
        let answer = match refused {
            Some(report) => std::future::ready(Err(report)).boxed(),
            None => self.answer(asked, frames.clone()).boxed(),
        };
        let mut complete = false;
        let failure = tokio::select! {
            ended = answer.instrument(span.clone()) => {
                complete = matches!(ended, Ok(AnswerEnd::Complete));
                ended.err()
            }
            // Dropping `answer` ends the driver, and with its leases all sandboxes of the query.
            () = frames.closed() => None,
            () = self.shutdown.cancelled() => Some(server_ends()),
            () = time_is_up => Some(timed_out(limit)),
        };
        let outcome = match &failure {
            Some(report) => report.known_code().code,
            None if answered.load(Ordering::Relaxed) => SUCCEEDED,
            None => DROPPED,
        };
        self.durations.record(tenant, "", outcome, begun.elapsed());
        if let Some(mut report) = failure {
            trace::failed(&span, &report);
            report.query_id.get_or_insert_with(|| id.as_str().to_owned());
            if identity.is_remote() {
                report = self.folders.hide(report);
            }
            // A client that disconnected needs no reason.
            let _ = send(&frames, Frame::json(Kind::Failure, &report)).await;
        }
        // A driver that ended well has removed its objects. The client need not wait for this.
        drop(frames);
        if by_objects && !complete {
            self.clean(tenant, request, folder).await;
        }
        outcome
    }

    /// Removes the objects of a query whose driver could not. All its sandboxes are ended.
    async fn clean(&self, tenant: &Tenant, request: QueryRequest, folder: String) {
        let Ok(memory) = self.memory(request.options.memory) else { return };
        let limits = WorkerLimits { memory, cpu: CpuMillis(1000) };
        let host = self.host.clone();
        let runner =
            QueryRunner::new(host, folder.clone(), tenant.clone(), Instant::now(), limits, []);
        let locations = request.options.exchange.locations;
        let clean = Clean { locations, folder, aws: request.aws };
        if let Err(report) = snowmelt_tasks::clean(&runner, &clean, memory).await {
            tracing::warn!(error = %report.message, folder = clean.folder, "objects are left");
        }
    }

    async fn answer(
        &self,
        AcceptedQuery { identity, rights, request, id, answered, folder: exchange_folder }: AcceptedQuery<'_>,
        frames: mpsc::Sender<Bytes>,
    ) -> Result<AnswerEnd, ErrorReport> {
        let accepted = Instant::now();
        let tenant = &identity.tenant;
        let events = Events::forward_to(frames.clone());
        events.send(Event::Accepted { query: id.clone() });
        request.options.exchange.check()?;
        let memory = self.memory(request.options.memory)?;
        let threads = driver_threads();
        let defined = self.udfs.define(identity, request, threads, &events).await?;
        let request = defined.as_ref().unwrap_or(request);
        let udfs = self.prepare(tenant, request, &events).await?;
        events.send(Event::Phase { phase: Phase::Plan });
        // A query that must exchange by files runs on one host: it is given no others here.
        let is_alone = matches!(request.options.exchange.medium, MediumChoice::Files);
        let hosts = self.peers.hosts.of_query(is_alone);
        let all_cores = hosts.iter().map(|host| host.cores()).sum();
        let workers = workers(request.options.workers, all_cores)?;
        let limits = WorkerLimits::of_query(memory, workers, all_cores);
        let name = id.as_str().to_owned();
        let drive = Drive {
            exchange_folder,
            hosts: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            ..drive(request, name.clone(), &udfs, workers, accepted)
        };
        let host = self.host.clone();
        let runner = QueryRunner::new(host, name, tenant.clone(), accepted, limits, udfs.bindings);
        let share = Arc::new(self.quotas().query_share(tenant, &id));
        let mut runner = runner.with_rights(rights).within(share);
        if self.peers.are_several() {
            runner = runner.on_hosts(Arc::new(self.peers.of_query(is_alone)));
        }
        let runner = Arc::new(runner);
        let folder = PathBuf::from(&request.working_folder);
        let starting = tracing::debug_span!(target: SPANS, "query.start_driver");
        let beginning = Driver::begin(&runner, drive, accepted, memory, folder);
        let begun = self.announced(beginning, &events).instrument(starting).await;
        let (mut driver, answer) = begun.map_err(|error| error.report())?;
        let reporter = EventReporter::new(events.clone(), Arc::clone(&runner));
        let relayed = {
            let serving = driver.serve(&runner, &reporter);
            // Before the client has the end of its answer: it may read the logs then.
            let keep = |written: &UdfOutputs| {
                self.udfs.keep_logs(tenant, &id, &udfs.registered, written);
                output::show(&events, written);
            };
            let relaying = async {
                let relayed = relay(answer, &runner, &frames, &events, &keep).await;
                // Before the driver has ended: a client that leaves after its last frame has not
                // dropped the query.
                answered.store(matches!(relayed, RelayEnd::Complete), Ordering::Relaxed);
                relayed
            };
            // Both: the driver needs answers to its requests until it has sent the end.
            let ((), relayed) = tokio::join!(serving, relaying);
            relayed
        };
        match relayed {
            RelayEnd::Complete => {
                driver.give_back();
                return Ok(AnswerEnd::Complete);
            }
            RelayEnd::Failed(report) => {
                driver.give_back();
                return Err(runner.explain_driver(*report).await);
            }
            RelayEnd::ClientGone => (),
            RelayEnd::Lost => return Err(driver.lost().await),
        }
        Ok(AnswerEnd::Early)
    }

    /// Waits for the driver, and says so if it has no room for some time.
    async fn announced<T>(&self, beginning: impl Future<Output = T>, events: &Events) -> T {
        let mut beginning = pin!(beginning);
        if let Ok(begun) = tokio::time::timeout(ANNOUNCED_AFTER, &mut beginning).await {
            return begun;
        }
        if self.host.node().ledger().is_wanted() {
            let text = "this host has no room for the query now; it waits".to_owned();
            events.send(Event::Note { text });
        }
        beginning.await
    }

    /// Returns the requested memory, if the sandboxes of this host have that much.
    fn memory(&self, asked: ByteSize) -> Result<ByteSize, ErrorReport> {
        let all = self.host.node().ledger().capacity().memory;
        if asked > all {
            let message =
                format!("a worker of {asked} does not fit: all sandboxes of this host have {all}");
            return Err(ErrorReport::new(Code::OPTION, message).hint(
                "give each worker less (--memory), or the sandboxes more: sandboxes.memory \
                 (SNOWMELT_SANDBOXES_MEMORY)",
            ));
        }
        Ok(asked)
    }

    async fn prepare(
        &self,
        tenant: &Tenant,
        request: &QueryRequest,
        events: &Events,
    ) -> Result<UdfSet, ErrorReport> {
        if !request.udfs.is_empty() {
            events.send(Event::Phase { phase: Phase::Packages });
        }
        let span = tracing::debug_span!(target: SPANS, "query.packages");
        self.udfs.of_query(tenant, request, events).instrument(span).await
    }
}

/// A query that was accepted.
struct AcceptedQuery<'q> {
    identity: &'q Identity,
    /// The rights of the client to files of this machine.
    rights: FileRights,
    request: &'q QueryRequest,
    id: QueryId,
    /// Set once the client has been sent the end of the answer: it may be gone before the driver
    /// is.
    answered: &'q AtomicBool,
    /// The name of the query's folder in the locations of its exchange.
    folder: String,
}

/// The end of a query without a failure.
enum AnswerEnd {
    /// The client has the whole answer.
    Complete,
    /// The client is gone.
    Early,
}

/// The output of UDFs, by their names.
type UdfOutputs = BTreeMap<String, String>;

/// The end of the forwarding of an answer.
enum RelayEnd {
    /// With its last frame.
    Complete,
    /// With a failure, which is still to be sent to the client.
    Failed(Box<ErrorReport>),
    /// The client disconnected.
    ClientGone,
    /// Without an end: the driver was lost.
    Lost,
}

/// Forwards the driver's answer as it arrives, without decoding it.
async fn relay(
    mut answer: Frames,
    runner: &QueryRunner,
    frames: &mpsc::Sender<Bytes>,
    events: &Events,
    keep: &(dyn Fn(&UdfOutputs) + Sync),
) -> RelayEnd {
    loop {
        let mut frame = match read_frame_within(&mut answer, MAX_ANSWER_BYTES).await {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(_) => return RelayEnd::Lost,
        };
        let kind = frame.kind;
        if matches!(kind, Kind::Profile | Kind::Failure) {
            let written = runner.written();
            keep(&written);
            events.sent().await;
            frame = output::in_profile(frame, &written);
        }
        if kind == Kind::Failure {
            return frame
                .parse()
                .map_or(RelayEnd::Lost, |report| RelayEnd::Failed(Box::new(report)));
        }
        if !send(frames, Ok(frame)).await {
            return RelayEnd::ClientGone;
        }
        if kind == Kind::End {
            return RelayEnd::Complete;
        }
    }
}

/// Sends a frame; false when the client is gone.
async fn send(frames: &mpsc::Sender<Bytes>, frame: snowmelt_wire::Result<Frame>) -> bool {
    match frame.and_then(|frame| encoded(&frame)) {
        Ok(bytes) => frames.send(bytes).await.is_ok(),
        Err(error) => {
            tracing::error!(%error, "cannot encode a frame of an answer");
            false
        }
    }
}

fn server_ends() -> ErrorReport {
    ErrorReport::new(Code::CANCELLED, "the query was cancelled because the server ends")
        .hint("run it again when the server is back")
}

fn timed_out(limit_ms: u64) -> ErrorReport {
    let message = format!("the query did not end within {:.1} s", limit_ms as f64 / 1000.0);
    ErrorReport::new(Code::QUERY_TIMEOUT, message).hint("give it more time with --timeout 10m")
}
