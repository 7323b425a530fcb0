//! The life of a burst, from its placement to its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use snowmelt_api::{BurstAnswer, BurstCalls, BurstPart, FileRefs, FunctionSpec};
use snowmelt_network::JobSpec;
use snowmelt_node::TreePlace;
use snowmelt_rpc::trace::{self, SPANS};
use snowmelt_tasks::agent::api::{JobPart, PartCalls, PartOpen, PartReady};
use snowmelt_types::{Code, ErrorReport, JobId, micros};
use snowmelt_wire::SourceCode;
use tracing::{Instrument, Span};

use super::calls::{Gathering, PART_LEASE, Patience, RankResults};
use super::job::{AnswerContent, BurstJob};
use super::networks::plan::{Overlay, plan};
use super::parts::OpenParts;
use super::program::{check, upload};
use super::{BurstStorage, Bursts, RankRange};
use crate::access::quotas::{HeldRoom, RoomAmount, RoomHolder};
use crate::cluster::files;
use crate::cluster::hosts::ClusterHost;
use crate::cluster::placements::PlacedGang;
use crate::cluster::trees;
use crate::functions::preparation;
use crate::reports::{SUCCEEDED, label};
use crate::state::records::{FunctionRecord, JobRecord, PartRecord};

/// A burst whose parts are all ready, or called already by an earlier control.
pub(super) struct ReadyBurst {
    pub record: JobRecord,
    /// The calls of each part; `None` if an earlier control has made them.
    pub calls: Option<Vec<PartCalls>>,
    // Held until the job has ended.
    pub _overlay: Option<Overlay>,
    pub _room: Option<PlacedGang>,
    /// The share of its ranks in the quotas of their tenant.
    pub _share: HeldRoom,
}

impl Bursts {
    /// Runs a burst to its end. It ends early when it is cancelled, when no client claims it, and
    /// with the server, unless the next control goes on with it: all its parts are on other hosts,
    /// or it was accepted and not called.
    pub(super) async fn run(&self, job: &Arc<BurstJob>, record: FunctionRecord, calls: BurstCalls) {
        let begun = Instant::now();
        let accepted = self.kept.as_ref().filter(|_| calls.asynchronous);
        let started = async {
            let Some(started) =
                self.until_given_up(job, self.ready(job, &record, calls, begun)).await
            else {
                return accepted.is_none().then(|| Err(ended_with_server()));
            };
            Some(match (&self.kept, started) {
                // Stored before the first call: the next control must know what runs, or it would
                // run it again.
                (Some(kept), Ok(ready)) => kept.begin(&ready.record).await.map(|()| ready),
                (_, started) => started,
            })
        };
        match started.await {
            Some(Ok(ready)) => {
                // The request goes after the record is there; a crash in between leaves both, and
                // the record counts.
                self.has_record(job, accepted).await;
                self.run_ready(job, ready, begun).await;
            }
            Some(Err(error)) => {
                trace::failed(&Span::current(), &error);
                // Before the failure is told: its hosts are free when the client tries again.
                self.close(job).await;
                if let Some(kept) = accepted {
                    // Its client may ask the next control for it.
                    match kept.failed(&not_called(job, &record), &error).await {
                        Ok(()) => self.has_record(job, accepted).await,
                        Err(error) => {
                            tracing::warn!(job = %job.id, %error, "a failure cannot be kept");
                        }
                    }
                }
                job.finish(Err(error));
            }
            // The next control starts it.
            None => self.close(job).await,
        }
    }

    /// Removes the request of a burst, which is not needed once there is a record.
    async fn has_record(&self, job: &BurstJob, accepted: Option<&BurstStorage>) {
        if let Some(kept) = accepted
            && let Err(error) = kept.remove_request(&job.id).await
        {
            tracing::warn!(job = %job.id, %error, "the request of a burst cannot be removed");
        }
    }

    /// Runs a burst whose parts are ready, or whose functions are called already.
    pub(super) async fn run_ready(&self, job: &Arc<BurstJob>, ready: ReadyBurst, begun: Instant) {
        let ReadyBurst { record, calls, _overlay, _room, _share } = ready;
        let tenant = &record.tenant;
        let function = &record.function.name;
        let has_network = !record.networks.is_empty();
        let networks = record.networks.clone();
        let _listed = has_network
            .then(|| self.networks.list(&job.id, tenant, function, job.parts(), networks));
        job.begin();
        let gathering = Gathering {
            job: &job.id,
            parts: job.parts(),
            function: &record.function,
            calls,
            has_network,
            ended: &job.ended,
            patience: Patience::default(),
        };
        let ended = match self.until_given_up(job, gathering.gather()).await {
            Some(ended) => ended,
            // Its parts go on, and wait for the next control to ask for their ends.
            None if self.survives(job) => return,
            None => Err(ended_with_server()),
        };
        if let Err(error) = &ended {
            trace::failed(&Span::current(), error);
            self.close(job).await;
        }
        self.count(&record, &ended, begun);
        let answer = ended.and_then(|ended| {
            let answer = BurstAnswer {
                job: job.id.clone(),
                hosts: record.parts.iter().map(part_of_answer).collect(),
                invocations: ended.invocations,
                logs: ended.logs,
                started_us: record.started_us,
                wall_us: micros(begun.elapsed()),
            };
            let text = serde_json::to_vec(&answer);
            text.map(Bytes::from)
                .map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))
        });
        self.finish(job, &record, answer).await;
    }

    /// Counts the calls of a burst by their outcomes; all as failed where the burst failed as a
    /// whole.
    fn count(&self, record: &JobRecord, ended: &Result<RankResults, ErrorReport>, begun: Instant) {
        let tenant = &record.tenant;
        let function = label(&record.function);
        let count = |outcome, took| self.durations.record(tenant, function, outcome, took);
        match ended {
            Ok(ended) => ended.invocations.iter().for_each(|one| {
                let failed = one.error.as_ref().map(|error| error.known_code().code);
                let took = one.wall_us.map_or_else(|| begun.elapsed(), Duration::from_micros);
                count(failed.unwrap_or(SUCCEEDED), took);
            }),
            Err(error) => {
                let calls: u32 = record.parts.iter().map(|part| part.count).sum();
                let code = error.known_code().code;
                (0..calls).for_each(|_| count(code, begun.elapsed()));
            }
        }
    }

    /// Keeps the outcome of a burst, and tells the clients that wait for it.
    pub(super) async fn finish(
        &self,
        job: &BurstJob,
        record: &JobRecord,
        answer: Result<Bytes, ErrorReport>,
    ) {
        job.finish(match &self.kept {
            Some(kept) => kept.end(record, answer).await,
            None => answer.map(AnswerContent::Memory),
        });
    }

    /// Runs a step until the burst is given up; `None` if the server ends before.
    async fn until_given_up<T>(
        &self,
        job: &BurstJob,
        step: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Option<Result<T, ErrorReport>> {
        tokio::select! {
            done = step => Some(done),
            error = job.is_given_up() => Some(Err(error)),
            () = self.over.cancelled() => None,
        }
    }

    /// Returns whether a control that is started again can go on with a burst.
    fn survives(&self, job: &BurstJob) -> bool {
        self.kept.is_some() && job.parts().iter().all(|part| !part.host.is_local())
    }

    /// Ends what runs of a burst on its hosts. A host that does not answer closes its part by
    /// itself, when it is not called, or when nobody asks for its ends.
    pub(super) async fn close(&self, job: &BurstJob) {
        OpenParts { job: &job.id, parts: job.parts() }.close().await;
    }

    /// Places a burst, opens its parts and waits until all are ready.
    async fn ready(
        &self,
        job: &BurstJob,
        record: &FunctionRecord,
        request: BurstCalls,
        begun: Instant,
    ) -> Result<ReadyBurst, ErrorReport> {
        let placing = tracing::debug_span!(target: SPANS, "burst.place");
        let share = self.placements.quotas();
        let ranks = request.events.len() as u64;
        let share = share.room(&record.tenant, share_of(job, &record.spec, ranks))?;
        // All hosts first: until then nothing is prepared that might not be used.
        let (room, placed) = self.place(job, record, &request).instrument(placing).await?;
        let parts = job.parts.get_or_init(|| placed);
        // Held until the job has ended.
        let overlay = request.network.as_ref().map(|_| self.overlays.take()).transpose()?;
        let preparing = tracing::debug_span!(target: SPANS, "burst.prepare");
        let orders = self.orders(record, &request, &job.id, parts, overlay.as_ref());
        let orders = orders.instrument(preparing).await?;
        let networks: Vec<JobSpec> =
            orders.iter().filter_map(|order| order.network.clone()).collect();
        // Its hosts can be inspected while it starts.
        let tenant = &record.tenant;
        let function = &record.spec.name;
        let _listed = (!networks.is_empty())
            .then(|| self.networks.list(&job.id, tenant, function, parts, networks.clone()));
        let within = Duration::from_millis(request.start_within_ms);
        let (open, ready) = OpenParts { job: &job.id, parts }.start(orders, within).await?;
        let recorded = parts.iter().zip(open).zip(ready).map(recorded).collect();
        let started_us = micros(begun.elapsed());
        let not_called = not_called(job, record);
        let record = JobRecord { parts: recorded, networks, started_us, ..not_called };
        let timeout_ms = record.function.options.timeout_ms;
        let calls = Some(part_calls(parts, request.events, timeout_ms));
        Ok(ReadyBurst { record, calls, _overlay: overlay, _room: Some(room), _share: share })
    }

    async fn orders(
        &self,
        record: &FunctionRecord,
        request: &BurstCalls,
        job: &JobId,
        parts: &[RankRange],
        overlay: Option<&Overlay>,
    ) -> Result<Vec<JobPart>, ErrorReport> {
        let plan = match (&request.network, overlay) {
            (Some(network), Some(overlay)) => {
                Some(plan(job, &record.tenant, network, overlay, parts)?)
            }
            _ => None,
        };
        check(record, parts)?;
        let secrets = self.secrets.read(&record.tenant, &record.spec.secrets).await?;
        let mut function = preparation::code_of(&self.node, &self.analysis, record).await?;
        function.secrets = (!secrets.is_empty()).then(|| secrets.fingerprint());
        if let Some(program) = &function.program {
            upload(&self.node, &program.files, parts).await?;
        }
        let (specs, hosts) = plan.map(|plan| (plan.specs, plan.ranks)).unzip();
        let specs = specs.unwrap_or_default().into_iter().map(Some);
        let on: Vec<_> = parts.iter().map(|part| Arc::clone(&part.host)).collect();
        let places = self.places(record, &on);
        let files = files::shared(&self.node, &self.trees, &self.hosts, &function, &on).await?;
        let order = |(((part, network), place), files): (((&RankRange, _), _), _)| JobPart {
            network,
            place,
            files,
            secrets: secrets.clone(),
            hosts: hosts.clone().unwrap_or_default(),
            job: job.clone(),
            function: function.clone(),
            size: u32::try_from(request.events.len()).unwrap_or(u32::MAX),
            first: part.first,
            count: part.count,
            start_within_ms: request.start_within_ms,
        };
        let specs = specs.chain(std::iter::repeat(None));
        Ok(parts.iter().zip(specs).zip(places).zip(files).map(order).collect())
    }

    /// Returns the places of hosts in the trees of a function's image; `None` for all if the
    /// function has no image of a registry.
    fn places(&self, record: &FunctionRecord, on: &[Arc<ClusterHost>]) -> Vec<Option<TreePlace>> {
        match trees::image(record) {
            Some(image) => {
                self.trees.place(&image, &self.hosts, on).into_iter().map(Some).collect()
            }
            None => vec![None; on.len()],
        }
    }
}

/// Returns what the ranks of a burst take of the quotas of their tenant.
pub(super) fn share_of(job: &BurstJob, function: &FunctionSpec, ranks: u64) -> RoomHolder {
    let options = &function.options;
    let rank = RoomAmount {
        instances: 1,
        memory: options.memory.bytes(),
        cpu_millis: options.cpu.0.into(),
    };
    let who = Arc::from(format!("burst {}", job.id));
    RoomHolder { who, amount: rank.times(ranks), shared_by: 1 }
}

/// Makes the record of a burst that has no hosts.
fn not_called(job: &BurstJob, record: &FunctionRecord) -> JobRecord {
    JobRecord {
        job: job.id.clone(),
        tenant: record.tenant.clone(),
        function: without_code(&record.spec),
        since_ms: job.since_ms,
        claim_within_ms: millis(job.claim_within),
        ranks: job.size,
        parts: Vec::new(),
        networks: Vec::new(),
        started_us: 0,
        ended: None,
    }
}

/// Makes the calls of each part, with the events of its ranks.
fn part_calls(parts: &[RankRange], events: Vec<Box<RawValue>>, timeout_ms: u64) -> Vec<PartCalls> {
    let mut events = events.into_iter();
    let calls = parts.iter().map(|part| PartCalls {
        events: events.by_ref().take(part.count as usize).collect(),
        timeout_ms,
        lease_ms: millis(PART_LEASE),
    });
    calls.collect()
}

/// Returns the specification of a function without code, environment and the like, as it is kept in
/// the record of a burst.
fn without_code(spec: &FunctionSpec) -> FunctionSpec {
    let mut options = spec.options.clone();
    options.environment.clear();
    FunctionSpec {
        name: spec.name.clone(),
        code: SourceCode::Files { files: BTreeMap::new() },
        packed: None,
        handler: spec.handler.clone(),
        runtime: spec.runtime,
        command: Vec::new(),
        root: None,
        image: None,
        mode: spec.mode,
        packages: Vec::new(),
        files: FileRefs::new(),
        secrets: BTreeMap::new(),
        options,
        tenant: None,
        expected: 0,
        ephemeral: spec.ephemeral,
    }
}

fn recorded(((part, open), ready): ((&RankRange, PartOpen), PartReady)) -> PartRecord {
    PartRecord {
        host: part.host.name.clone(),
        address: part.host.address().filter(|_| !part.host.is_local()),
        first: part.first,
        count: part.count,
        open,
        ready,
    }
}

fn part_of_answer(part: &PartRecord) -> BurstPart {
    BurstPart {
        host: part.host.clone(),
        first: part.first,
        count: part.count,
        network_us: part.open.network_us,
        network: part.open.network,
        started_us: part.open.started_us,
        reached_us: part.ready.reached_us,
        loaded_us: part.ready.loaded_us,
    }
}

fn ended_with_server() -> ErrorReport {
    ErrorReport::new(Code::SERVER_ENDS, "the server ended before the burst did")
        .hint("run the burst again when it is back")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
