//! Runs a planned query: its tasks and, over their results, the driver's part of the plan, which
//! streams the answer.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use snowmelt_api::{Cost, PhaseSpan, Profile, StoreRequests};
use snowmelt_execute::context::{BATCH_ROWS, execution_config, execution_context};
use snowmelt_execute::exchange::Cleaner;
use snowmelt_execute::process::process_cpu;
use snowmelt_execute::tree::count;
use snowmelt_execute::udf::{self, UdfPool};
use snowmelt_execute::worker::{PeakPool, operators};
use snowmelt_plan::cost::{Used, cost};
use snowmelt_plan::query::{PlannedQuery, output_batch, output_schema};
use snowmelt_types::{ByteSize, Report};

use super::profile::{findings, lanes, stage_profiles};
use super::runner::RunOptions;
use super::scheduling::stages::run_all;
use super::tasks::{Finished, SharedRecords};
use super::{Reporter, TaskRunner};
use crate::{Error, Result};

/// The result of a query: a stream of batches, and a profile after the last one.
pub struct QueryAnswer {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    plan: Option<Arc<dyn ExecutionPlan>>,
    // The tasks; `None` once all are done.
    tasks: Option<BoxFuture<'static, Result<()>>>,
    done: SharedRecords,
    query: Arc<PlannedQuery>,
    reporter: Arc<dyn Reporter>,
    memory: Arc<PeakPool>,
    merging: Duration,
    profile: Profile,
    workers: u32,
    // True if tasks were cancelled.
    early: bool,
    // The queries that had to run before this one.
    before: Vec<Profile>,
}

impl QueryAnswer {
    /// Starts a query and returns immediately: the tasks run, and their results are merged, while
    /// the answer is read. Dropping the answer cancels all tasks.
    ///
    /// # Errors
    /// A UDF that the driver itself calls cannot be connected, or a location of an exchange cannot
    /// be used.
    pub async fn start(
        query: PlannedQuery,
        runner: Arc<dyn TaskRunner>,
        reporter: Arc<dyn Reporter>,
        options: RunOptions,
    ) -> Result<Self> {
        let query = Arc::new(query);
        let memory = PeakPool::new(options.memory_bytes);
        if let Some(batch) = query.explanation()? {
            let schema = batch.schema();
            let stream = MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?;
            return Ok(Self::new(query, schema, Box::pin(stream), reporter, memory));
        }
        let lists = match query.cleaner() {
            Some(cleaner) => cleaner.begin().await?,
            None => 0,
        };
        let done = SharedRecords::default();
        let tasks = run_all(
            Arc::clone(&query),
            Arc::clone(&runner),
            Arc::clone(&reporter),
            options,
            Arc::clone(&done),
        );
        // A separate task: workers are followed even while the answer is not read.
        let tasks = SpawnedTask::spawn(tasks);
        let mut tasks = async move { tasks.join().await.unwrap_or_else(panicked) }.boxed();
        let connect = connect(&query.cut.driver, runner.as_ref(), &query.pool);
        let ended = connect_during_tasks(&mut tasks, connect).await?;
        let schema = output_schema(&query.cut.driver.schema(), &query.tables);
        let stream = merge(&query, &memory)?;
        let mut answer = Self::new(query, schema, stream, reporter, memory);
        answer.plan = Some(Arc::clone(&answer.query.cut.driver));
        answer.workers = options.workers;
        answer.profile.totals.exchange_lists = lists;
        answer.done = done;
        match ended {
            true => answer.tasks_done(),
            false => answer.tasks = Some(tasks),
        }
        Ok(answer)
    }

    fn new(
        query: Arc<PlannedQuery>,
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
        reporter: Arc<dyn Reporter>,
        memory: Arc<PeakPool>,
    ) -> Self {
        let began = query.accepted.elapsed();
        let profile = query.profile.clone();
        Self {
            schema,
            stream,
            plan: None,
            tasks: None,
            done: SharedRecords::default(),
            query,
            reporter,
            memory,
            merging: began,
            profile,
            workers: 0,
            early: false,
            before: Vec::new(),
        }
    }

    /// Counts the profiles of queries that had to run before this one as parts of it.
    pub(crate) fn after(self, before: Vec<Profile>) -> Self {
        Self { before, ..self }
    }
}

/// Runs the driver's part of the plan.
fn merge(query: &PlannedQuery, memory: &Arc<PeakPool>) -> Result<SendableRecordBatchStream> {
    let context = execution_context(execution_config(1, BATCH_ROWS), memory.runtime(None)?);
    Ok(execute_stream(Arc::clone(&query.cut.driver), Arc::new(context))?)
}

fn panicked(error: tokio::task::JoinError) -> Result<()> {
    Err(DataFusionError::ExecutionJoin(Box::new(error)).into())
}

/// Waits for `connected` while the tasks run; returns true if they finish first.
async fn connect_during_tasks(
    tasks: &mut BoxFuture<'static, Result<()>>,
    connected: impl Future<Output = Result<()>>,
) -> Result<bool> {
    let mut connected = std::pin::pin!(connected);
    tokio::select! {
        connected = &mut connected => connected.map(|()| false),
        ended = tasks => {
            ended?;
            connected.await?;
            Ok(true)
        }
    }
}

/// Connects the UDFs that the driver's part calls.
async fn connect(
    plan: &Arc<dyn ExecutionPlan>,
    runner: &dyn TaskRunner,
    pool: &UdfPool,
) -> Result<()> {
    for (name, signature) in udf::signatures_in(plan)? {
        let connection =
            runner.connect(&name).await.map_err(|report| Error::Task(Box::new(report)))?;
        udf::connect(pool, &signature, connection)?;
    }
    Ok(())
}

impl QueryAnswer {
    /// The schema of all batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch, or `None` after the last one, once all tasks are done.
    ///
    /// # Errors
    /// The first permanent failure of a task, or the loss of a worker after the last retry.
    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let batch = match self.merged().await {
            Ok(batch) => output_batch(&batch?, &self.schema),
            Err(error) => Err(error),
        };
        if let Ok(batch) = &batch {
            self.profile.rows += batch.num_rows() as u64;
        }
        Some(batch)
    }

    /// Returns the next batch of the driver's plan, and drives the tasks meanwhile. After the last
    /// batch, tasks are cancelled whose results the plan did not need, such as those below a LIMIT.
    async fn merged(&mut self) -> Result<Option<RecordBatch>> {
        let mut ended = false;
        loop {
            let Some(tasks) = &mut self.tasks else {
                let next = if ended { None } else { self.stream.next().await };
                return next.transpose().map_err(|error| self.explain(error));
            };
            tokio::select! {
                done = tasks => {
                    done?;
                    self.tasks = None;
                    self.tasks_done();
                }
                next = self.stream.next(), if !ended => match next.transpose() {
                    Ok(None) => {
                        ended = true;
                        if !self.has_all_results() {
                            self.tasks = None;
                            self.early = true;
                            self.tasks_done();
                        }
                    }
                    next => return next.map_err(|error| self.explain(error)),
                },
            }
        }
    }

    /// True if every result that the driver's plan could read is there.
    fn has_all_results(&self) -> bool {
        let mut stages = self.query.cut.stages.iter();
        stages.all(|stage| stage.queue().is_none_or(|queue| queue.is_complete(count(stage.body()))))
    }

    /// True if each task has ended, with its only attempt: no other attempt may still write.
    pub(crate) fn is_whole(&self) -> bool {
        let stages = &self.profile.stages;
        self.tasks.is_none()
            && !self.early
            && self.profile.lanes.iter().all(|lane| lane.retries == 0)
            && stages.iter().all(|stage| stage.discarded.is_empty())
    }

    fn tasks_done(&mut self) {
        self.merging = self.query.accepted.elapsed();
        let records =
            std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        self.profile.stages = stage_profiles(&self.query.cut.stages, &records);
        let finished: Vec<Finished> = records.finished.into_values().collect();
        lanes::fill(&mut self.profile, &finished, self.merging);
        self.reporter.merging();
    }

    /// All batches, for answers that are known to be small.
    pub async fn collect(&mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }

    /// Returns the profile of the query. `lists` is the number of LIST requests with which its
    /// objects were removed.
    pub fn finish_cleaned(mut self, lists: u64) -> Profile {
        self.profile.totals.exchange_lists += lists;
        self.finish()
    }

    /// The profile of the query. Call it after the last batch.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        let wall = self.query.accepted.elapsed();
        profile.wall_us = wall.as_micros() as u64;
        profile.phases.push(PhaseSpan {
            phase: "merge".to_owned(),
            from_us: self.merging.as_micros() as u64,
            to_us: profile.wall_us,
        });
        let udfs = self.query.pool.used();
        profile.driver_operators =
            self.plan.as_ref().map(|plan| operators(plan, udfs)).unwrap_or_default();
        self.before.iter().for_each(|earlier| lanes::add_earlier(&mut profile, earlier));
        profile.cost = used(&profile, &self.query, &self.before);
        let tables = &self.query.tables;
        profile.findings = findings::findings(&profile, tables, self.workers, cores());
        profile
    }

    fn explain(&self, error: DataFusionError) -> Error {
        let error = Error::Execution(error);
        let report = error.report();
        if report.code == snowmelt_types::Code::QUERY_MEMORY.code {
            let why = report.excerpt.first().cloned().unwrap_or_default();
            return Error::Memory { limit: ByteSize(self.memory.limit()), why };
        }
        error
    }
}

/// Removes the objects of a query's exchanges, if it has any. Returns the number of LIST requests. A
/// failure does not change the answer, which is complete: objects that are left are removed by a later
/// query.
pub(crate) async fn clean(cleaner: Option<&Cleaner>, is_whole: bool) -> u64 {
    let Some(cleaner) = cleaner else { return 0 };
    let cleaned = match is_whole {
        true => cleaner.clean().await,
        // Objects of attempts that were cancelled may be on their way.
        false => cleaner.clean_twice().await,
    };
    cleaned.unwrap_or_else(|error| {
        tracing::warn!(%error, "the objects of an exchange were not removed");
        0
    })
}

/// Sums the resources that the query used, and computes their cost.
fn used(profile: &Profile, query: &PlannedQuery, before: &[Profile]) -> Cost {
    const GIB: f64 = (1u64 << 30) as f64;
    let gib_seconds = |bytes: u64, micros: u64| bytes as f64 / GIB * micros as f64 / 1e6;
    let basis = &query.basis;
    let (plan_reads, lists) = query.s3.requests();
    let earlier = || before.iter().map(|earlier| earlier.cost.requests);
    let progress = &profile.totals.progress;
    let requests = StoreRequests {
        scan_reads: progress.store_reads,
        hedged: progress.scans.hedged,
        plan_reads: plan_reads + earlier().map(|earlier| earlier.plan_reads).sum::<u64>(),
        exchange_reads: progress.exchange_reads,
        exchange_writes: progress.exchange_writes,
        lists: lists
            + profile.totals.exchange_lists
            + earlier().map(|earlier| earlier.lists).sum::<u64>(),
    };
    let retries: u64 = profile.lanes.iter().map(|lane| u64::from(lane.retries)).sum();
    let of_lanes = profile.lanes.iter().map(|lane| gib_seconds(lane.memory_limit, lane.held_us()));
    let own_cpu = process_cpu().saturating_sub(query.cpu_before).as_secs_f64();
    let used = Used {
        requests,
        // The driver is one.
        invocations: profile.lanes.len() as u64 + retries + 1,
        gib_seconds: of_lanes.sum::<f64>() + gib_seconds(basis.driver_memory, profile.wall_us),
        cpu_seconds: profile.totals.cpu_seconds + own_cpu,
    };
    cost(used, &basis.prices)
}

/// CPU cores that workers share: those of the machine, not of the driver's sandbox.
fn cores() -> u32 {
    let allowed = rustix::thread::sched_getaffinity(None);
    allowed.map_or(1, |allowed| allowed.count())
}

impl std::fmt::Debug for QueryAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryAnswer").field("schema", &self.schema).finish_non_exhaustive()
    }
}
