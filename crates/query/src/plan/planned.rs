//! A planned query, ready to run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use snowmelt_api::{PhaseSpan, Profile};
use snowmelt_wire::{FileGrant, S3Access};

use super::cut::Cut;
use super::info::TableInfo;
use super::outputs::Outputs;
use super::statement::ResultKind;
use super::tasks::{self, Division};
use super::{QuerySpec, explain, text};
use crate::Result;
use crate::driver::PlannedTask;
use crate::driver::output_schema;
use crate::scan::S3Settings;
use crate::udf::UdfPool;

/// A query, cut into stages and the driver's part. Run it with [`PlannedQuery::run`].
#[derive(Debug)]
pub struct PlannedQuery {
    pub(crate) cut: Cut,
    pub(crate) tables: Vec<TableInfo>,
    pub(crate) pool: Arc<UdfPool>,
    pub(crate) accepted: Instant,
    pub(crate) profile: Profile,
    pub(crate) s3: S3Settings,
    workers: u32,
    result_kind: ResultKind,
}

impl PlannedQuery {
    pub(super) fn new(
        spec: &QuerySpec,
        result_kind: ResultKind,
        cut: Cut,
        tables: Vec<TableInfo>,
        pool: Arc<UdfPool>,
        s3: S3Settings,
    ) -> Result<Self> {
        let mut profile = started_profile(spec);
        profile.worker_plan = text::workers(&cut);
        profile.driver_plan = text::driver(&cut);
        let accepted = spec.accepted;
        let workers = spec.workers;
        let mut query = Self { cut, tables, pool, accepted, profile, s3, workers, result_kind };
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
        let division = Division { workers: self.workers, task_bytes: u64::MAX };
        let mut found = Vec::new();
        for stage in &self.cut.stages {
            let first = found.len() as u32;
            found.extend(tasks::tasks(stage, &Outputs::new(), division, first, &self.s3)?);
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
        let mut names = crate::udf::names_in(&self.cut.driver)?;
        for stage in &self.cut.stages {
            names.extend(crate::udf::names_in(&stage.plan)?);
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

    /// The result of an EXPLAIN or DESCRIBE, which runs no task.
    pub(crate) fn explanation(&self) -> Result<Option<RecordBatch>> {
        match self.result_kind {
            ResultKind::Rows => Ok(None),
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
