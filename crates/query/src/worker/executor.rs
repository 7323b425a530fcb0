//! Runs a task's partitions. DataFusion is behind a trait, because another engine may need less CPU
//! time for the same program, and users pay for CPU time.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use snowmelt_wire::{
    OperatorMetric, OutputPartition, Task, TaskProgress, UdfConnection, UdfGrant, UdfUse,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use url::Url;

use super::damage::{self, Damage};
use super::inbox::Inbox;
use super::metrics::{operators, pruned_and_spilled, rows_read};
use super::narrow::{narrow, numbers};
use super::outbox::Outbox;
use super::sink::{Destination, PartitionError, Sink, run_partition};
use super::{PeakPool, STACK_BYTES, panics};
use crate::exchange::{FileSource, Inputs, Source, Stores, host_sources};
use crate::faster::{apply_dynamic_filters, read_ahead_of_calls, with_faster_operators};
use crate::fault::{self, FaultContext};
use crate::plan::{execution_config, function_registry};
use crate::read::with_own_readers;
use crate::scan::{Counters, CountingStore, GrantedFiles, Versions, open_bucket};
use crate::udf::{self, UdfPool};
use crate::{Error, codec};

/// The share of a task's memory, and the most, that each of its inputs reads ahead from objects.
const AHEAD_SHARE: u64 = 16;
const AHEAD_BYTES: u64 = 16 << 20;

/// A prepared task. All methods but `run` may be called from other threads while it runs.
pub(super) trait Executor: Send + Sync {
    /// Runs the task's partitions and posts their batches. Blocks until all are posted.
    fn run(&self, outbox: &Arc<Outbox>) -> Result<(), Box<ErrorReport>>;

    /// Makes `run` return soon, with an error.
    fn cancel(&self);

    /// The progress of the task.
    fn progress(&self) -> TaskProgress;

    /// The metrics of the program's operators.
    fn operators(&self) -> Vec<OperatorMetric>;

    /// The calls, by UDF.
    fn udfs(&self) -> Vec<UdfUse>;

    /// The peak of the bytes that operators reserved.
    fn peak_reserved(&self) -> u64;

    /// The rows and the index of the output, once it is complete.
    fn output(&self) -> (u64, Vec<OutputPartition>);
}

/// Runs the program with DataFusion.
pub(super) struct DataFusionExecutor {
    // As decoded, for the files of a damaged page.
    whole: Arc<dyn ExecutionPlan>,
    // With the task's partitions only.
    plan: Arc<dyn ExecutionPlan>,
    sink: Option<Arc<Sink>>,
    written: Mutex<Vec<OutputPartition>>,
    context: Arc<TaskContext>,
    task: Task,
    files: Vec<String>,
    counters: Arc<Counters>,
    // Of its exchanges.
    stores: Arc<Stores>,
    granted: Arc<GrantedFiles>,
    // By bucket.
    versions: Vec<Arc<Versions>>,
    memory: Arc<PeakPool>,
    udfs: Arc<UdfPool>,
    // Duplicates of the UDFs' connections: shutting them down wakes threads that wait for a result.
    sockets: Vec<UnixStream>,
    cancelled: Notify,
}

impl DataFusionExecutor {
    /// Opens the stores, decodes the plan, connects the UDFs.
    pub(super) fn prepare(inbox: Inbox) -> Result<Self, Box<ErrorReport>> {
        panics::install_hook();
        let Inbox { files, udfs, inputs, hosts, output, plan, task } = inbox;
        let counters = Arc::new(Counters::default());
        let memory = PeakPool::new(task.memory_bytes);
        let runtime = memory.runtime().map_err(|error| Error::from(error).report())?;
        let names = files.iter().map(|(grant, _)| grant.path.clone()).collect();
        let granted = GrantedFiles::new(files, Arc::clone(&counters)).map_err(|e| e.report())?;
        let granted = Arc::new(granted);
        let versions = register_stores(&runtime, &granted, &task, &counters)
            .map_err(|error| error.report())?;
        let files_here = inputs.into_iter().map(|(task, file)| (task, file_source(file)));
        let sources = files_here.chain(hosts.into_iter().flat_map(host_sources)).collect();
        let stores = Arc::new(exchange_stores(&task).map_err(|error| error.report())?);
        let ahead = (task.memory_bytes / AHEAD_SHARE).min(AHEAD_BYTES);
        let inputs =
            Inputs::new(&task.reads, &sources, &stores, ahead).map_err(|error| error.report())?;
        let config = execution_config(1, task.batch_rows as usize).with_extension(Arc::new(inputs));
        let context = TaskContext::from(function_registry())
            .with_session_config(config)
            .with_runtime(runtime);
        let pool = UdfPool::empty();
        let wrong = |error: &DataFusionError| fault::report(error, &FaultContext::driver());
        let decoded = codec::decode(&plan, &context, Arc::clone(&pool)).map_err(|e| wrong(&e))?;
        let sockets = connect(udfs, &decoded, &pool)?;
        let (sink, whole) = Sink::of(output, decoded, &task, &stores)?;
        check_partitions(&task, &whole)?;
        let plan = narrow(&whole, &task.partitions).map_err(|error| error.report())?;
        let plan = with_own_readers(plan)
            .and_then(apply_dynamic_filters)
            .and_then(with_faster_operators)
            .and_then(read_ahead_of_calls)
            .map_err(|error| wrong(&error))?;
        Ok(Self {
            whole,
            plan,
            sink: sink.map(Arc::new),
            written: Mutex::default(),
            context: Arc::new(context),
            task,
            files: names,
            counters,
            stores,
            granted,
            versions,
            memory,
            udfs: pool,
            sockets,
            cancelled: Notify::new(),
        })
    }

    fn runtime(&self) -> Result<Runtime, Box<ErrorReport>> {
        // With one CPU a single thread runs the plan, without handovers between threads. A thread
        // that waits for a UDF lets another one read.
        let mut builder = match self.task.threads.max(1) {
            1 if self.sockets.is_empty() => Builder::new_current_thread(),
            threads => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(threads as usize).thread_stack_size(STACK_BYTES);
                builder
            }
        };
        builder.enable_all().build().map_err(|error| {
            let message = format!("a worker has no threads: {error}");
            ErrorReport::new(Code::SANDBOX_START, message).into()
        })
    }

    async fn run_all(&self, outbox: &Arc<Outbox>) -> Result<(), Box<ErrorReport>> {
        let numbers = numbers(&self.plan, &self.task.partitions);
        let runs = numbers.into_iter().enumerate().map(|(index, partition)| {
            let to = match &self.sink {
                Some(sink) => Destination::Output(Arc::clone(sink)),
                None => Destination::Driver(Arc::clone(outbox)),
            };
            let (plan, context) = (Arc::clone(&self.plan), Arc::clone(&self.context));
            let run = run_partition(plan, context, index, partition, to);
            async move { SpawnedTask::spawn(run).await }
        });
        // At the same time: a join waits until each of its partitions has read its input.
        let mut runs: FuturesUnordered<_> = runs.collect();
        while let Some(ended) = runs.next().await {
            match ended {
                Ok(Ok(())) => (),
                Ok(Err(PartitionError { partition, error })) => {
                    return Err(self.explain(partition, &error).await.into());
                }
                Err(panicked) => {
                    return Err(self.explain_panic(&panicked.to_string()).await.into());
                }
            }
        }
        let Some(sink) = &self.sink else { return Ok(()) };
        let written = sink.writer.finish().await.map_err(|error| error.report())?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written;
        Ok(())
    }

    /// A changed file or object, which explains every other failure.
    fn changed(&self) -> Option<ErrorReport> {
        let object = self.versions.iter().find_map(|versions| versions.report());
        object.or_else(|| self.granted.changed())
    }

    async fn explain_panic(&self, panicked: &str) -> ErrorReport {
        if let Some(changed) = self.changed() {
            return changed;
        }
        if panics::was_in_reader() {
            if let Some(damaged) = self.damaged(&self.task.partitions).await {
                return damaged;
            }
            let context = FaultContext { files: self.files.clone(), memory: None };
            return fault::corrupt("its pages are damaged", &context);
        }
        ErrorReport::new(Code::INTERNAL, format!("a worker panicked: {panicked}"))
    }

    /// The damaged page in the files of some partitions, which the reader's error does not name.
    async fn damaged(&self, partitions: &[u32]) -> Option<ErrorReport> {
        let found = damage::find(&self.whole, partitions, &self.context).await;
        found.map(|Damage { file, why }| fault::corrupt_at(&file, &why))
    }

    async fn explain(&self, partition: u32, error: &DataFusionError) -> ErrorReport {
        if let Some(changed) = self.changed() {
            return changed;
        }
        let memory = Some((ByteSize(self.memory.limit()), ByteSize(self.memory.peak())));
        let mut report = fault::report(error, &FaultContext { files: self.files.clone(), memory });
        if report.known_code() == Code::FILE_CORRUPT
            && let Some(damaged) = self.damaged(&self.task.partitions).await
        {
            return damaged;
        }
        // The instance only knows the row in its batch; the partition is known here.
        report.input = report
            .input
            .map(|input| input.replace("(row ", &format!("(partition {partition}, row ")));
        report
    }
}

impl Executor for DataFusionExecutor {
    fn run(&self, outbox: &Arc<Outbox>) -> Result<(), Box<ErrorReport>> {
        let runtime = self.runtime()?;
        let result = runtime.block_on(async {
            tokio::select! {
                result = self.run_all(outbox) => result.and_then(|()| match self.changed() {
                    Some(changed) => Err(changed.into()),
                    None => Ok(()),
                }),
                () = self.cancelled.notified() => {
                    Err(ErrorReport::new(Code::CANCELLED, "the task was cancelled").into())
                }
            }
        });
        runtime.shutdown_background();
        result
    }

    fn cancel(&self) {
        self.cancelled.notify_one();
        for socket in &self.sockets {
            _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn progress(&self) -> TaskProgress {
        let (bytes_read, requests) = self.counters.read();
        let used = self.udfs.used();
        let udf_rows = used.iter().map(|udf| udf.rows).sum();
        let udf_nanos = used.iter().map(|udf| udf.nanos).sum();
        let (store_reads, _) = self.counters.of_store();
        let (pruned, spilled_bytes) = pruned_and_spilled(&self.plan);
        self.stores.counted(TaskProgress {
            rows_read: rows_read(&self.plan),
            bytes_read,
            requests,
            store_reads,
            pruned,
            spilled_bytes,
            udf_rows,
            udf_nanos,
            ..TaskProgress::default()
        })
    }

    fn operators(&self) -> Vec<OperatorMetric> {
        operators(&self.plan, self.udfs.used())
    }

    fn udfs(&self) -> Vec<UdfUse> {
        self.udfs.used()
    }

    fn peak_reserved(&self) -> u64 {
        self.memory.peak()
    }

    fn output(&self) -> (u64, Vec<OutputPartition>) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.sink.as_ref().map_or(0, |sink| sink.writer.rows()), written)
    }
}

fn register_stores(
    runtime: &RuntimeEnv,
    granted: &Arc<GrantedFiles>,
    task: &Task,
    counters: &Arc<Counters>,
) -> Result<Vec<Arc<Versions>>, Error> {
    let url = |text: &str| {
        Url::parse(text).map_err(|error| snowmelt_files::Error::invalid(text, error.to_string()))
    };
    runtime.register_object_store(&url("file:///")?, Arc::clone(granted) as _);
    let mut all = Vec::with_capacity(task.s3.len());
    for (bucket, access) in &task.s3 {
        let location = format!("s3://{bucket}");
        let anonymous = !access.settings.contains_key("AWS_ACCESS_KEY_ID");
        let store = open_bucket(bucket, access).map_err(|source| Error::Storage {
            location: location.clone(),
            source,
            anonymous,
        })?;
        let versions = Arc::new(Versions::new(bucket, &access.versions));
        let store = CountingStore::new(store, Arc::clone(counters), Arc::clone(&versions));
        runtime.register_object_store(&url(&location)?, Arc::new(store));
        all.push(versions);
    }
    Ok(all)
}

/// The buckets that a task reads other tasks' objects from, and writes its own to.
fn exchange_stores(task: &Task) -> Result<Stores, Error> {
    let read = task.reads.iter().filter_map(|read| read.objects.as_ref());
    Stores::open(read.chain(task.objects.iter().map(|output| &output.at)), &task.s3)
}

fn file_source(file: File) -> Arc<dyn Source> {
    Arc::new(FileSource::new(file))
}

fn connect(
    granted: Vec<(UdfGrant, UnixStream)>,
    plan: &Arc<dyn ExecutionPlan>,
    pool: &UdfPool,
) -> Result<Vec<UnixStream>, Box<ErrorReport>> {
    let wanted = udf::signatures_in(plan).map_err(|error| error.report())?;
    let mut sockets = Vec::with_capacity(granted.len());
    for (grant, socket) in granted {
        let Some(signature) = wanted.get(&grant.name) else { continue };
        sockets.extend(socket.try_clone());
        let timeout = Duration::from_millis(grant.timeout_ms);
        let client = udf::open(signature, UdfConnection { socket, timeout });
        pool.insert(&grant.name, client.map_err(|error| error.report())?);
    }
    Ok(sockets)
}

fn check_partitions(task: &Task, plan: &Arc<dyn ExecutionPlan>) -> Result<(), Box<ErrorReport>> {
    let partitions = plan.output_partitioning().partition_count();
    match task.partitions.iter().find(|partition| **partition as usize >= partitions) {
        None => Ok(()),
        Some(unknown) => {
            let message =
                format!("the plan has {partitions} partitions, but not partition {unknown}");
            Err(ErrorReport::new(Code::PROTOCOL, message).into())
        }
    }
}
