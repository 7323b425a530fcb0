//! A task runner in this process: each task gets a real worker loop on a separate thread, over a
//! socket pair, with real descriptors, but without a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use snowmelt_api::Profile;
use snowmelt_query::{
    Attempt, CostBasis, HostFiles, ListedQuery, LocalFiles, PlannedQuery, PlannedTask, QueryAnswer,
    QuerySpec, RANGE_SORT_BYTES, Reporter, RunOptions, RunProgress, Stragglers, TaskError,
    TaskResult, TaskRunner, follow, plan, serve_connection,
};
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{
    ExchangeOptions, GangAsk, Grants, RequestFailure, UdfConnection, UdfGrant, hand_over,
};
use tokio_util::task::AbortOnDropHandle;

use crate::gangs::Gangs;
use crate::{data, udfs};

/// Which tasks.
pub type Which = fn(&PlannedTask) -> bool;

/// Runs tasks in this process, with injected faults and counters.
#[derive(Default)]
pub struct InProcess {
    /// Number of attempts of each task that are lost before their worker has started.
    pub lose: u32,
    /// Lose them after their results instead.
    pub lose_late: bool,
    /// Tasks, and how many attempts of each end as if the kernel had ended their worker at its
    /// memory limit.
    pub out_of_memory: Option<(Which, u32)>,
    /// Memory limit of a task's operators; 0 means 1 GiB.
    pub memory_bytes: u64,
    /// Threads of a worker; 0 means one.
    pub threads: u32,
    /// Each attempt acquires a permit after its results are posted, before it ends.
    pub release: Option<Arc<tokio::sync::Semaphore>>,
    /// Number of attempts.
    pub attempts: AtomicU32,
    /// Rows passed to UDFs, by function.
    pub udf_rows: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Number of workers whose threads have ended.
    pub ended: Arc<AtomicU32>,
    /// The outputs of tasks, by task.
    pub outputs: Mutex<BTreeMap<u32, File>>,
    /// When the first attempt of a task is asked for, these outputs are lost.
    pub vanish: BTreeMap<u32, Vec<u32>>,
    /// All outputs are lost at once.
    pub forget: bool,
    /// The first attempts of these tasks do not end, although their work is done.
    pub freeze: Vec<u32>,
    /// Attempts of each task.
    pub tried: Mutex<BTreeMap<u32, u32>>,
    /// The tasks, by number, as they were asked for first.
    pub asked: Mutex<BTreeMap<u32, PlannedTask>>,
    /// Rows of other tasks' outputs that each task was given to read.
    pub rows_given: Mutex<BTreeMap<u32, u64>>,
    /// Attempts that run.
    pub active: Arc<AtomicU32>,
    /// Gangs, with the streams of their tasks.
    pub gangs: Gangs,
}

/// Counts an attempt while it runs.
struct Active(Arc<AtomicU32>);

impl Active {
    fn new(active: &Arc<AtomicU32>) -> Self {
        active.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(active))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl InProcess {
    fn worker(&self) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        let ended = Arc::clone(&self.ended);
        std::thread::spawn(move || {
            serve_connection(far);
            ended.fetch_add(1, Ordering::SeqCst);
        });
        near
    }

    fn instance(&self, name: &str) -> UnixStream {
        udfs::instance(name, Arc::clone(&self.udf_rows))
    }

    /// Fails if an output that the task reads is not there.
    fn check_inputs(&self, task: &PlannedTask) -> Result<(), TaskError> {
        let outputs = self.outputs.lock().unwrap();
        let in_files = task.reads.iter().filter(|read| read.objects.is_none());
        let read: BTreeSet<u32> = in_files.map(|read| read.task).collect();
        let gone: Vec<u32> = read.into_iter().filter(|task| !outputs.contains_key(task)).collect();
        match gone.is_empty() {
            true => Ok(()),
            false => {
                let why = ErrorReport::new(Code::WORKER_LOST, "outputs were lost by the test");
                Err(TaskError::lost_inputs(gone, why))
            }
        }
    }

    fn grants(&self, task: &PlannedTask, output: Option<&File>) -> Grants {
        let open = |path: &str| File::open(path).unwrap().into();
        let files = task.files.iter().map(|grant| (grant.clone(), open(&grant.path))).collect();
        let udf = |name: &String| {
            let grant = UdfGrant { name: name.clone(), timeout_ms: udf_limit(name) };
            (grant, self.instance(name).into())
        };
        let outputs = self.outputs.lock().unwrap();
        let input = |task: &u32| {
            let path = format!("/proc/self/fd/{}", outputs[task].as_raw_fd());
            (*task, File::open(path).unwrap().into())
        };
        let in_files = task.reads.iter().filter(|read| read.objects.is_none());
        let read: BTreeSet<u32> = in_files.map(|read| read.task).collect();
        Grants {
            files,
            udfs: task.udfs.iter().map(udf).collect(),
            inputs: read.iter().map(input).collect(),
            output: output.map(|file| file.try_clone().unwrap().into()),
            scratch: task.scratch.then(|| tempfile::tempfile().unwrap().into()),
            streams: task.gang.map_or_else(Vec::new, |gang| self.gangs.take(gang, task.task)),
            ..Grants::default()
        }
    }
}

#[async_trait]
impl TaskRunner for InProcess {
    async fn reserve(&self, gang: &GangAsk) -> Option<u64> {
        self.gangs.reserve(gang)
    }

    fn disband(&self, gang: u64) {
        self.gangs.disband(gang);
    }

    async fn run(
        &self,
        task: &PlannedTask,
        attempt: &mut Attempt,
    ) -> Result<TaskResult, TaskError> {
        let _active = Active::new(&self.active);
        self.attempts.fetch_add(1, Ordering::SeqCst);
        *self.tried.lock().unwrap().entry(task.task).or_default() += 1;
        self.asked.lock().unwrap().entry(task.task).or_insert_with(|| task.clone());
        let given = task.reads.iter().flat_map(|read| &read.partitions).map(|part| part.rows);
        self.rows_given.lock().unwrap().insert(task.task, given.sum());
        if attempt.number() == 0 {
            self.release(self.vanish.get(&task.task).map_or(&[], Vec::as_slice));
        }
        self.check_inputs(task)?;
        let lost = || TaskError::lost(ErrorReport::new(Code::WORKER_LOST, "killed by the test"));
        let lose = attempt.number() < self.lose;
        if lose && !self.lose_late {
            return Err(lost());
        }
        if let Some((which, times)) = self.out_of_memory
            && which(task)
            && attempt.number() < times
        {
            let message = "a worker ran out of memory: limit 1 GiB, peak 1 GiB";
            return Err(TaskError::failed(ErrorReport::new(Code::WORKER_MEMORY, message)));
        }
        let memory = if self.memory_bytes == 0 { 1 << 30 } else { self.memory_bytes };
        let header =
            task.request(0, attempt.number()).header("q-test", memory, self.threads.max(1));
        let output = task.output.then(|| tempfile::tempfile().unwrap());
        let grants = self.grants(task, output.as_ref());
        let handed = hand_over(self.worker(), grants, task.plan.clone(), &header).await;
        let socket = handed.map_err(|error| RequestFailure::of_worker(task.task, error))?;
        let killed = self.gangs.killed(task);
        let done = tokio::select! {
            done = follow(socket, task.task, attempt) => done?,
            // The connection is dropped, which ends the worker.
            () = killed => return Err(lost()),
        };
        if let Some(release) = &self.release {
            release.acquire().await.unwrap().forget();
        }
        if attempt.number() == 0 && self.freeze.contains(&task.task) {
            std::future::pending::<()>().await;
        }
        // The worker is lost after its results were posted: none of them may count.
        if lose {
            return Err(lost());
        }
        if let Some(output) = output {
            // It replaces that of an earlier attempt, which the driver cancelled when it was done.
            if !self.forget {
                self.outputs.lock().unwrap().insert(task.task, output);
            }
        }
        Ok(TaskResult { done, ..TaskResult::default() })
    }

    fn release(&self, tasks: &[u32]) {
        let mut outputs = self.outputs.lock().unwrap();
        tasks.iter().for_each(|task| _ = outputs.remove(task));
    }

    async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport> {
        Ok(UdfConnection { socket: self.instance(udf), timeout: Duration::from_secs(5) })
    }
}

fn udf_limit(name: &str) -> u64 {
    if name == "sleeps_briefly" { 200 } else { 600_000 }
}

/// Records the events of a running query.
#[derive(Default)]
pub struct RecordingReporter {
    pub notes: Mutex<Vec<String>>,
    pub last: Mutex<RunProgress>,
}

impl Reporter for RecordingReporter {
    fn progress(&self, progress: RunProgress) {
        *self.last.lock().unwrap() = progress;
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}

fn host_files(folder: &Path) -> Arc<dyn LocalFiles> {
    Arc::new(HostFiles { folder: folder.to_owned() })
}

/// A query over the generated tables.
pub fn spec(sql: &str, workers: u32) -> QuerySpec {
    let location = |name: &&str| ((*name).to_owned(), (*name).to_owned());
    QuerySpec {
        query: "q-test".to_owned(),
        sql: sql.to_owned(),
        params: Default::default(),
        pivots: Default::default(),
        csv: Vec::new(),
        tables: data::TABLES.iter().map(location).collect(),
        udfs: udfs::signatures(),
        files: host_files(data::folder()),
        aws: BTreeMap::new(),
        http_sources: Vec::new(),
        workers,
        scan_task_bytes: 0,
        hosts: 1,
        range_sort_bytes: RANGE_SORT_BYTES,
        exchange: ExchangeOptions::default(),
        exchange_folder: "1-q-test".to_owned(),
        accepted: Instant::now(),
        packages: Duration::ZERO,
        cost: CostBasis::default(),
    }
}

/// A query that refers to its tables only by location.
pub fn located(sql: &str, folder: &Path) -> QuerySpec {
    QuerySpec { tables: BTreeMap::new(), files: host_files(folder), ..spec(sql, 2) }
}

/// The report of a query that must fail in planning.
pub async fn refusal(spec: &QuerySpec) -> String {
    match plan(spec).await {
        Ok(planned) => panic!("planned: {}\n{}", spec.sql, planned.worker_plan()),
        Err(error) => error.report().to_string(),
    }
}

/// The report of a query that must fail while it runs.
pub async fn failure(spec: &QuerySpec, runner: InProcess) -> String {
    match answer(spec, Arc::new(runner)).await {
        Ok((batches, _)) => panic!("answered: {}: {} batches", spec.sql, batches.len()),
        Err(error) => error.report().to_string(),
    }
}

/// Plans a query and runs it to the last row.
pub async fn answer(
    spec: &QuerySpec,
    runner: Arc<InProcess>,
) -> snowmelt_query::Result<(Vec<RecordBatch>, Profile)> {
    let asked = spec.clone();
    let reporter: Arc<dyn Reporter> = Arc::new(RecordingReporter::default());
    let options = options(spec);
    let started = tokio::spawn(async move {
        let listed = ListedQuery::find(asked, runner, &reporter, options).await?;
        let planned = listed.plan().await?;
        listed.start(planned, reporter, options).await
    });
    let mut answer = AbortOnDropHandle::new(started).await.unwrap()?;
    let batches = answer.collect().await?;
    Ok((batches, answer.finish()))
}

/// Runs a planned query on a separate task, as a server does.
pub async fn run(
    planned: PlannedQuery,
    spec: &QuerySpec,
    runner: Arc<InProcess>,
    reporter: Arc<RecordingReporter>,
) -> snowmelt_query::Result<QueryAnswer> {
    run_with(planned, options(spec), runner, reporter).await
}

/// As many tasks as workers, although the tables are small. Slow tasks are not raced: on a busy
/// machine any task can be slow, and tests count attempts and requests.
pub fn options(spec: &QuerySpec) -> RunOptions {
    let stragglers = Stragglers { racing: false, ..Stragglers::default() };
    RunOptions {
        workers: spec.workers,
        task_bytes: 1,
        scan_task_bytes: spec.scan_task_bytes,
        stragglers,
        ..RunOptions::default()
    }
}

/// Runs a planned query in another way.
pub async fn run_with(
    planned: PlannedQuery,
    options: RunOptions,
    runner: Arc<InProcess>,
    reporter: Arc<RecordingReporter>,
) -> snowmelt_query::Result<QueryAnswer> {
    let running = AbortOnDropHandle::new(tokio::spawn(QueryAnswer::start(
        planned, runner, reporter, options,
    )));
    running.await.unwrap()
}

/// The batches, the profile and the notes, or the error.
pub async fn recorded(
    planned: PlannedQuery,
    options: RunOptions,
    runner: &Arc<InProcess>,
) -> Result<(Vec<RecordBatch>, Profile, Vec<String>), String> {
    let failed = |error: snowmelt_query::Error| error.report().to_string();
    let reporter = Arc::new(RecordingReporter::default());
    let running = run_with(planned, options, Arc::clone(runner), Arc::clone(&reporter));
    let mut answer = running.await.map_err(failed)?;
    let batches = answer.collect().await.map_err(failed)?;
    let last = *reporter.last.lock().unwrap();
    assert_eq!((last.done, last.running), (last.tasks, 0), "the progress counts each task once");
    let notes = reporter.notes.lock().unwrap().clone();
    Ok((batches, answer.finish(), notes))
}

/// The report of a planned query that must fail at its start or while it runs.
pub async fn run_failure(planned: PlannedQuery, spec: &QuerySpec) -> String {
    let error = match run(planned, spec, Arc::default(), Arc::default()).await {
        Err(error) => error,
        Ok(mut answer) => match answer.collect().await {
            Err(error) => error,
            Ok(batches) => panic!("answered: {}: {} batches", spec.sql, batches.len()),
        },
    };
    error.report().to_string()
}
