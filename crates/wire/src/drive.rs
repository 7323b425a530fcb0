//! The protocol between the driver of a query, which runs in a sandbox, and the platform.
//!
//! The platform sends one [`Drive`] with two descriptors: the socket for the answer and a file for
//! results that do not fit into memory. Then the driver sends [`Request`]s and the platform one
//! [`Reply`] for each, in any order; descriptors travel with the replies. The id 0 asks for none.
//!
//! Invariant: whatever the driver names in its requests, it gets only files of the query's
//! locations, the query's functions, its tasks and their outputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport, Report};

use crate::exchange::{ExchangeOptions, ObjectOutput};
use crate::footer::KeptFooter;
use crate::gang::GangAsk;
use crate::http_source::HttpSource;
use crate::parameters::Parameters;
use crate::prices::PriceFile;
use crate::streams::TaskStreams;
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
    /// Its id.
    pub query: String,
    /// One statement.
    pub sql: String,
    /// Values of the statement's parameters.
    pub params: Parameters,
    /// Table name to location.
    pub tables: BTreeMap<String, String>,
    /// Options for all its CSV files.
    pub csv: Vec<CsvOption>,
    /// Functions that the SQL may call in addition to the built-in ones.
    pub udfs: Vec<Signature>,
    /// `AWS_*` variables, for `s3://` locations.
    pub aws: BTreeMap<String, String>,
    /// The servers of HTTP whose files it may read. The node sets them, from its operator's list.
    #[serde(default)]
    pub http_sources: Vec<HttpSource>,
    /// Workers: partitions of each scan. At least 1.
    pub workers: u32,
    /// Bytes of files that are worth a task.
    pub scan_task_bytes: u64,
    /// Threads that run the driver's part of the plan.
    pub threads: u32,
    /// Bytes that the operators of the driver's part may reserve.
    pub memory_bytes: u64,
    /// How many times a task is retried after its worker was lost.
    pub retries: u32,
    /// How its stages exchange rows.
    pub exchange: ExchangeOptions,
    /// The query's folder in the locations of its exchange.
    pub exchange_folder: String,
    /// Memory limit of each worker in bytes: its cost is that of its limit.
    #[serde(default)]
    pub worker_memory: u64,
    /// Memory limit of the driver in bytes.
    #[serde(default)]
    pub driver_memory: u64,
    /// The user's prices; the shipped ones if absent.
    #[serde(default)]
    pub prices: Option<PriceFile>,
    /// Microseconds since the query was accepted.
    pub elapsed_us: u64,
    /// The part of them that was spent on packages and signatures of its functions.
    pub packages_us: u64,
    /// The hosts on which its tasks may run.
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
pub struct Request {
    /// The id of the reply; 0 if none is expected.
    pub id: u64,
    /// The operation.
    pub ask: Ask,
}

/// The operations that a driver may request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The files of a local location. Reply: [`Answered::Listed`].
    List {
        /// A file, a folder or a glob, as the user wrote it.
        location: String,
    },
    /// Opens files that were listed, for reading. Reply: [`Answered::Opened`] with a descriptor
    /// for each.
    Open {
        /// At most [`MAX_DESCRIPTORS`](crate::MAX_DESCRIPTORS) paths.
        paths: Vec<String>,
    },
    /// The footers of these files that earlier queries of the same tenant and credentials have kept.
    /// Reply: [`Answered::Footers`].
    RecallFooters {
        /// At most [`MAX_FOOTERS`](crate::MAX_FOOTERS) files, each with its version.
        files: Vec<String>,
    },
    /// Keeps footers for later queries of the same tenant and credentials. No reply.
    KeepFooters {
        /// At most [`MAX_FOOTERS`](crate::MAX_FOOTERS).
        footers: Vec<KeptFooter>,
    },
    /// Announces the functions that the tasks will call, once for each task that calls it. No
    /// reply.
    Expect {
        /// Their names.
        udfs: Vec<String>,
    },
    /// Reserves room for all tasks of a gang at once, and connects them. Reply:
    /// [`Answered::Reserved`].
    Reserve(GangAsk),
    /// The gang of this number is over: what its tasks did not use is free. No reply.
    Disband(u64),
    /// Starts an attempt of a task. Reply: [`Answered::Started`] with the connection to its worker,
    /// over which the plan and the grants were sent already.
    Run(TaskAsk),
    /// Ends an attempt. Reply: [`Answered::Ended`], or [`Answered::Failed`] with the reason.
    Ended {
        /// The number of [`Answered::Started`].
        started: u64,
        /// Why it has no result; `None` if it has one.
        failure: Option<Failed>,
    },
    /// The outputs of these tasks are not read any more. No reply.
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
    /// The query is planned; its tasks are requested next. No reply.
    Planned,
    /// The progress of the query. No reply.
    Progress(RunProgress),
    /// All tasks are done. No reply.
    Merging,
    /// A note for the user. No reply.
    Note {
        /// One line.
        text: String,
    },
}

/// One attempt of a task, as the driver requests it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskAsk {
    /// The task's index in the query, from 0.
    pub task: u32,
    /// The number of earlier attempts.
    pub attempt: u32,
    /// The partitions of the plan that it runs.
    pub partitions: Vec<u32>,
    /// The index, from 0, of one of the plans that were sent as [`Kind::Plan`](crate::Kind::Plan).
    pub plan: u32,
    /// The local files that it reads.
    pub files: Vec<FileGrant>,
    /// Names of the functions that it calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that it reads.
    pub s3: BTreeMap<String, S3Access>,
    /// Rows in a batch.
    pub batch_rows: u32,
    /// What it reads of the outputs of tasks that have ended well.
    #[serde(default)]
    pub reads: Vec<TaskRead>,
    /// True if it writes its batches to a file, which the platform keeps for the tasks that read
    /// it.
    #[serde(default)]
    pub output: bool,
    /// True for an attempt beside another one of the same task: it is refused as lost if there is
    /// no room for it at once.
    #[serde(default)]
    pub twin: bool,
    /// The objects that it writes its batches to instead.
    #[serde(default)]
    pub objects: Option<ObjectOutput>,
    /// True if it is granted a file for what does not fit into its memory.
    #[serde(default)]
    pub scratch: bool,
    /// True if it joins by sorting.
    #[serde(default)]
    pub sort_merge: bool,
    /// How often what its operators may reserve is halved.
    #[serde(default)]
    pub memory_halvings: u32,
    /// What it does with its streams, if it is one of a gang.
    #[serde(default)]
    pub streams: Option<TaskStreams>,
    /// The number of its gang, in whose room it starts.
    #[serde(default)]
    pub gang: Option<u64>,
}

impl TaskAsk {
    /// The header that is sent to its worker. Its operators may usually reserve `memory_bytes`, less
    /// than the sandbox's limit; `threads` run the plan.
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
        /// At least one.
        files: Vec<LocalFile>,
    },
    /// The files are open; their descriptors are attached, in order.
    Opened,
    /// The footers that were kept.
    Footers {
        /// Those of the files that were asked for, in the same order; without bytes where there are
        /// none.
        footers: Vec<KeptFooter>,
    },
    /// The number of a gang; `None` if there is no room for all of its tasks now.
    Reserved(Option<u64>),
    /// The task runs.
    Started {
        /// The number by which its end is reported.
        started: u64,
    },
    /// The resource use of the sandboxes of a successful attempt.
    Ended {
        /// Its worker.
        worker: SandboxUse,
        /// The instances of its functions, in the order of [`TaskAsk::udfs`].
        udfs: Vec<SandboxUse>,
    },
    /// The function is ready; its connection is attached.
    Connected {
        /// The time limit for one batch in milliseconds; 0 means no limit.
        timeout_ms: u64,
    },
    /// There is no result.
    Failed(Failed),
}

/// Why a request has no result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// True if another attempt may succeed.
    pub lost: bool,
    /// The tasks whose outputs the attempt reads and that are gone: another attempt can succeed only
    /// once they were made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<u32>,
    /// The error for the user.
    pub report: Box<ErrorReport>,
}

impl Failed {
    /// A failure that would recur.
    pub fn of(report: ErrorReport) -> Self {
        Self { lost: false, outputs: Vec::new(), report: Box::new(report) }
    }

    /// The loss of a sandbox: another attempt may succeed.
    pub fn lost(report: ErrorReport) -> Self {
        Self { lost: true, outputs: Vec::new(), report: Box::new(report) }
    }

    /// The loss of outputs of these tasks, which an attempt needs to read.
    pub fn lost_outputs(tasks: Vec<u32>, report: ErrorReport) -> Self {
        Self { lost: true, outputs: tasks, report: Box::new(report) }
    }

    /// A failure of the connection to a worker: an ended connection is a lost worker, and a
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

/// The use of one sandbox by a task. Times are microseconds since the query was accepted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxUse {
    /// For example `worker 3` or `score 3`.
    pub name: String,
    /// The host that it is on; `None` if the query has one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// True if it was started for this query.
    pub cold: bool,
    /// When it was requested.
    pub asked_us: u64,
    /// When it was ready.
    pub ready_us: u64,
    /// When its task began: all other sandboxes of the task were ready then.
    pub began_us: u64,
    /// When its task was done.
    pub done_us: u64,
    /// The peak memory use in bytes.
    pub peak_memory: Option<u64>,
    /// Its memory limit in bytes.
    #[serde(default)]
    pub memory_limit: u64,
    /// Processor time of an instance of a function during the task; 0 for a worker, which reports
    /// its own.
    pub cpu_us: u64,
    /// How long the set-up functions of an instance ran, in its time until `ready_us`; 0 if they ran
    /// before.
    #[serde(default)]
    pub setup_us: u64,
}

/// The total progress of all tasks of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// The number of tasks.
    pub tasks: u32,
    /// Tasks that were started and are not done.
    pub running: u32,
    /// Tasks that are done.
    pub done: u32,
    /// Rows read.
    pub rows: u64,
    /// Bytes read from storage.
    pub bytes: u64,
    /// Upper bound of `bytes`.
    pub bytes_total: u64,
    /// Rows passed to functions.
    pub udf_rows: u64,
}
