//! The cost of a plan before it runs, by stage.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use snowmelt_api::{Cost, StoreRequests};
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::tree::visit_scans;

use super::bill::{Used, cost};
use super::reads::Reads;
use super::scan::{Filled, Scan};
use super::task_footers::TaskFooters;
use super::work::Work;
use crate::Result;
use crate::prices::CostBasis;
use crate::stages::{Cut, Stage};
use crate::tasks::{Division, Outputs, PlannedTask, tasks};

/// Processor seconds of a task besides its rows: to decode its plan and to open its files.
const TASK_CPU_SECONDS: f64 = 0.0037;

/// Seconds that a worker is held for a task besides its work: to start it, to send it its plan and
/// files, and to report its end.
const TASK_SECONDS: f64 = 0.005;

/// Seconds of the driver besides planning: to start, and to send the answer.
const DRIVER_SECONDS: f64 = 0.01;

/// Processor nanoseconds of the driver for each row that it is sent.
const DRIVER_ROW: f64 = 20.0;

/// Seconds until object storage answers a read, as measured for small reads from S3.
const STORE_LATENCY: f64 = 0.015;

/// Bytes in a second that one worker reads from object storage (Lambada 4.4.4).
const STORE_BANDWIDTH: f64 = 85.0 * 1024.0 * 1024.0;

/// The largest number of keys of a join that DataFusion compares one by one
/// (`optimizer.hash_join_inlist_pushdown_max_distinct_values`).
const FEW_KEYS: f64 = 150.0;

const GIB: f64 = (1u64 << 30) as f64;

/// The estimated use of resources by a part of a query: a stage, the driver, or the whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartEstimate {
    pub(crate) tasks: u64,
    pub(crate) requests: StoreRequests,
    /// Bytes that the part reads from files.
    pub(crate) bytes_read: u64,
    /// Rows of the part's results.
    pub(crate) rows: u64,
    /// Bytes that the part writes for other stages.
    pub(crate) bytes_exchanged: u64,
    pub(crate) cpu_seconds: f64,
    /// Seconds for which sandboxes are held for the part, summed over the sandboxes.
    pub(crate) held_seconds: f64,
    pub(crate) cost: Cost,
}

/// The estimated use of resources by a query, with its cost, by stage and in total.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    /// The stages, in the order of the plan.
    pub(crate) stages: Vec<PartEstimate>,
    /// The driver, with the requests of planning, which were sent already.
    pub(crate) driver: PartEstimate,
    pub(crate) total: PartEstimate,
}

/// The circumstances in which the query will run, as far as its cost depends on them.
pub(crate) struct Circumstances<'c> {
    pub(crate) workers: u32,
    pub(crate) task_bytes: u64,
    pub(crate) scan_task_bytes: u64,
    pub(crate) basis: &'c CostBasis,
    pub(crate) s3: &'c S3Settings,
    /// How long planning took, in seconds.
    pub(crate) planning_seconds: f64,
    /// Processor seconds of planning.
    pub(crate) planning_cpu_seconds: f64,
}

/// The cost of a plan.
///
/// # Errors
/// A stage cannot be divided into tasks.
pub(crate) fn estimate(cut: &Cut, how: &Circumstances<'_>) -> Result<Estimate> {
    let work = Work::new();
    let mut stages: Vec<PartEstimate> = Vec::with_capacity(cut.stages.len());
    for stage in &cut.stages {
        stages.push(of_stage(stage, &stages, &work, how)?);
    }
    let driver = of_driver(cut, &stages, how);
    let total = sum(stages.iter().chain([&driver]), how.basis);
    Ok(Estimate { stages, driver, total })
}

fn of_stage(
    stage: &Stage,
    before: &[PartEstimate],
    work: &Work,
    how: &Circumstances<'_>,
) -> Result<PartEstimate> {
    let Circumstances { workers, task_bytes, scan_task_bytes, .. } = *how;
    let division = Division { workers, task_bytes, scan_task_bytes };
    let planned = tasks(stage, &Outputs::new(), division, 0, how.s3)?;
    let reads = scan_reads(stage, &planned, work);
    let calls = planned.first().map_or(0, |task| task.udfs.len() as u64);
    let exchanged: u64 =
        stage.reads.iter().filter_map(|read| before.get(*read as usize)).map(written).sum();
    let is_divided_by_bytes = reads.files == 0 && calls == 0 && !stage.reads.is_empty();
    let tasks = match is_divided_by_bytes {
        true => exchanged.div_ceil(how.task_bytes.max(1)).clamp(1, planned.len().max(1) as u64),
        false => planned.len() as u64,
    };
    let cpu_seconds = work.seconds(&stage.plan, tasks as f64) + tasks as f64 * TASK_CPU_SECONDS;
    let waits =
        reads.store.requests as f64 * STORE_LATENCY + reads.store.bytes as f64 / STORE_BANDWIDTH;
    let is_exchange = stage.queue().is_none();
    let requests = StoreRequests { scan_reads: reads.store.requests, ..StoreRequests::default() };
    let part = PartEstimate {
        tasks,
        requests,
        bytes_read: reads.store.bytes + reads.local.bytes,
        rows: work.rows(stage.body()) as u64,
        bytes_exchanged: if is_exchange { work.bytes(stage.body()) as u64 } else { 0 },
        cpu_seconds,
        held_seconds: cpu_seconds + waits + tasks as f64 * TASK_SECONDS,
        cost: Cost::default(),
    };
    Ok(priced(part, (1 + calls) * tasks, how.basis.worker_memory, how.basis))
}

fn written(part: &PartEstimate) -> u64 {
    part.bytes_exchanged
}

/// The requests and bytes that the scans of a stage read, from object storage and from local files.
#[derive(Default)]
struct StageReads {
    store: Reads,
    local: Reads,
    /// Number of parts of files that are read.
    files: u64,
}

fn scan_reads(stage: &Stage, planned: &[PlannedTask], work: &Work) -> StageReads {
    let filled = filled_by_joins(stage.body(), work);
    let mut reads = StageReads::default();
    for task in planned {
        let mut opened = TaskFooters::new(&task.s3);
        visit_scans(stage.body(), &task.partitions, &mut |config, groups| {
            let scan = Scan::new(config, &filled);
            let is_stored = config.object_store_url.as_str().starts_with("s3://");
            let groups = groups.iter().filter_map(|group| config.file_groups.get(*group as usize));
            for part in groups.flat_map(|group| group.files()) {
                reads.files += 1;
                let found = scan.reads(part, &mut opened);
                match is_stored {
                    true => reads.store.add(found),
                    false => reads.local.add(found),
                }
            }
        });
    }
    reads
}

/// The filters that the joins of a plan fill with the keys of their build sides.
fn filled_by_joins(node: &Arc<dyn ExecutionPlan>, work: &Work) -> Vec<Filled> {
    let children = node.children();
    let below = children.iter().flat_map(|child| filled_by_joins(child, work));
    let mut filled: Vec<Filled> = below.collect();
    if node.is::<HashJoinExec>() {
        let few_keys = children.first().is_some_and(|build| work.rows(build) <= FEW_KEYS);
        let produced = node.dynamic_expressions_produced();
        let ids = produced.iter().filter_map(|filter| filter.expression_id());
        filled.extend(ids.map(|id| Filled { id, few_keys }));
    }
    filled
}

/// Estimates the driver, which is held while the query runs: as long as the longest chain of stages
/// takes.
fn of_driver(cut: &Cut, stages: &[PartEstimate], how: &Circumstances<'_>) -> PartEstimate {
    let mut ends = Vec::with_capacity(stages.len());
    for (stage, part) in cut.stages.iter().zip(stages) {
        let begin = stage.reads.iter().filter_map(|read| ends.get(*read as usize).copied());
        let begin: f64 = begin.fold(0.0, f64::max);
        ends.push(begin + part.held_seconds / part.tasks.max(1) as f64);
    }
    let results = cut.stages.iter().zip(stages).filter(|(stage, _)| stage.queue().is_some());
    let rows: u64 = results.map(|(_, part)| part.rows).sum();
    let merging = rows as f64 * DRIVER_ROW / 1e9;
    let (plan_reads, lists) = how.s3.requests();
    let part = PartEstimate {
        tasks: 1,
        requests: StoreRequests { plan_reads, lists, ..StoreRequests::default() },
        rows,
        cpu_seconds: how.planning_cpu_seconds + merging,
        held_seconds: how.planning_seconds
            + DRIVER_SECONDS
            + merging
            + ends.into_iter().fold(0.0, f64::max),
        ..PartEstimate::default()
    };
    priced(part, 1, how.basis.driver_memory, how.basis)
}

fn priced(part: PartEstimate, invocations: u64, memory: u64, basis: &CostBasis) -> PartEstimate {
    let used = Used {
        requests: part.requests,
        invocations,
        gib_seconds: part.held_seconds * memory as f64 / GIB,
        cpu_seconds: part.cpu_seconds,
    };
    PartEstimate { cost: cost(used, &basis.prices), ..part }
}

fn sum<'p>(parts: impl Iterator<Item = &'p PartEstimate>, basis: &CostBasis) -> PartEstimate {
    let mut total = PartEstimate::default();
    let mut used = Used::default();
    for part in parts {
        total.tasks += part.tasks;
        total.bytes_read += part.bytes_read;
        total.bytes_exchanged += part.bytes_exchanged;
        total.cpu_seconds += part.cpu_seconds;
        total.held_seconds += part.held_seconds;
        used.requests += part.requests;
        used.invocations += part.cost.invocations;
        used.gib_seconds += part.cost.gib_seconds;
        used.cpu_seconds += part.cpu_seconds;
        // The last part is the driver, whose rows are those of the answer.
        total.rows = part.rows;
    }
    PartEstimate { requests: used.requests, cost: cost(used, &basis.prices), ..total }
}
