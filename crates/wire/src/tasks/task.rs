//! Messages between the server's side of tasks and a query worker.
//!
//! The server sends `Files`, `Udfs`, `Inputs`, `HostOutputs`, `Streams`, `Output` and `Scratch`
//! frames with descriptors, then `Plan`, then `Task`. The worker answers with `Progress` frames at
//! any time, `Schema` and `Batch` frames for its results, and finally `Done` or `Failure`. Then it
//! is idle and can be given a task on a new connection. A task with an output, or with streams to
//! other tasks, writes its batches there and sends none.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use snowmelt_types::ErrorReport;
use utoipa::ToSchema;

use super::exchange::{ObjectOutput, ObjectsAt};
use super::footer::ObjectFooter;
use super::http_source::HttpSource;
use super::key_ranges::{KeyRange, Mark};
use super::streams::TaskStreams;

/// The header of a task: one worker's share of a query's plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The id of the query, for logs.
    pub query: String,
    /// The task's index in the query, from 0.
    pub task: u32,
    /// The number of earlier attempts.
    pub attempt: u32,
    /// The partitions of the plan that this worker runs.
    pub partitions: Vec<u32>,
    /// The memory that operators may reserve in bytes: less than the sandbox's limit, which
    /// includes buffers.
    pub memory_bytes: u64,
    /// The number of threads that run the plan.
    pub threads: u32,
    /// The number of rows in a batch.
    pub batch_rows: u32,
    /// Access to S3 by bucket, and to HTTP servers by their address (`https://host`), if the plan
    /// reads from them.
    pub s3: BTreeMap<String, S3Access>,
    /// The partitions that the plan reads from outputs of other tasks.
    #[serde(default)]
    pub reads: Vec<TaskRead>,
    /// True if the batches go to the granted output file.
    #[serde(default)]
    pub output: bool,
    /// The objects that the batches go to, if they go to no file and not to the driver.
    #[serde(default)]
    pub objects: Option<ObjectOutput>,
    /// True if the task joins by sorting, because a hash join did not fit into memory.
    #[serde(default)]
    pub sort_merge: bool,
    /// The use of the task's streams, if it is one of a gang.
    #[serde(default)]
    pub streams: Option<TaskStreams>,
}

/// The part that a task reads of the output of one other task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRead {
    /// The stage of the other task, by which the plan names it.
    pub stage: u32,
    /// The index of the other task.
    pub task: u32,
    /// The attempt of the other task that was complete.
    #[serde(default)]
    pub attempt: u32,
    /// The partitions that are read.
    pub partitions: Vec<OutputPartition>,
    /// The objects of its stage, if the output is not a granted file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsAt>,
    /// True if these are all partitions of the output, and other tasks read all of them too: a host
    /// needs the output only once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The range of rows that are read from sorted partitions; all rows if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyRange>,
}

/// The place of a partition in the output of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPartition {
    /// The number of the partition.
    pub partition: u32,
    /// The number of rows in the partition.
    pub rows: u64,
    /// The byte ranges of the partition in the order of its batches: offset and length. Each range
    /// holds whole `Batch` frames.
    pub ranges: Vec<(u64, u64)>,
    /// The number of the object that holds each range; empty if the output is a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<u32>,
    /// Marked places in the partition, if it is sorted: at most [`MAX_MARKS`](crate::MAX_MARKS), in
    /// order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

impl OutputPartition {
    /// The size of the partition in bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// A file that a worker may read, granted as a descriptor: the sandbox has no path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The path in the plan.
    pub path: String,
    /// The size of the file in bytes when the query was planned.
    pub bytes: u64,
    /// The version of the file when the query was planned, which changes when the file is replaced
    /// or written to.
    #[serde(default)]
    pub version: String,
}

/// A local file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFile {
    /// The absolute path of the file, without links.
    pub path: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The time of its last modification, in nanoseconds since 1970.
    pub modified_nanos: i64,
    /// The version of the file, which changes when the file is replaced or written to.
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

/// Access to a bucket, or to an HTTP server. Sent to the platform's own workers only, never to user
/// code.
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
    /// The HTTP servers that requests may reach, also when a server redirects to another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpSource>,
}

impl std::fmt::Debug for S3Access {
    // Values are secrets: only the names are printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.settings.keys()).finish()
    }
}

/// The reason why a task has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// The error for the user.
    #[serde(flatten)]
    pub report: ErrorReport,
    /// The tasks whose outputs the task reads and that are gone: another attempt can succeed once
    /// they were made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<u32>,
}

/// The progress of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskProgress {
    /// The number of rows read by the task's scans.
    pub rows_read: u64,
    /// The number of bytes read from storage.
    pub bytes_read: u64,
    /// The number of requests to storage, local files included.
    pub requests: u64,
    /// The number of these requests that went to object storage, which cost money.
    #[serde(default)]
    pub store_reads: u64,
    /// Counts of the ways in which scans made these requests.
    #[serde(default)]
    pub scans: ScanCounts,
    /// The number of parts of files and row groups that scans left out because of statistics.
    #[serde(default)]
    pub pruned: u64,
    /// The number of bytes that operators wrote to scratch, because their memory was full.
    #[serde(default)]
    pub spilled_bytes: u64,
    /// The number of rows passed to UDFs.
    pub udf_rows: u64,
    /// The number of rows for which a UDF was not called, because the result of an equal call was
    /// there.
    #[serde(default)]
    pub udf_rows_saved: u64,
    /// The time spent waiting for UDFs, in nanoseconds.
    pub udf_nanos: u64,
    /// The number of requests that read objects of exchanges.
    #[serde(default)]
    pub exchange_reads: u64,
    /// The number of requests that wrote objects of exchanges.
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

/// Counts of the ways in which scans made their requests to object storage: the levels of
/// concurrency in Lambada 4.3, and races of slow requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScanCounts {
    /// The number of footers that needed no request of a task, because planning had read them.
    pub footers_ahead: u64,
    /// The greatest number of row groups that one task read at a time.
    pub row_groups_in_flight: u64,
    /// The number of requests that were saved by reading near column chunks together.
    pub merged: u64,
    /// The number of requests that were added because a column chunk was read in several pieces.
    pub split: u64,
    /// The number of requests that were sent a second time because they were slow.
    pub hedged: u64,
}

impl ScanCounts {
    /// Combines the counts of several tasks.
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
    /// The function's name in the plan.
    pub name: String,
    /// The number of rows passed to the UDF.
    pub rows: u64,
    /// The number of rows whose results were those of equal calls.
    #[serde(default)]
    pub saved: u64,
    /// The time spent waiting for the UDF, in nanoseconds.
    pub nanos: u64,
}

/// Metrics of one operator of the plan in one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorMetric {
    /// The operator's number in its stage, in preorder.
    pub id: u32,
    /// The depth of the operator below the stage's root.
    pub depth: u32,
    /// The name of the operator, for example `ParquetExec` or `FilterExec: l_quantity < 24`,
    /// shortened to one line.
    pub name: String,
    /// The number of rows that the operator returned.
    pub rows: u64,
    /// The time of the operator's own computation, without the UDFs that it calls, in nanoseconds.
    pub compute_nanos: u64,
}

/// The report of a finished task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskDone {
    /// The final progress.
    pub progress: TaskProgress,
    /// The number of rows of the task's result.
    pub rows: u64,
    /// The peak memory that the task's operators reserved, in bytes.
    pub peak_reserved_bytes: u64,
    /// The time from the task's arrival to its end, in nanoseconds.
    pub wall_nanos: u64,
    /// The processor time of the process during the task, in nanoseconds.
    pub cpu_nanos: u64,
    /// The operators of the task, each followed by the UDFs that it calls.
    pub operators: Vec<OperatorMetric>,
    /// The use of each UDF.
    #[serde(default)]
    pub udfs: Vec<UdfUse>,
    /// The partitions of the task's output, without empty ones.
    #[serde(default)]
    pub output: Vec<OutputPartition>,
}
