//! A query: planned, and ready to run.

mod answer_columns;
mod explain;
mod prepare;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use snowmelt_api::{PhaseSpan, Profile};
use snowmelt_execute::exchange::{Cleaner, ExchangeReach};
use snowmelt_execute::process::process_cpu;
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::udf::UdfPool;
use snowmelt_wire::{FileGrant, S3Access};

use crate::Result;
use crate::cost::{self, Circumstances};
use crate::prices::CostBasis;
use crate::spec::QuerySpec;
use crate::sql::{self, ResultKind};
use crate::stages::{Cut, Stage, driver_text, workers_text};
use crate::tables::TableInfo;
use crate::tasks::{Division, Outputs, PlannedTask, TASK_BYTES, tasks, worth_a_task};
pub use answer_columns::{output_batch, output_schema};
use prepare::{PreparedQuery, prepare};

/// A query, cut into stages and the driver's part. `Answer::start` of `snowmelt_query` runs it.
#[derive(Debug)]
pub struct PlannedQuery {
    /// The stages, and the part of the driver.
    pub cut: Cut,
    /// The tables that the statement reads.
    pub tables: Vec<TableInfo>,
    /// The UDFs that the driver's part calls.
    pub pool: Arc<UdfPool>,
    /// Time zero of the profile: when the query was accepted.
    pub accepted: Instant,
    /// The profile as far as planning fills it.
    pub profile: Profile,
    /// Access to object storage, with the requests that planning has sent.
    pub s3: S3Settings,
    cleaner: Option<Cleaner>,
    /// The prices and memory limits from which the cost is computed.
    pub basis: CostBasis,
    workers: u32,
    scan_task_bytes: u64,
    // How long it took to plan.
    planning: Duration,
    /// Processor time of this process when planning began.
    pub cpu_before: Duration,
    result_kind: ResultKind,
    /// The tables that were named beside the statement, with their locations.
    given: BTreeMap<String, String>,
}

/// Plans a query: parses, checks, optimises and cuts it. Reads only the footers or the beginnings of
/// its files.
///
/// # Errors
/// Errors of the SQL or of its tables' locations, before any worker starts.
pub async fn plan(spec: &QuerySpec) -> Result<PlannedQuery> {
    let cpu_before = process_cpu();
    let prepared = prepare(spec).await?;
    PlannedQuery::new(spec, prepared, cpu_before)
}

/// Returns the SQL of a query that finds the values of a PIVOT, whose rows are to be put into
/// `spec.pivots` under this SQL before the query is planned. `None` if all values are known.
///
/// # Errors
/// The text is no query.
pub fn unlisted(spec: &QuerySpec) -> Result<Option<String>> {
    if !spec.sql.to_ascii_lowercase().contains("pivot") {
        return Ok(None);
    }
    Ok(sql::parse(&spec.sql, &spec.params, &spec.pivots)?.unlisted)
}

impl PlannedQuery {
    fn new(spec: &QuerySpec, prepared: PreparedQuery, cpu_before: Duration) -> Result<Self> {
        let PreparedQuery { result_kind, cut, tables, pool, s3 } = prepared;
        let mut profile = started_profile(spec);
        let reach = if spec.hosts > 1 { ExchangeReach::Hosts } else { ExchangeReach::OneHost };
        profile.worker_plan = workers_text(&cut, reach);
        profile.driver_plan = driver_text(&cut);
        let accepted = spec.accepted;
        let workers = spec.workers;
        let scan_task_bytes = spec.scan_task_bytes;
        let by_objects =
            |stage: &Stage| stage.exchange().is_some_and(|exchange| exchange.objects().is_some());
        let folder = || Cleaner::with(&spec.exchange.locations, &spec.exchange_folder, &s3);
        let cleaner = cut.stages.iter().any(by_objects).then(folder).transpose()?;
        let planning = spec.accepted.elapsed().saturating_sub(spec.packages);
        let basis = spec.cost.clone();
        let mut query = Self {
            cut,
            tables,
            pool,
            accepted,
            profile,
            s3,
            cleaner,
            basis,
            workers,
            scan_task_bytes,
            planning,
            cpu_before,
            result_kind,
            given: spec.tables.clone(),
        };
        let tasks = query.tasks()?;
        query.profile.totals.tasks = tasks.len() as u32;
        query.profile.totals.bytes_total = tasks.iter().map(|task| task.bytes).sum();
        Ok(query)
    }

    /// The schema of the answer.
    pub fn schema(&self) -> Result<SchemaRef> {
        match self.explanation()? {
            Some(batch) => Ok(batch.schema()),
            None => Ok(output_schema(&self.cut.driver.schema(), &self.tables)),
        }
    }

    /// The most tasks that the query can have. A stage that reads others may get fewer, once the
    /// sizes of their outputs are known.
    pub fn tasks(&self) -> Result<Vec<PlannedTask>> {
        let workers = self.workers;
        let scan_task_bytes = self.scan_task_bytes;
        let division = Division { workers, task_bytes: u64::MAX, scan_task_bytes };
        let mut found = Vec::new();
        for stage in &self.cut.stages {
            let first = found.len() as u32;
            found.extend(tasks(stage, &Outputs::new(), division, first, &self.s3)?);
        }
        Ok(found)
    }

    /// The workers' part of the plan as text.
    pub fn worker_plan(&self) -> &str {
        &self.profile.worker_plan
    }

    /// The driver's part of the plan as text.
    pub fn driver_plan(&self) -> &str {
        &self.profile.driver_plan
    }

    /// Upper bound of the bytes that the scans read.
    pub fn bytes_total(&self) -> u64 {
        self.profile.totals.bytes_total
    }

    /// Names of all UDFs that the query calls, in workers or in the driver.
    pub fn udfs(&self) -> Result<Vec<String>> {
        let mut names = snowmelt_execute::udf::names_in(&self.cut.driver)?;
        for stage in &self.cut.stages {
            names.extend(snowmelt_execute::udf::names_in(&stage.plan)?);
        }
        Ok(names.into_iter().collect())
    }

    /// All local files that the query reads.
    pub fn files(&self) -> Result<Vec<FileGrant>> {
        let grants = self.tasks()?.into_iter().flat_map(|task| task.files);
        let by_path: BTreeMap<String, FileGrant> =
            grants.map(|grant| (grant.path.clone(), grant)).collect();
        Ok(by_path.into_values().collect())
    }

    /// Access to the buckets that the query reads.
    pub fn s3(&self) -> Result<BTreeMap<String, S3Access>> {
        Ok(self.tasks()?.into_iter().flat_map(|task| task.s3).collect())
    }

    /// Returns the cleaner that removes the objects of the query's exchanges, if it has any. The
    /// caller runs the cleaner when the query has ended.
    pub fn cleaner(&self) -> Option<Cleaner> {
        match self.result_kind {
            ResultKind::Rows | ResultKind::Summary => self.cleaner.clone(),
            ResultKind::Plan | ResultKind::Cost | ResultKind::Columns | ResultKind::Tables => None,
        }
    }

    /// Estimates the resources and the cost of the query, if it runs with the default options.
    pub(crate) fn estimate(&self) -> Result<cost::Estimate> {
        cost::estimate(
            &self.cut,
            &Circumstances {
                workers: self.workers,
                task_bytes: worth_a_task(TASK_BYTES, self.basis.worker_memory),
                scan_task_bytes: self.scan_task_bytes,
                basis: &self.basis,
                s3: &self.s3,
                planning_seconds: self.planning.as_secs_f64(),
                planning_cpu_seconds: (process_cpu().saturating_sub(self.cpu_before)).as_secs_f64(),
            },
        )
    }

    /// The result of an EXPLAIN or DESCRIBE, which runs no task.
    pub fn explanation(&self) -> Result<Option<RecordBatch>> {
        match self.result_kind {
            ResultKind::Rows | ResultKind::Summary => Ok(None),
            ResultKind::Tables => explain::tables(&self.given).map(Some),
            ResultKind::Cost => cost::as_rows(&self.estimate()?).map(Some),
            ResultKind::Plan => explain::plan(self.worker_plan(), self.driver_plan()).map(Some),
            ResultKind::Columns => {
                explain::columns(&output_schema(&self.cut.driver.schema(), &self.tables)).map(Some)
            }
        }
    }
}

fn started_profile(spec: &QuerySpec) -> Profile {
    let elapsed = spec.accepted.elapsed();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = spec.packages.as_micros() as u64;
    let span = |phase: &str, from_us, to_us| PhaseSpan { phase: phase.to_owned(), from_us, to_us };
    let packages = (began > 0).then(|| span("packages", 0, began));
    let plan = span("plan", began, elapsed.as_micros() as u64);
    Profile {
        query: spec.query.clone(),
        sql: spec.sql.clone(),
        accepted_ms: now.saturating_sub(elapsed).as_millis() as u64,
        phases: packages.into_iter().chain([plan]).collect(),
        ..Profile::default()
    }
}
