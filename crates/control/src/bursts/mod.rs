//! Bursts: many functions on all hosts concurrently, which start together or not at all.
//!
//! A burst waits until there is room for all of it (`placement`). Then there are three steps, each
//! on all hosts at the same time: open (the network is made, instances start), ready (all hosts
//! answer each other, the code is loaded) and call. Whatever fails before the call closes every
//! part; nothing was run then. From the call on, a burst survives the loss of any connection, and a
//! restart of control (`resumption`). A burst that its client does not wait for survives a restart
//! from the moment that the client has its identifier.

mod calls;
mod failures;
mod job;
mod jobs;
mod networks;
mod parts;
mod placement;
mod program;
mod resumption;
mod run;
mod storage;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{BurstCalls, BurstRequest};
use snowmelt_node::Node;
use snowmelt_rpc::trace::{Context, SPANS};
use snowmelt_types::{Code, ErrorReport, JobId, Tenant};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::access::secrets::SecretSources;
use crate::cluster::ClusterResources;
use crate::cluster::hosts::{ClusterHost, Hosts};
use crate::cluster::placements::Placements;
use crate::cluster::trees::Trees;
use crate::functions::preparation;
use crate::now_ms;
use crate::reports::Durations;
use crate::state::analysis_cache::AnalysisCache;
use crate::state::records::FunctionRecord;
use job::Identity;
use jobs::Jobs;
use networks::jobs::JobNetworks;
use networks::plan::Overlays;
use storage::Accepted;

pub(crate) use job::{BurstClaim, BurstJob};
pub(crate) use jobs::missing;
pub(crate) use storage::BurstStorage;

/// The most functions of one burst.
const MAX_RANKS: usize = 20_000;

/// The longest time for which a burst goes on without a client.
const MAX_UNCLAIMED: Duration = Duration::from_secs(24 * 3600);

/// The interval at which outcomes that are too old are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);

/// Places bursts, starts them and waits for their answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    node: Node,
    analysis: AnalysisCache,
    hosts: Hosts,
    placements: Placements,
    overlays: Overlays,
    /// The trees of the images that bursts run in.
    pub trees: Trees,
    /// The networks of running jobs.
    pub networks: JobNetworks,
    pub jobs: Jobs,
    /// Durations of the bursts' calls.
    durations: Arc<Durations>,
    secrets: SecretSources,
    // None for a platform that ends with its client.
    kept: Option<BurstStorage>,
    // Cancelled when the server ends.
    over: CancellationToken,
}

/// The part of a burst on one host: contiguous ranks.
#[derive(Clone, Debug)]
pub(crate) struct RankRange {
    pub host: Arc<ClusterHost>,
    pub first: u32,
    pub count: u32,
}

impl Bursts {
    pub fn new(
        node: Node,
        analysis: AnalysisCache,
        cluster: ClusterResources,
        secrets: SecretSources,
        kept: Option<BurstStorage>,
        over: CancellationToken,
    ) -> Self {
        let ClusterResources { hosts, trees, placements } = cluster;
        let overlays = Overlays::new();
        let networks = JobNetworks::default();
        let jobs = Jobs::default();
        let durations = Arc::default();
        let bursts = Self {
            node,
            analysis,
            hosts,
            placements,
            overlays,
            trees,
            networks,
            jobs,
            durations,
            secrets,
            kept,
            over,
        };
        tokio::spawn(bursts.trees.clone().repair(bursts.hosts.clone(), bursts.over.clone()));
        let expiring = bursts.clone();
        tokio::spawn(async move {
            while !expiring.over.is_cancelled() {
                tokio::time::sleep(EXPIRY_INTERVAL).await;
                for job in expiring.jobs.expire() {
                    expiring.forget(&job).await;
                }
            }
        });
        bursts
    }

    /// Returns the durations of the bursts' calls.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Begins to run a function of a tenant once for each event, concurrently. The failure of one
    /// call is in its invocation; a failure of the whole burst is its outcome.
    pub async fn start(
        &self,
        tenant: Tenant,
        request: BurstRequest,
    ) -> Result<Arc<BurstJob>, ErrorReport> {
        let BurstRequest {
            function,
            events,
            start_within_ms,
            network,
            most_hosts,
            job,
            asynchronous,
            claim_within_ms,
        } = request;
        let node = self.node.clone();
        let accept = move || preparation::accept(&node, tenant, function, now_ms());
        let accepted = tokio::task::spawn_blocking(accept).await;
        let mut record =
            accepted.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))??;
        preparation::pin(&self.node, &mut record).await?;
        let calls = BurstCalls {
            events,
            start_within_ms,
            network,
            most_hosts,
            job,
            asynchronous,
            claim_within_ms,
        };
        self.start_accepted(record, calls).await
    }

    /// Begins to run a function that was accepted before, as `start` does. On return, a burst whose
    /// client does not wait for it survives a crash.
    pub async fn start_accepted(
        &self,
        record: FunctionRecord,
        calls: BurstCalls,
    ) -> Result<Arc<BurstJob>, ErrorReport> {
        check(&calls)?;
        let id = calls.job.clone().unwrap_or_else(JobId::new);
        let request =
            Accepted { since_ms: now_ms(), record, calls: BurstCalls { job: Some(id), ..calls } };
        let kept = self.kept.clone().filter(|_| request.calls.asynchronous);
        let is_to_be_kept = kept.is_some();
        let (job, is_new) = self.jobs.add(Identity { is_to_be_kept, ..identity(&request) })?;
        if is_new {
            let bursts = self.clone();
            let running = Arc::clone(&job);
            // A task of its own, for the client may go away. Its requests to hosts carry the
            // identifier of the client's request.
            tokio::spawn(Context::current_or_new().scope(async move {
                if let Some(kept) = kept {
                    let accepted = kept.accept(&running.id, &request).await;
                    running.is_kept(accepted.clone());
                    if let Err(error) = accepted {
                        bursts.jobs.forget(&running.id);
                        return running.finish(Err(error));
                    }
                }
                bursts.run_accepted(&running, request).await;
            }));
        }
        // Also a client that repeats its request is told of a burst only when it is kept.
        job.accepted().await?;
        Ok(job)
    }

    async fn run_accepted(&self, job: &Arc<BurstJob>, request: Accepted) {
        let span = span_of(job, &request.record);
        self.run(job, request.record, request.calls).instrument(span).await;
    }

    /// Ends a burst, or forgets its outcome.
    pub async fn remove(&self, tenant: &Tenant, id: &JobId) -> Result<(), ErrorReport> {
        let job = self.jobs.find(tenant, id)?;
        job.cancel();
        // It has ended by now, or ends with all its parts.
        let _ = job.outcome().await;
        self.jobs.forget(id);
        self.forget(id).await;
        Ok(())
    }

    async fn forget(&self, id: &JobId) {
        if let Some(kept) = &self.kept
            && let Err(error) = kept.forget(id).await
        {
            tracing::warn!(job = %id, %error, "the record of a burst cannot be removed");
        }
    }
}

impl RankRange {
    async fn within<T>(
        &self,
        deadline: tokio::time::Instant,
        within: Duration,
        step: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        let done = tokio::time::timeout_at(deadline, self.unless_lost(step)).await;
        done.unwrap_or_else(|_| {
            Err(not_begun(format!("the part of {self} was not ready within {within:?}")))
        })
    }

    /// Runs a request to the host before the burst begins.
    async fn unless_lost<T>(
        &self,
        step: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, ErrorReport> {
        tokio::select! {
            done = step => done.map_err(|error| self.named(error)),
            () = self.host.lost() => Err(not_begun(format!("{self} was lost before the burst began"))),
        }
    }

    /// An error of the platform names the host; one of the function is the same on all hosts.
    fn named(&self, error: ErrorReport) -> ErrorReport {
        let platform = matches!(error.known_code().exit, snowmelt_types::ExitClass::Platform);
        if !platform {
            return error;
        }
        let message = format!("{}: {}", self.host.name, error.message);
        ErrorReport { message, ..error }
    }
}

fn identity(request: &Accepted) -> Identity {
    let Accepted { since_ms, record, calls } = request;
    let id = calls.job.clone().unwrap_or_else(JobId::new);
    let claim_within = Duration::from_millis(calls.claim_within_ms).min(MAX_UNCLAIMED);
    let tenant = record.tenant.clone();
    let function = record.spec.name.clone();
    let identity = Identity::new(id, tenant, function, calls.events.len());
    Identity { claim_within, since_ms: *since_ms, ..identity }
}

/// Returns the span of a burst. It may end after the span of the request that started the burst.
fn span_of(job: &BurstJob, record: &FunctionRecord) -> Span {
    tracing::debug_span!(
        target: SPANS,
        "burst",
        snowmelt.job.id = job.id.as_str(),
        snowmelt.tenant = record.tenant.as_str(),
        faas.name = record.spec.name.as_str(),
        "error.type" = Empty,
        otel.status_code = Empty,
    )
}

fn not_begun(message: String) -> ErrorReport {
    ErrorReport::new(Code::BURST_START, message)
        .hint("nothing was run; `snowmelt hosts` shows which hosts answer")
}

impl std::fmt::Display for RankRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, first, count } = self;
        match count {
            1 => write!(f, "{} (rank {first})", host.name),
            _ => write!(f, "{} (ranks {first} to {})", host.name, first + count - 1),
        }
    }
}

fn check(request: &BurstCalls) -> Result<(), ErrorReport> {
    match request.events.len() {
        0 => Err(ErrorReport::new(Code::OPTION, "a burst has at least one function")),
        many if many > MAX_RANKS => {
            let message = format!("a burst has at most {MAX_RANKS} functions, not {many}");
            Err(ErrorReport::new(Code::OPTION, message).hint("make several bursts of it"))
        }
        _ => match &request.job {
            Some(id) if !is_identifier(id) => {
                let message = format!("`{id}` is not the identifier of a burst");
                Err(ErrorReport::new(Code::OPTION, message)
                    .hint("write `j-` and 32 hexadecimal digits, or leave it out"))
            }
            _ => Ok(()),
        },
    }
}

/// Returns whether an identifier has the form of a burst's. Records, files and control groups are
/// named by it.
fn is_identifier(id: &JobId) -> bool {
    let digits = id.as_str().strip_prefix("j-").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'))
}
