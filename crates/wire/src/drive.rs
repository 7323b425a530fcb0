//! The protocol between the driver of a query, which runs in a sandbox, and the platform.
//!
//! The platform sends one [`Drive`] with two descriptors: the socket for the answer and a file for
//! results that do not fit into memory. From then on the driver sends [`Request`]s and the platform
//! one [`Reply`] for each, in any order; descriptors travel with the replies. Requests that need no
//! reply have the id 0.
//!
//! Invariant: the driver names files, functions and tasks. Whatever it asks for, it gets only files
//! of the query's locations, its functions and its tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport, Report};

use crate::{Error, FileGrant, S3Access, Signature, Task};

/// The longest request, and the longest plan, that the platform takes from a driver. A task names
/// its files: 100,000 of them fit.
pub const MAX_REQUEST_BYTES: u32 = 64 << 20;

/// The most plans of one query: parts of it that run on workers.
pub const MAX_PLANS: usize = 1024;

/// The longest frame of an answer that the platform passes on.
pub const MAX_ANSWER_BYTES: u32 = 64 << 20;

/// A query that the driver is to plan and run.
#[derive(Clone, Serialize, Deserialize)]
pub struct Drive {
    /// Its id.
    pub query: String,
    /// One statement.
    pub sql: String,
    /// Table name to location.
    pub tables: BTreeMap<String, String>,
    /// Functions that the SQL may call in addition to the built-in ones.
    pub udfs: Vec<Signature>,
    /// `AWS_*` variables, for `s3://` locations.
    pub aws: BTreeMap<String, String>,
    /// Workers: partitions of each scan. At least 1.
    pub workers: u32,
    /// Threads that run the driver's part of the plan.
    pub threads: u32,
    /// Bytes that the operators of the driver's part may reserve.
    pub memory_bytes: u64,
    /// How often a task is run again after its worker was lost.
    pub retries: u32,
    /// Microseconds since the query was accepted.
    pub elapsed_us: u64,
    /// How many of them went into the packages and signatures of its functions.
    pub packages_us: u64,
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
    /// Names the reply; 0 if none is expected.
    pub id: u64,
    /// What is asked for.
    pub ask: Ask,
}

/// What a driver may ask for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The Parquet files of a local location. Reply: [`Answered::Listed`].
    List {
        /// A file, a folder or a glob, as the user wrote it.
        location: String,
    },
    /// Files that were listed, opened for reading. Reply: [`Answered::Opened`] with a descriptor
    /// for each.
    Open {
        /// At most [`MAX_DESCRIPTORS`](crate::MAX_DESCRIPTORS) paths.
        paths: Vec<String>,
    },
    /// The functions that the tasks will call, once for each task that calls it. No reply.
    Expect {
        /// Their names.
        udfs: Vec<String>,
    },
    /// One attempt of a task. Reply: [`Answered::Started`] with the connection to its worker, over
    /// which the plan and the grants were sent already.
    Run(TaskAsk),
    /// The end of an attempt. Reply: [`Answered::Ended`], or [`Answered::Failed`] with the reason.
    Ended {
        /// The number of [`Answered::Started`].
        started: u64,
        /// Why it has no result; `None` if it has one.
        failure: Option<Failed>,
    },
    /// An instance of a function for the driver itself. Reply: [`Answered::Connected`] with its
    /// connection.
    Connect {
        /// The function's name.
        udf: String,
    },
    /// The query is planned; its tasks are asked for next. No reply.
    Planned,
    /// How far the query is. No reply.
    Progress(RunProgress),
    /// All tasks are done. No reply.
    Merging,
    /// Something that the user should know. No reply.
    Note {
        /// One line.
        text: String,
    },
}

/// One attempt of a task, as the driver asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskAsk {
    /// Which task of the query, from 0.
    pub task: u32,
    /// How often it was tried before.
    pub attempt: u32,
    /// The partitions of the plan that it runs.
    pub partitions: Vec<u32>,
    /// Which of the plans that were sent as [`Kind::Plan`](crate::Kind::Plan) before, from 0.
    pub plan: u32,
    /// The local files that it reads.
    pub files: Vec<FileGrant>,
    /// Names of the functions that it calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that it reads.
    pub s3: BTreeMap<String, S3Access>,
    /// Rows in a batch.
    pub batch_rows: u32,
}

impl TaskAsk {
    /// The header that goes to its worker. `memory_bytes` is what its operators may reserve: less
    /// than the sandbox's limit. `threads` run the plan.
    pub fn header(&self, query: &str, memory_bytes: u64, threads: u32) -> Task {
        Task {
            query: query.to_owned(),
            task: self.task,
            attempt: self.attempt,
            partitions: self.partitions.clone(),
            memory_bytes,
            threads,
            batch_rows: self.batch_rows,
            s3: self.s3.clone(),
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
    /// The files are open; their descriptors came along, in order.
    Opened,
    /// The task runs.
    Started {
        /// The number by which its end is reported.
        started: u64,
    },
    /// The sandboxes of an attempt that ended well.
    Ended {
        /// Its worker.
        worker: SandboxUse,
        /// The instances of its functions, in the order of [`TaskAsk::udfs`].
        udfs: Vec<SandboxUse>,
    },
    /// The function's connection came along.
    Connected {
        /// The most milliseconds for one batch; 0 means no limit.
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
    /// What the user is told.
    pub report: Box<ErrorReport>,
}

impl Failed {
    /// A failure that would come again.
    pub fn of(report: ErrorReport) -> Self {
        Self { lost: false, report: Box::new(report) }
    }

    /// The loss of a sandbox: another attempt may succeed.
    pub fn lost(report: ErrorReport) -> Self {
        Self { lost: true, report: Box::new(report) }
    }

    /// A connection to a worker that ended is a lost worker; one that broke the protocol would do
    /// so again.
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

/// A local file as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFile {
    /// Its absolute path, without links.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The time of its last change, in nanoseconds since 1970.
    pub modified_nanos: i64,
    /// What changes when it is replaced or written to.
    pub version: String,
}

/// What one sandbox did for a task. Times are microseconds since the query was accepted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxUse {
    /// `worker 3` or `score 3`.
    pub name: String,
    /// True if it was started for this query.
    pub cold: bool,
    /// When it was asked for.
    pub asked_us: u64,
    /// When it was ready.
    pub ready_us: u64,
    /// When its task began: every other sandbox of the task was ready as well.
    pub began_us: u64,
    /// When its task was done.
    pub done_us: u64,
    /// The most bytes of memory that it held.
    pub peak_memory: Option<u64>,
    /// Processor time of an instance of a function during the task; 0 for a worker, which reports
    /// its own.
    pub cpu_us: u64,
}

/// How far all tasks of a query are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Tasks in all.
    pub tasks: u32,
    /// Tasks that were asked for and are not done.
    pub running: u32,
    /// Tasks that are done.
    pub done: u32,
    /// Rows read.
    pub rows: u64,
    /// Bytes read from storage.
    pub bytes: u64,
    /// Upper bound of `bytes`.
    pub bytes_total: u64,
    /// Rows given to functions.
    pub udf_rows: u64,
}
