//! Bursts: many functions on all hosts concurrently, which start together or not at all.
//!
//! Three steps, each on all hosts at the same time: open (the network is made, instances start),
//! ready (all hosts answer each other, the code is loaded) and call. Whatever fails before the call
//! closes every part; nothing was run then.

mod failing;
mod gather;
mod jobs;
mod network;
mod placement;
mod program;
mod reach;
#[cfg(test)]
mod tests;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_api::{BurstAnswer, BurstCalls, BurstPart, BurstRequest, CallMode, FunctionSpec};
use snowmelt_network::JobSpec;
use snowmelt_node::agent::api::{JobPart, PartOpen, PartReady};
use snowmelt_node::{InstanceLimits, Node};
use snowmelt_types::{Code, ErrorReport, JobId, Tenant, micros};
use snowmelt_wire::Mode;

use crate::analysis_cache::AnalysisCache;
use crate::declared::{Declared, declared};
use crate::hosts::{Host, Hosts};
use crate::live;
use crate::now_ms;
use crate::records::FunctionRecord;
use gather::gather;
use jobs::Jobs;
use network::{Overlay, Overlays, plan};
use placement::{Room, place};
use program::{program, upload};

/// The most functions of one burst.
const MOST_RANKS: usize = 20_000;

/// The most time that is kept for a host to say why it is not ready.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How long hosts have to answer each other, once the network is made on all of them: their kernels
/// answer, also on busy hosts.
const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// Places bursts, starts them and waits for their answers.
#[derive(Debug)]
pub(crate) struct Bursts {
    node: Node,
    analysis: AnalysisCache,
    hosts: Hosts,
    overlays: Overlays,
    /// Those with a network.
    pub jobs: Jobs,
}

/// One host's part.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub host: Arc<Host>,
    pub first: u32,
    pub count: u32,
}

impl Bursts {
    pub fn new(node: Node, analysis: AnalysisCache, hosts: Hosts) -> Self {
        Self { node, analysis, hosts, overlays: Overlays::new(), jobs: Jobs::default() }
    }

    /// Runs a function of a tenant once for each event, concurrently. The failure of one call is in
    /// its invocation; a failure of the whole burst is an error.
    pub async fn run(
        &self,
        tenant: Tenant,
        request: BurstRequest,
    ) -> Result<BurstAnswer, ErrorReport> {
        let BurstRequest { function, events, start_within_ms, network, most_hosts } = request;
        let node = self.node.clone();
        let accept = move || live::accept(&node, tenant, function, now_ms());
        let accepted = tokio::task::spawn_blocking(accept).await;
        let mut record =
            accepted.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))??;
        live::pin(&self.node, &mut record).await?;
        let calls = BurstCalls { events, start_within_ms, network, most_hosts };
        self.run_accepted(record, calls).await
    }

    /// The same for a function that was accepted before.
    pub async fn run_accepted(
        &self,
        record: FunctionRecord,
        request: BurstCalls,
    ) -> Result<BurstAnswer, ErrorReport> {
        let begun = Instant::now();
        check(&request)?;
        let job = JobId::new();
        let function = &record.spec;
        let parts = self.place(function, &request)?;
        // Held until the job has ended.
        let overlay = request.network.as_ref().map(|_| self.overlays.take()).transpose()?;
        let orders = self.orders(&record, &request, &job, &parts, overlay.as_ref()).await?;
        let specs: Vec<JobSpec> = orders.iter().filter_map(|order| order.network.clone()).collect();
        let whose = (&record.tenant, &function.name);
        let _listed = overlay.as_ref().map(|_| self.jobs.list(&job, whose, &parts, specs));
        let opened = Opened { job: &job, parts: &parts };
        let within = Duration::from_millis(request.start_within_ms);
        let (open, ready) = match opened.start(orders, within).await {
            Ok(started) => started,
            Err(error) => {
                opened.close().await;
                return Err(error);
            }
        };
        let started_us = micros(begun.elapsed());
        let ended = gather(&job, &parts, (function, &request)).await?;
        let hosts = parts.iter().zip(open).zip(ready);
        let hosts = hosts.map(|((part, open), ready)| BurstPart {
            host: part.host.name.clone(),
            first: part.first,
            count: part.count,
            network_us: open.network_us,
            network: open.network,
            started_us: open.started_us,
            reached_us: ready.reached_us,
            loaded_us: ready.loaded_us,
        });
        Ok(BurstAnswer {
            hosts: hosts.collect(),
            invocations: ended.invocations,
            logs: ended.logs,
            started_us,
            wall_us: micros(begun.elapsed()),
            job,
        })
    }

    fn place(
        &self,
        function: &FunctionSpec,
        request: &BurstCalls,
    ) -> Result<Vec<Part>, ErrorReport> {
        let mut hosts = self.hosts.all();
        hosts.truncate(request.most_hosts.unwrap_or(u32::MAX).max(1) as usize);
        let rooms: Vec<Room> =
            hosts.iter().map(|host| Room { memory: host.memory(), cores: host.cores() }).collect();
        let ranks = u32::try_from(request.events.len()).unwrap_or(u32::MAX);
        let shares = place(ranks, function.options.memory, &rooms)?;
        let mut first = 0;
        let mut parts = Vec::new();
        for (host, count) in hosts.into_iter().zip(shares).filter(|(_, count)| *count > 0) {
            parts.push(Part { host, first, count });
            first += count;
        }
        Ok(parts)
    }

    async fn orders(
        &self,
        record: &FunctionRecord,
        request: &BurstCalls,
        job: &JobId,
        parts: &[Part],
        overlay: Option<&Overlay>,
    ) -> Result<Vec<JobPart>, ErrorReport> {
        let spec = &record.spec;
        let plan = match (&request.network, overlay) {
            (Some(network), Some(overlay)) => {
                Some(plan(job, &record.tenant, network, overlay, parts)?)
            }
            _ => None,
        };
        let program = program(record, parts)?;
        let Declared { packages, imports, .. } = match &program {
            None if record.packed.is_some() => Declared::default(),
            Some(program) => {
                upload(&self.node, &program.files, parts).await?;
                Declared::default()
            }
            None => declared(&self.node, &self.analysis, &spec.code, &spec.packages).await?,
        };
        let limits = InstanceLimits::from(&spec.options);
        let (specs, hosts) = plan.map(|plan| (plan.specs, plan.ranks)).unzip();
        let specs = specs.unwrap_or_default().into_iter().map(Some);
        let order = |(part, network): (&Part, Option<JobSpec>)| JobPart {
            network,
            hosts: hosts.clone().unwrap_or_default(),
            job: job.clone(),
            tenant: record.tenant.clone(),
            code: spec.code.clone(),
            program: program.clone(),
            packed: record.packed.clone(),
            handler: spec.handler.clone(),
            mode: if spec.mode == CallMode::Map { Mode::Map } else { Mode::Function },
            packages: packages.clone(),
            imports: imports.clone(),
            limits: limits.clone(),
            size: u32::try_from(request.events.len()).unwrap_or(u32::MAX),
            first: part.first,
            count: part.count,
            start_within_ms: request.start_within_ms,
        };
        let specs = specs.chain(std::iter::repeat(None));
        Ok(parts.iter().zip(specs).map(order).collect())
    }
}

/// The parts of a job that may have been opened.
struct Opened<'a> {
    job: &'a JobId,
    parts: &'a [Part],
}

impl Opened<'_> {
    /// Opens all concurrently; the first failure is that of the job.
    async fn start(
        &self,
        orders: Vec<JobPart>,
        within: Duration,
    ) -> Result<(Vec<PartOpen>, Vec<PartReady>), ErrorReport> {
        let deadline = tokio::time::Instant::now() + within;
        let opening = self
            .parts
            .iter()
            .zip(orders)
            .map(|(part, order)| part.within(deadline, within, part.host.agent.open(order)));
        let open = futures::future::try_join_all(opening).await?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        // A host knows which others did not answer, and reports them before the time is up.
        let reached = (left - (left / 10).min(ANSWERS_WITHIN)).min(REACHED_WITHIN);
        let loading = self
            .parts
            .iter()
            .map(|part| part.within(deadline, within, part.host.agent.ready(self.job, reached)));
        let ready = futures::future::try_join_all(loading).await?;
        let unreached: Vec<_> = ready.iter().map(|ready| ready.unreached.clone()).collect();
        reach::check(self.parts, &unreached)?;
        Ok((open, ready))
    }

    /// Closes all. A host that does not answer closes its part by itself, when it is not called.
    async fn close(&self) {
        let closing = self.parts.iter().map(|part| part.host.agent.close(self.job));
        for closed in futures::future::join_all(closing).await {
            if let Err(error) = closed {
                tracing::debug!(%error, "a part could not be closed");
            }
        }
    }
}

impl Part {
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

fn not_begun(message: String) -> ErrorReport {
    ErrorReport::new(Code::BURST_START, message)
        .hint("nothing was run; `snowmelt hosts` shows which hosts answer")
}

impl std::fmt::Display for Part {
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
        many if many > MOST_RANKS => {
            let message = format!("a burst has at most {MOST_RANKS} functions, not {many}");
            Err(ErrorReport::new(Code::OPTION, message).hint("make several bursts of it"))
        }
        _ => Ok(()),
    }
}
