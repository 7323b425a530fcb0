//! Runs a task's partitions. DataFusion is behind a trait, because another engine may need less CPU
//! time for the same program, and users pay for CPU time.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionConfig;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use snowmelt_wire::{
    OperatorMetric, OutputPartition, Task, TaskProgress, TaskStreams, UdfConnection, UdfGrant,
    UdfUse,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::damage::{self, Damage};
use super::inbox::Inbox;
use super::metrics::{operators, pruned, rows_read};
use super::outbox::Outbox;
use super::scratch::Scratch;
use super::sink::{Destination, PartitionError, Sink, run_partition};
use super::stores::{exchange_stores, register_stores};
use super::task_plan::{narrow, numbers};
use super::{PeakPool, STACK_BYTES, short_tasks};
use crate::context::{execution_config, execution_context};
use crate::error::fault::{self, FaultContext, MemoryUse};
use crate::exchange::{FileSource, Inputs, OutputSource, Stores, StreamSource, host_sources};
use crate::operators::{
    apply_dynamic_filters, decode_on_second_thread, read_ahead_of_calls, with_faster_operators,
    with_sort_merge_joins,
};
use crate::process::panics;
use crate::read::with_own_readers;
use crate::scan::{Counters, GrantedFiles, Versions, with_own_parquet_reader};
use crate::udf::{self, UdfPool};
use crate::{Error, codec};

/// The divisor of a task's memory, and the most bytes, for what each of its inputs reads ahead from
/// objects: of other tasks' outputs, and of the next row group of a file.
const AHEAD_SHARE: u64 = 16;
const AHEAD_BYTES: u64 = 16 << 20;

/// The divisor of a task's memory that gives what a sort keeps for merging its spilled rows. Keys
/// of several columns need as much again as a quarter of the rows.
const MERGE_SHARE: u64 = 4;

/// The divisor for each of the two sorts of a join, which keep DataFusion's default at most.
const MERGE_SHARE_OF_TWO: u64 = 16;

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

    /// The tasks whose outputs are gone, if that ended the task.
    fn lost_outputs(&self) -> Vec<u32>;

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
    // What it receives.
    streams: Option<Arc<StreamSource>>,
    granted: Arc<GrantedFiles>,
    // By bucket.
    versions: Vec<Arc<Versions>>,
    memory: Arc<PeakPool>,
    scratch: Option<Scratch>,
    udfs: Arc<UdfPool>,
    // Duplicates of the UDFs' connections: shutting them down wakes threads that wait for a result.
    sockets: Vec<UnixStream>,
    cancelled: Notify,
}

impl DataFusionExecutor {
    /// Opens the stores, decodes the plan, connects the UDFs.
    pub(super) fn prepare(inbox: Inbox) -> Result<Self, Box<ErrorReport>> {
        panics::install_hook();
        let Inbox { files, udfs, inputs, hosts, streams, output, scratch, plan, task } = inbox;
        let counters = Arc::new(Counters::default());
        let memory = match task.sort_merge {
            true => PeakPool::shared(task.memory_bytes),
            false => PeakPool::new(task.memory_bytes),
        };
        let scratch = scratch.map(Scratch::new);
        let runtime =
            memory.runtime(scratch.as_ref()).map_err(|error| Error::from(error).report())?;
        let names = files.iter().map(|(grant, _)| grant.path.clone()).collect();
        let granted = GrantedFiles::new(files, Arc::clone(&counters)).map_err(|e| e.report())?;
        let granted = Arc::new(granted.for_memory(task.memory_bytes));
        let (versions, footers) = register_stores(&runtime, &granted, &task, &counters)
            .map_err(|error| error.report())?;
        let files_here = inputs.into_iter().map(|(task, file)| (task, file_source(file)));
        let sources = files_here.chain(hosts.into_iter().flat_map(host_sources)).collect();
        let stores = Arc::new(exchange_stores(&task).map_err(|error| error.report())?);
        let ahead = (task.memory_bytes / AHEAD_SHARE).min(AHEAD_BYTES);
        let (sent, streams) = sent_and_received(&task, streams);
        let inputs =
            Inputs::new(&task.reads, &sources, &stores, ahead).map_err(|error| error.report())?;
        let inputs = inputs.with_streams(streams.clone());
        let config = config_of(&task).with_extension(Arc::new(inputs));
        let context = execution_context(config, runtime);
        let memory_pool = Arc::clone(&context.runtime_env().memory_pool);
        let pool = UdfPool::keeping(memory_pool, task.memory_bytes);
        let wrong = |error: &DataFusionError| fault::report(error, &FaultContext::driver());
        let decoded = codec::decode(&plan, &context, Arc::clone(&pool)).map_err(|e| wrong(&e))?;
        let sockets = connect(udfs, &decoded, &pool)?;
        let (sink, whole) = Sink::of(output, sent, decoded, &task, &stores)?;
        check_partitions(&task, &whole)?;
        let plan = narrow(&whole, &task.partitions).map_err(|error| error.report())?;
        let threads = short_tasks::threads(&task, &plan, !sockets.is_empty());
        let task = Task { threads, ..task };
        let joins = |plan| if task.sort_merge { with_sort_merge_joins(plan) } else { Ok(plan) };
        let plan = with_own_readers(plan)
            .and_then(joins)
            .and_then(|plan| with_own_parquet_reader(plan, &context.runtime_env(), &footers, ahead))
            .and_then(apply_dynamic_filters)
            .and_then(with_faster_operators)
            .and_then(read_ahead_of_calls)
            .and_then(|plan| decode_on_second_thread(plan, task.threads))
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
            streams,
            granted,
            versions,
            memory,
            scratch,
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
            let plan = Arc::clone(&self.plan);
            let context = Arc::clone(&self.context);
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
        let memory = Some(MemoryUse {
            limit: ByteSize(self.memory.limit()),
            peak: ByteSize(self.memory.peak()),
            operator: self.memory.exhausted_by(),
        });
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
        let sum = |of: fn(&UdfUse) -> u64| used.iter().map(of).sum();
        let (store_reads, _) = self.counters.of_store();
        self.stores.counted(TaskProgress {
            rows_read: rows_read(&self.plan),
            bytes_read,
            requests,
            store_reads,
            scans: self.counters.of_scans(),
            pruned: pruned(&self.plan),
            spilled_bytes: self.scratch.as_ref().map_or(0, Scratch::written),
            udf_rows: sum(|udf| udf.rows),
            udf_rows_saved: sum(|udf| udf.saved),
            udf_nanos: sum(|udf| udf.nanos),
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

    fn lost_outputs(&self) -> Vec<u32> {
        let streams = self.streams.as_ref().map(|streams| streams.lost());
        [self.stores.lost(), streams.unwrap_or_default()].concat()
    }

    fn output(&self) -> (u64, Vec<OutputPartition>) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.sink.as_ref().map_or(0, |sink| sink.writer.rows()), written)
    }
}

/// The streams of a task that sends, or of a task that receives.
fn sent_and_received(
    task: &Task,
    streams: Vec<(u32, UnixStream)>,
) -> (Vec<(u32, UnixStream)>, Option<Arc<StreamSource>>) {
    match &task.streams {
        Some(TaskStreams::Receive { stage }) => {
            (Vec::new(), Some(Arc::new(StreamSource::new(*stage, streams))))
        }
        Some(TaskStreams::Send(_)) | None => (streams, None),
    }
}

fn config_of(task: &Task) -> SessionConfig {
    let mut config = execution_config(1, task.batch_rows as usize);
    // What a sort needs to merge what it has spilled.
    let spilling = &mut config.options_mut().execution.sort_spill_reservation_bytes;
    *spilling = match task.sort_merge {
        true => (*spilling).min((task.memory_bytes / MERGE_SHARE_OF_TWO) as usize),
        false => (task.memory_bytes / MERGE_SHARE) as usize,
    };
    config
}

fn file_source(file: File) -> Arc<dyn OutputSource> {
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
        udf::connect(pool, signature, UdfConnection { socket, timeout })
            .map_err(|error| error.report())?;
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
