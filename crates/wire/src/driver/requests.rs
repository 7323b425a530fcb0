//! The protocol between the driver of a query, which runs in a sandbox, and the platform.
//!
//! The platform sends one [`Drive`] with two descriptors: the socket for the answer and a file for
//! results that do not fit into memory. Then the driver sends [`DriverRequest`]s and the platform
//! one [`Reply`] for each, in any order; descriptors travel with the replies. The id 0 asks for
//! none.
//!
//! Invariant: whatever the driver names in its requests, it gets only files of the query's
//! locations, the query's functions, its tasks and their outputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport, Report};

use super::parameters::Parameters;
use super::prices::PriceFile;
use crate::tasks::{ExchangeOptions, GangAsk, HttpSource, KeptFooter, ObjectOutput, TaskStreams};
use crate::{CsvOption, Error, FileGrant, LocalFile, S3Access, Signature, Task, TaskRead};

/// The maximum size of a request and of a plan of a driver: a task that lists 100,000 files fits.
pub const MAX_REQUEST_BYTES: u32 = 64 << 20;

/// The maximum number of plans of one query: parts of it that run on workers.
pub const MAX_PLANS: usize = 1024;

/// The maximum number of attempts of one task beside the first one and retries after lost workers.
pub const MAX_FURTHER_ATTEMPTS: u32 = 16;

/// The maximum size of a frame of an answer that the platform passes on.
pub const MAX_ANSWER_BYTES: u32 = 64 << 20;

/// A query for the driver to plan and run.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Drive {
    /// The id of the query.
    pub query: String,
    /// The text of one statement.
    pub sql: String,
    /// Values of the statement's parameters.
    pub params: Parameters,
    /// The location of each table, by name.
    pub tables: BTreeMap<String, String>,
    /// Options for all CSV files of the query.
    pub csv: Vec<CsvOption>,
    /// Functions that the SQL may call in addition to the built-in ones.
    pub udfs: Vec<Signature>,
    /// The client's `AWS_*` variables, for `s3://` locations.
    pub aws: BTreeMap<String, String>,
    /// The HTTP servers whose files the query may read. The node sets them, from its operator's
    /// list.
    #[serde(default)]
    pub http_sources: Vec<HttpSource>,
    /// The number of workers, and so of partitions of each scan. At least 1.
    pub workers: u32,
    /// The number of bytes of files that are worth a task.
    pub scan_task_bytes: u64,
    /// The number of threads that run the driver's part of the plan.
    pub threads: u32,
    /// The memory that the operators of the driver's part may reserve, in bytes.
    pub memory_bytes: u64,
    /// The number of times that a task is retried after its worker was lost.
    pub retries: u32,
    /// The way in which the stages of the query exchange rows.
    pub exchange: ExchangeOptions,
    /// The query's folder in the locations of its exchange.
    pub exchange_folder: String,
    /// The memory limit of each worker in bytes, from which its cost is computed.
    #[serde(default)]
    pub worker_memory: u64,
    /// Memory limit of the driver in bytes.
    #[serde(default)]
    pub driver_memory: u64,
    /// The user's prices; the shipped ones if absent.
    #[serde(default)]
    pub prices: Option<PriceFile>,
    /// The time since the query was accepted, in microseconds.
    pub elapsed_us: u64,
    /// The part of `elapsed_us` that was spent on packages and signatures of functions, in
    /// microseconds.
    pub packages_us: u64,
    /// The number of hosts on which the query's tasks may run.
    #[serde(default = "one")]
    pub hosts: u32,
}

fn one() -> u32 {
    1
}

impl std::fmt::Debug for Drive {
    // The values of `aws` are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drive").field("query", &self.query).field("sql", &self.sql).finish()
    }
}

/// A request of the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverRequest {
    /// The id for the reply; 0 if none is expected.
    pub id: u64,
    /// The operation.
    pub ask: DriverOperation,
}

/// The operations that a driver may request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverOperation {
    /// Lists the files of a local location. Reply: [`Answered::Listed`].
    List {
        /// A file, a folder or a glob, as the user wrote it.
        location: String,
    },
    /// Opens files that were listed, for reading. Reply: [`Answered::Opened`] with a descriptor
    /// for each.
    Open {
        /// The paths, at most [`MAX_DESCRIPTORS`](crate::MAX_DESCRIPTORS).
        paths: Vec<String>,
    },
    /// Requests the footers of these files that earlier queries of the same tenant and credentials
    /// have kept. Reply: [`Answered::Footers`].
    RecallFooters {
        /// The files, at most [`MAX_FOOTERS`](crate::MAX_FOOTERS), each with its version.
        files: Vec<String>,
    },
    /// Keeps footers for later queries of the same tenant and credentials. No reply.
    KeepFooters {
        /// The footers, at most [`MAX_FOOTERS`](crate::MAX_FOOTERS).
        footers: Vec<KeptFooter>,
    },
    /// Announces the functions that the tasks will call, once for each task that calls it. No
    /// reply.
    Expect {
        /// The names of the functions.
        udfs: Vec<String>,
    },
    /// Reserves room for all tasks of a gang at once, and connects them. Reply:
    /// [`Answered::Reserved`].
    Reserve(GangAsk),
    /// Ends the gang of this number: the room that its tasks did not use is free. No reply.
    Disband(u64),
    /// Starts an attempt of a task. Reply: [`Answered::Started`] with the connection to its worker,
    /// over which the plan and the grants were sent already.
    Run(TaskAsk),
    /// Ends an attempt. Reply: [`Answered::Ended`], or [`Answered::Failed`] with the reason.
    Ended {
        /// The number from [`Answered::Started`].
        started: u64,
        /// The reason why the attempt has no result; `None` if it has one.
        failure: Option<RequestFailure>,
    },
    /// Releases the outputs of these tasks, which are not read any more. No reply.
    Release {
        /// The tasks.
        tasks: Vec<u32>,
    },
    /// Requests an instance of a function for the driver itself. Reply: [`Answered::Connected`]
    /// with its connection.
    Connect {
        /// The function's name.
        udf: String,
    },
    /// Reports that the query is planned; its tasks are requested next. No reply.
    Planned,
    /// Reports the progress of the query. No reply.
    Progress(RunProgress),
    /// Reports that all tasks are done. No reply.
    Merging,
    /// Passes a note to the user. No reply.
    Note {
        /// The text of the note, one line.
        text: String,
    },
}

/// An attempt of a task, as the driver requests it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskAsk {
    /// The task's index in the query, from 0.
    pub task: u32,
    /// The number of earlier attempts.
    pub attempt: u32,
    /// The partitions of the plan that the task runs.
    pub partitions: Vec<u32>,
    /// The index, from 0, of one of the plans that were sent as [`Kind::Plan`](crate::Kind::Plan).
    pub plan: u32,
    /// The local files that the task reads.
    pub files: Vec<FileGrant>,
    /// The names of the functions that the task calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that the task reads.
    pub s3: BTreeMap<String, S3Access>,
    /// The number of rows in a batch.
    pub batch_rows: u32,
    /// The partitions that the task reads from outputs of tasks that have ended well.
    #[serde(default)]
    pub reads: Vec<TaskRead>,
    /// True if the task writes its batches to a file, which the platform keeps for the tasks that
    /// read it.
    #[serde(default)]
    pub output: bool,
    /// True for an attempt beside another one of the same task: it is refused as lost if there is
    /// no room for it at once.
    #[serde(default)]
    pub twin: bool,
    /// The objects that the task writes its batches to, instead of a file. `None` if it writes
    /// none.
    #[serde(default)]
    pub objects: Option<ObjectOutput>,
    /// True if the task is granted a file for what does not fit into its memory.
    #[serde(default)]
    pub scratch: bool,
    /// True if the task joins by sorting.
    #[serde(default)]
    pub sort_merge: bool,
    /// The number of times that the memory which the task's operators may reserve is halved.
    #[serde(default)]
    pub memory_halvings: u32,
    /// The use of the task's streams, if it is one of a gang.
    #[serde(default)]
    pub streams: Option<TaskStreams>,
    /// The number of the task's gang, in whose room it starts. `None` without a gang.
    #[serde(default)]
    pub gang: Option<u64>,
}

impl TaskAsk {
    /// Returns the header that is sent to the task's worker. Its operators may usually reserve
    /// `memory_bytes`, less than the sandbox's limit; `threads` run the plan.
    pub fn header(&self, query: &str, memory_bytes: u64, threads: u32) -> Task {
        Task {
            query: query.to_owned(),
            task: self.task,
            attempt: self.attempt,
            partitions: self.partitions.clone(),
            memory_bytes: memory_bytes.checked_shr(self.memory_halvings).unwrap_or_default(),
            threads,
            batch_rows: self.batch_rows,
            s3: self.s3.clone(),
            reads: self.reads.clone(),
            output: self.output,
            objects: self.objects.clone(),
            sort_merge: self.sort_merge,
            streams: self.streams.clone(),
        }
    }
}

/// A reply to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The request's id.
    pub id: u64,
    /// The result.
    pub answered: Answered,
}

/// The result of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// The files of a location, in the order of their names.
    Listed {
        /// The files of the location: at least one.
        files: Vec<LocalFile>,
    },
    /// The files are open; their descriptors are attached, in order.
    Opened,
    /// The footers that were kept.
    Footers {
        /// The footers in the order of the requested files; without bytes where none was kept.
        footers: Vec<KeptFooter>,
    },
    /// The number of a gang; `None` if there is no room for all of its tasks now.
    Reserved(Option<u64>),
    /// The task runs.
    Started {
        /// The number by which the end of the attempt is reported.
        started: u64,
    },
    /// The resource use of the sandboxes of a successful attempt.
    Ended {
        /// The use of the task's worker.
        worker: SandboxUse,
        /// The use of the instances of the task's functions, in the order of [`TaskAsk::udfs`].
        udfs: Vec<SandboxUse>,
    },
    /// The function is ready; its connection is attached.
    Connected {
        /// The time limit for one batch in milliseconds; 0 means no limit.
        timeout_ms: u64,
    },
    /// The request has no result.
    Failed(RequestFailure),
}

/// The reason why a request has no result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestFailure {
    /// True if another attempt may succeed.
    pub lost: bool,
    /// The tasks whose outputs the attempt reads and that are gone: another attempt can succeed
    /// only once they were made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<u32>,
    /// The error for the user.
    pub report: Box<ErrorReport>,
}

impl RequestFailure {
    /// Makes a failure that would recur.
    pub fn of(report: ErrorReport) -> Self {
        Self { lost: false, outputs: Vec::new(), report: Box::new(report) }
    }

    /// Makes a failure by the loss of a sandbox: another attempt may succeed.
    pub fn lost(report: ErrorReport) -> Self {
        Self { lost: true, outputs: Vec::new(), report: Box::new(report) }
    }

    /// Makes a failure by the loss of outputs of these tasks, which an attempt needs to read.
    pub fn lost_outputs(tasks: Vec<u32>, report: ErrorReport) -> Self {
        Self { lost: true, outputs: tasks, report: Box::new(report) }
    }

    /// Makes a failure of the connection to a worker: an ended connection is a lost worker, and a
    /// violation of the protocol would recur.
    pub fn of_worker(task: u32, error: Error) -> Self {
        match error {
            Error::Closed | Error::Io(_) => {
                let message = format!("the worker of task {task} was lost: {error}");
                Self::lost(ErrorReport::new(Code::WORKER_LOST, message))
            }
            other => Self::of(other.report()),
        }
    }
}

/// The use of a sandbox by a task. Times are microseconds since the query was accepted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxUse {
    /// The name of the sandbox, for example `worker 3` or `score 3`.
    pub name: String,
    /// The host of the sandbox; `None` if the query has one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// True if the sandbox was started for this query.
    pub cold: bool,
    /// The time at which the sandbox was requested.
    pub asked_us: u64,
    /// The time at which the sandbox was ready.
    pub ready_us: u64,
    /// The time at which the task began: all other sandboxes of the task were ready then.
    pub began_us: u64,
    /// The time at which the task was done.
    pub done_us: u64,
    /// The peak memory use in bytes.
    pub peak_memory: Option<u64>,
    /// The memory limit of the sandbox in bytes.
    #[serde(default)]
    pub memory_limit: u64,
    /// The processor time of an instance of a function during the task in microseconds; 0 for a
    /// worker, which reports its own.
    pub cpu_us: u64,
    /// The time for which the set-up functions of an instance ran, in microseconds, as a part of
    /// its time until `ready_us`; 0 if they ran before.
    #[serde(default)]
    pub setup_us: u64,
}

/// The total progress of all tasks of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// The number of tasks.
    pub tasks: u32,
    /// The number of tasks that were started and are not done.
    pub running: u32,
    /// The number of tasks that are done.
    pub done: u32,
    /// The number of rows read.
    pub rows: u64,
    /// The number of bytes read from storage.
    pub bytes: u64,
    /// An upper bound of `bytes`.
    pub bytes_total: u64,
    /// The number of rows passed to functions.
    pub udf_rows: u64,
}
