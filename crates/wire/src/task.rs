//! Messages between the node and a query worker.
//!
//! The node sends `Files`, `Udfs`, `Inputs`, `HostOutputs`, `Streams`, `Output` and `Scratch` frames
//! with descriptors, then `Plan`, then `Task`. The worker answers with `Progress` frames at any time,
//! `Schema` and `Batch` frames for its results, and finally `Done` or `Failure`. Then it is idle and
//! can be given a task on a new connection. A task with an output, or with streams to other tasks,
//! writes its batches there and sends none.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use snowmelt_types::ErrorReport;
use utoipa::ToSchema;

use crate::exchange::{ObjectOutput, ObjectsAt};
use crate::footer::ObjectFooter;
use crate::http_source::HttpSource;
use crate::sorted::{KeyRange, Mark};
use crate::streams::TaskStreams;

/// The header of a task: one worker's share of a query's plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The query, for logs.
    pub query: String,
    /// The task's index in the query, from 0.
    pub task: u32,
    /// The number of earlier attempts.
    pub attempt: u32,
    /// The partitions of the plan that this worker runs.
    pub partitions: Vec<u32>,
    /// Bytes that operators may reserve: less than the sandbox's limit, which includes buffers.
    pub memory_bytes: u64,
    /// Threads that run the plan.
    pub threads: u32,
    /// Rows in a batch.
    pub batch_rows: u32,
    /// Access to S3 by bucket, and to servers of HTTP by their address (`https://host`), if the plan
    /// reads from them.
    pub s3: BTreeMap<String, S3Access>,
    /// What the plan reads of the outputs of other tasks.
    #[serde(default)]
    pub reads: Vec<TaskRead>,
    /// True if the batches go to the granted output file.
    #[serde(default)]
    pub output: bool,
    /// The objects that the batches go to, if they go to no file and not to the driver.
    #[serde(default)]
    pub objects: Option<ObjectOutput>,
    /// True if it joins by sorting, because a hash join did not fit into memory.
    #[serde(default)]
    pub sort_merge: bool,
    /// What it does with its streams, if it is one of a gang.
    #[serde(default)]
    pub streams: Option<TaskStreams>,
}

/// What a task reads of the output of one other task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRead {
    /// The stage of the other task, by which the plan names it.
    pub stage: u32,
    /// The other task.
    pub task: u32,
    /// The attempt of it that was complete.
    #[serde(default)]
    pub attempt: u32,
    /// The partitions that are read.
    pub partitions: Vec<OutputPartition>,
    /// The objects of its stage, if the output is not a granted file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsAt>,
    /// True if these are all of its partitions, and other tasks read all of them too: a host needs
    /// the output only once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The rows that are read of sorted partitions; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyRange>,
}

/// Where a partition is in the output of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPartition {
    /// Its number.
    pub partition: u32,
    /// Its rows.
    pub rows: u64,
    /// Its byte ranges in the order of its batches: offset and length. Each range holds whole
    /// `Batch` frames.
    pub ranges: Vec<(u64, u64)>,
    /// The number of the object that holds each range; empty for a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<u32>,
    /// Some places in it, if it is sorted: at most [`MAX_MARKS`](crate::MAX_MARKS), in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

impl OutputPartition {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// A file that a worker may read, granted as a descriptor: the sandbox has no path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The path in the plan.
    pub path: String,
    /// Its size in bytes when the query was planned.
    pub bytes: u64,
    /// Its version then, which changes when the file is replaced or written to.
    #[serde(default)]
    pub version: String,
}

/// A local file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFile {
    /// Its absolute path, without links.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The time of its last modification, in nanoseconds since 1970.
    pub modified_nanos: i64,
    /// Changes when the file is replaced or written to.
    pub version: String,
}

/// A UDF that a worker may call, granted as a connection to an instance in its own sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UdfGrant {
    /// Name in the plan.
    pub name: String,
    /// The time limit for one batch in milliseconds.
    pub timeout_ms: u64,
}

/// Access to a bucket, or to a server of HTTP. Sent to the platform's own workers only, never to user code.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Access {
    /// Settings of `object_store` by their AWS variable (`AWS_ENDPOINT_URL`, `AWS_REGION`, …).
    pub settings: BTreeMap<String, String>,
    /// The entity tags of the objects when the query was planned, by key.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The footers of Parquet objects by key, which the worker then need not read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub footers: BTreeMap<String, ObjectFooter>,
    /// The servers that requests over HTTP may reach, also where one refers to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpSource>,
}

impl std::fmt::Debug for S3Access {
    // Values are secrets: only the names are printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.settings.keys()).finish()
    }
}

/// Why a task has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// The error for the user.
    #[serde(flatten)]
    pub report: ErrorReport,
    /// The tasks whose outputs it reads and that are gone: another attempt can succeed once they were
    /// made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<u32>,
}

/// The progress of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskProgress {
    /// Rows read by its scans.
    pub rows_read: u64,
    /// Bytes read from storage.
    pub bytes_read: u64,
    /// Requests to storage, local files included.
    pub requests: u64,
    /// Of these, the requests to object storage, which cost money.
    #[serde(default)]
    pub store_reads: u64,
    /// How its scans made these requests.
    #[serde(default)]
    pub scans: ScanCounts,
    /// Parts of files and row groups that scans left out because of statistics.
    #[serde(default)]
    pub pruned: u64,
    /// Bytes that operators wrote to scratch, because their memory was full.
    #[serde(default)]
    pub spilled_bytes: u64,
    /// Rows passed to UDFs.
    pub udf_rows: u64,
    /// Rows for which a UDF was not called, because the result of an equal call was there.
    #[serde(default)]
    pub udf_rows_saved: u64,
    /// Nanoseconds spent waiting for UDFs.
    pub udf_nanos: u64,
    /// Requests that read objects of exchanges.
    #[serde(default)]
    pub exchange_reads: u64,
    /// Requests that wrote objects of exchanges.
    #[serde(default)]
    pub exchange_writes: u64,
    /// Bytes read from objects of exchanges.
    #[serde(default)]
    pub exchange_bytes_read: u64,
    /// Bytes written to objects of exchanges.
    #[serde(default)]
    pub exchange_bytes_written: u64,
}

impl AddAssign<&Self> for TaskProgress {
    fn add_assign(&mut self, other: &Self) {
        // Each field by its name, so that none is forgotten.
        let Self {
            rows_read,
            bytes_read,
            requests,
            store_reads,
            scans,
            pruned,
            spilled_bytes,
            udf_rows,
            udf_rows_saved,
            udf_nanos,
            exchange_reads,
            exchange_writes,
            exchange_bytes_read,
            exchange_bytes_written,
        } = other;
        self.rows_read += rows_read;
        self.bytes_read += bytes_read;
        self.requests += requests;
        self.store_reads += store_reads;
        self.scans = self.scans.and(*scans);
        self.pruned += pruned;
        self.spilled_bytes += spilled_bytes;
        self.udf_rows += udf_rows;
        self.udf_rows_saved += udf_rows_saved;
        self.udf_nanos += udf_nanos;
        self.exchange_reads += exchange_reads;
        self.exchange_writes += exchange_writes;
        self.exchange_bytes_read += exchange_bytes_read;
        self.exchange_bytes_written += exchange_bytes_written;
    }
}

/// How scans made their requests to object storage: the levels of concurrency in Lambada 4.3, and
/// races of slow requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScanCounts {
    /// Footers that needed no request of a task, because planning had read them.
    pub footers_ahead: u64,
    /// The most row groups that one task read at a time.
    pub row_groups_in_flight: u64,
    /// Requests that were saved by reading near column chunks together.
    pub merged: u64,
    /// Requests that were added because a column chunk was read in several pieces.
    pub split: u64,
    /// Requests that were sent a second time because they were slow.
    pub hedged: u64,
}

impl ScanCounts {
    /// The counts of several tasks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            footers_ahead: self.footers_ahead + other.footers_ahead,
            row_groups_in_flight: self.row_groups_in_flight.max(other.row_groups_in_flight),
            merged: self.merged + other.merged,
            split: self.split + other.split,
            hedged: self.hedged + other.hedged,
        }
    }
}

/// The use of a UDF by one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdfUse {
    /// Name in the plan.
    pub name: String,
    /// Rows passed to it.
    pub rows: u64,
    /// Rows whose results were those of equal calls.
    #[serde(default)]
    pub saved: u64,
    /// Nanoseconds spent waiting for it.
    pub nanos: u64,
}

/// Metrics of one operator of the plan in one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorMetric {
    /// The operator's number in its stage, in preorder.
    pub id: u32,
    /// Its depth below the stage's root.
    pub depth: u32,
    /// For example `ParquetExec` or `FilterExec: l_quantity < 24`, shortened to one line.
    pub name: String,
    /// Rows that it returned.
    pub rows: u64,
    /// Nanoseconds of its own computation, without the UDFs that it calls.
    pub compute_nanos: u64,
}

/// The report of a finished task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskDone {
    /// The final progress.
    pub progress: TaskProgress,
    /// Rows of its result.
    pub rows: u64,
    /// The peak of bytes that its operators reserved.
    pub peak_reserved_bytes: u64,
    /// Nanoseconds from the task's arrival to its end.
    pub wall_nanos: u64,
    /// Nanoseconds of processor time of the process during the task.
    pub cpu_nanos: u64,
    /// Its operators, each followed by the UDFs that it calls.
    pub operators: Vec<OperatorMetric>,
    /// The use of each UDF.
    #[serde(default)]
    pub udfs: Vec<UdfUse>,
    /// The partitions of its output, without empty ones.
    #[serde(default)]
    pub output: Vec<OutputPartition>,
}
