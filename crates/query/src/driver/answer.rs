//! Runs a planned query: its tasks first, then the driver's own part, which streams the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use snowmelt_types::{ByteSize, Report};

use super::shown::{shown, shown_schema};
use super::{Reporter, TaskRunner, findings, lanes, tasks};
use crate::plan::{BATCH_ROWS, PlannedQuery, TableInfo, execution_config, function_registry};
use crate::udf::{self, UdfPool};
use crate::worker::{PeakPool, operators};
use crate::{Error, PhaseSpan, Profile, Result};

/// How to run a query.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Bytes that the operators of the driver's part may reserve.
    pub memory_bytes: u64,
    /// How often a task is run again after its worker was lost.
    pub retries: u32,
    /// Workers that the query was planned for.
    pub workers: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, retries: 2, workers: 1 }
    }
}

/// The answer of a query, batch by batch, and after the last one its profile.
pub struct Answer {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    plan: Option<Arc<dyn ExecutionPlan>>,
    udfs: Arc<UdfPool>,
    memory: Arc<PeakPool>,
    accepted: Instant,
    merging: Duration,
    profile: Profile,
    tables: Vec<TableInfo>,
    workers: u32,
}

impl PlannedQuery {
    /// Runs the query. Returns when all tasks are done and the driver can give its first batch.
    /// Dropping the future cancels all tasks.
    ///
    /// # Errors
    /// The first failure that would come again, or a worker that was lost too often.
    pub async fn run(
        mut self,
        runner: Arc<dyn TaskRunner>,
        reporter: Arc<dyn Reporter>,
        options: RunOptions,
    ) -> Result<Answer> {
        let memory = PeakPool::new(options.memory_bytes);
        if let Some(batch) = self.explanation()? {
            return self.explained(batch, memory);
        }
        let run = tasks::run_all(&self, runner.as_ref(), &reporter, options.retries);
        let connect = connect(&self.cut.driver, runner.as_ref(), &self.pool);
        let (finished, ()) = futures::try_join!(run, connect)?;
        let merging = self.accepted.elapsed();
        let program_of = |task: u32| self.tasks[task as usize].fragment;
        lanes::fill(&mut self.profile, &finished, merging, program_of);
        reporter.merging();
        let stream = self.merge(&memory)?;
        Ok(Answer {
            schema: shown_schema(&self.cut.driver.schema(), &self.tables),
            stream,
            plan: Some(self.cut.driver),
            udfs: self.pool,
            memory,
            accepted: self.accepted,
            merging,
            profile: self.profile,
            tables: self.tables,
            workers: options.workers,
        })
    }

    fn merge(&self, memory: &Arc<PeakPool>) -> Result<SendableRecordBatchStream> {
        let context = TaskContext::from(function_registry())
            .with_session_config(execution_config(1, BATCH_ROWS))
            .with_runtime(memory.runtime()?);
        Ok(execute_stream(Arc::clone(&self.cut.driver), Arc::new(context))?)
    }

    fn explained(self, batch: RecordBatch, memory: Arc<PeakPool>) -> Result<Answer> {
        let schema = batch.schema();
        let stream = MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?;
        Ok(Answer {
            schema,
            stream: Box::pin(stream),
            plan: None,
            udfs: self.pool,
            memory,
            accepted: self.accepted,
            merging: self.accepted.elapsed(),
            profile: self.profile,
            tables: self.tables,
            workers: 0,
        })
    }
}

/// Connects the UDFs that the driver's own part calls.
async fn connect(
    plan: &Arc<dyn ExecutionPlan>,
    runner: &dyn TaskRunner,
    pool: &UdfPool,
) -> Result<()> {
    for (name, signature) in udf::signatures_in(plan)? {
        let connection =
            runner.connect(&name).await.map_err(|report| Error::Task(Box::new(report)))?;
        pool.insert(&name, udf::open(&signature, connection)?);
    }
    Ok(())
}

impl Answer {
    /// The schema of all batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch, or `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let batch = match self.stream.next().await? {
            Ok(batch) => shown(&batch, &self.schema),
            Err(error) => Err(self.explain(error)),
        };
        if let Ok(batch) = &batch {
            self.profile.rows += batch.num_rows() as u64;
        }
        Some(batch)
    }

    /// All batches. For answers that are known to be small.
    pub async fn collect(&mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }

    /// The profile of the query up to now: call it after the last batch.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        let wall = self.accepted.elapsed();
        profile.wall_us = wall.as_micros() as u64;
        profile.phases.push(PhaseSpan {
            phase: "merge".to_owned(),
            from_us: self.merging.as_micros() as u64,
            to_us: profile.wall_us,
        });
        profile.driver_operators =
            self.plan.as_ref().map(|plan| operators(plan, self.udfs.used())).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        profile.findings = findings::findings(&profile, &self.tables, self.workers, cores);
        profile
    }

    fn explain(&self, error: datafusion::error::DataFusionError) -> Error {
        let error = Error::Execution(error);
        let report = error.report();
        if report.code == snowmelt_types::Code::QUERY_MEMORY.code {
            let why = report.excerpt.first().cloned().unwrap_or_default();
            return Error::Memory { limit: ByteSize(self.memory.limit()), why };
        }
        error
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("schema", &self.schema).finish_non_exhaustive()
    }
}
