//! Queries: from a request to the frames of its answer.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use snowmelt_api::{Event, Phase, QueryRequest};
use snowmelt_node::{Driver, Frames, Node, QueryRunner, WorkerLimits};
use snowmelt_rpc::trace::{self, SPANS};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, QueryId, Report, Tenant, micros};
use snowmelt_wire::{Drive, Frame, Kind, MAX_ANSWER_BYTES, read_frame_within};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

use crate::analysis_cache::AnalysisCache;
use crate::progress::{EventReporter, Events, encoded};
use crate::udfs::{UdfCatalog, UdfSet};

/// The most workers of one query.
const MOST_WORKERS: u32 = 1024;

/// The most threads of a driver: it reads footers and merges, which workers did most of already.
const DRIVER_THREADS: u32 = 4;

/// How long a query waits for its driver until the user is told.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(2);

/// How often a task is run again after its worker was lost.
const RETRIES: u32 = 2;

/// Runs queries. Cheap to share.
#[derive(Debug)]
pub(crate) struct Queries {
    node: Node,
    udfs: UdfCatalog,
    shutdown: CancellationToken,
    running: Arc<AtomicU32>,
}

/// Counts a query for as long as it lives, however it ends.
struct Running(Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            // The last one has ended: an idle server should be small.
            tokio::task::spawn_blocking(snowmelt_kernel::memory::release_free);
        }
    }
}

impl Queries {
    pub fn new(node: Node, analysis: AnalysisCache, shutdown: CancellationToken) -> Self {
        let udfs = UdfCatalog::new(node.clone(), analysis);
        Self { node, udfs, shutdown, running: Arc::default() }
    }

    /// Running queries.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Runs a query and sends its frames. It ends early when the client disconnects, when its time
    /// is up, and when the server ends; dropping it destroys its sandboxes.
    pub async fn run(&self, tenant: &Tenant, request: QueryRequest, frames: mpsc::Sender<Bytes>) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(Arc::clone(&self.running));
        let id = QueryId::new();
        let limit = request.options.timeout_ms;
        let time_is_up = async {
            if limit == 0 {
                std::future::pending().await
            } else {
                tokio::time::sleep(Duration::from_millis(limit)).await
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
        // Boxed, because the compiler follows the types of futures only to some depth.
        let answer = self.answer(tenant, &request, id.clone(), frames.clone()).boxed();
        let failure = tokio::select! {
            answered = answer.instrument(span.clone()) => answered.err(),
            () = frames.closed() => None,
            () = self.shutdown.cancelled() => Some(server_ends()),
            () = time_is_up => Some(timed_out(limit)),
        };
        if let Some(mut report) = failure {
            trace::failed(&span, &report);
            report.query_id.get_or_insert_with(|| id.as_str().to_owned());
            // A client that disconnected needs no reason.
            let _ = send(&frames, Frame::json(Kind::Failure, &report)).await;
        }
    }

    async fn answer(
        &self,
        tenant: &Tenant,
        request: &QueryRequest,
        id: QueryId,
        frames: mpsc::Sender<Bytes>,
    ) -> Result<(), ErrorReport> {
        let accepted = Instant::now();
        let events = Events::forward_to(frames.clone());
        events.send(Event::Accepted { query: id.clone() });
        let memory = self.memory(request.options.memory)?;
        let udfs = self.prepare(tenant, request, &events).await?;
        events.send(Event::Phase { phase: Phase::Plan });
        let workers = workers(request.options.workers)?;
        let limits = WorkerLimits { memory, cpu: CpuMillis(1000) };
        let name = id.as_str().to_owned();
        let drive = drive(request, name.clone(), &udfs, workers, accepted);
        let (node, tenant) = (self.node.clone(), tenant.clone());
        let runner = QueryRunner::new(node, name, tenant, accepted, limits, udfs.bindings);
        let runner = Arc::new(runner);
        let folder = PathBuf::from(&request.working_folder);
        let starting = tracing::debug_span!(target: SPANS, "query.start_driver");
        let beginning = Driver::begin(&runner, drive, accepted, memory, folder);
        let begun = self.announced(beginning, &events).instrument(starting).await;
        let (mut driver, answer) = begun.map_err(|error| error.report())?;
        let reporter = EventReporter::new(events.clone(), Arc::clone(&runner));
        let relayed = {
            let serving = driver.serve(&runner, &reporter);
            let relaying = relay(answer, &runner, &frames, &events);
            let ((), relayed) = tokio::join!(serving, relaying);
            relayed
        };
        match relayed {
            Relayed::Complete => driver.give_back(),
            Relayed::Failed(report) => {
                driver.give_back();
                return Err(runner.explain_driver(*report).await);
            }
            Relayed::ClientGone => (),
            Relayed::Lost => return Err(driver.lost().await),
        }
        Ok(())
    }

    /// Waits for the driver, and says so if it has no room for some time.
    async fn announced<T>(&self, beginning: impl Future<Output = T>, events: &Events) -> T {
        let mut beginning = pin!(beginning);
        if let Ok(begun) = tokio::time::timeout(ANNOUNCED_AFTER, &mut beginning).await {
            return begun;
        }
        if self.node.ledger().is_wanted() {
            let text = "this host has no room for the query now; it waits".to_owned();
            events.send(Event::Note { text });
        }
        beginning.await
    }

    /// The requested memory, if the sandboxes of this host have that much.
    fn memory(&self, asked: ByteSize) -> Result<ByteSize, ErrorReport> {
        let all = self.node.ledger().capacity().memory;
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
        self.udfs.prepare(tenant, &request.udfs, events).instrument(span).await
    }
}

/// The requested number of workers, or one for each core.
fn workers(asked: u32) -> Result<u32, ErrorReport> {
    if asked > MOST_WORKERS {
        let message = format!("{asked} workers are more than one query may have");
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint(format!("use at most {MOST_WORKERS} (--workers)")));
    }
    Ok(if asked == 0 { cores() } else { asked })
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

fn drive(
    request: &QueryRequest,
    query: String,
    udfs: &UdfSet,
    workers: u32,
    accepted: Instant,
) -> Drive {
    Drive {
        query,
        sql: request.sql.clone(),
        tables: request.tables.clone(),
        udfs: udfs.signatures.clone(),
        aws: request.aws.clone(),
        workers,
        threads: DRIVER_THREADS.min(cores()),
        memory_bytes: 0,
        retries: RETRIES,
        elapsed_us: 0,
        worker_memory: 0,
        driver_memory: 0,
        prices: request.options.prices.clone(),
        packages_us: if udfs.signatures.is_empty() { 0 } else { micros(accepted.elapsed()) },
    }
}

/// How the forwarding of an answer ended.
enum Relayed {
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
) -> Relayed {
    loop {
        let frame = match read_frame_within(&mut answer, MAX_ANSWER_BYTES).await {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(_) => return Relayed::Lost,
        };
        let kind = frame.kind;
        if matches!(kind, Kind::Profile | Kind::Failure) {
            report_output(runner, events);
        }
        if kind == Kind::Failure {
            return frame.parse().map_or(Relayed::Lost, |report| Relayed::Failed(Box::new(report)));
        }
        if !send(frames, Ok(frame)).await {
            return Relayed::ClientGone;
        }
        if kind == Kind::End {
            return Relayed::Complete;
        }
    }
}

/// Shows what UDFs wrote: users debug their functions with `print`.
fn report_output(runner: &QueryRunner, events: &Events) {
    for (name, text) in runner.written() {
        for line in text.lines().take(20) {
            events.send(Event::Note { text: format!("{name}: {line}") });
        }
    }
}

/// False when the client is gone.
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
