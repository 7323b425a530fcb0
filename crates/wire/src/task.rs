//! Messages between the node and a query worker.
//!
//! The node sends `Files` and `Udfs` frames with descriptors, then `Plan`, then `Task`. The worker
//! answers with `Progress` frames at will, `Schema` and `Batch` frames for its results, and at last
//! `Done` or `Failure`. After either it is idle and may be given the next task on a new connection.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The header of a task: one worker's share of a query's program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The query, for logs.
    pub query: String,
    /// Which task of the query this is, from 0.
    pub task: u32,
    /// How often it was tried before.
    pub attempt: u32,
    /// The partitions of the plan that this worker runs.
    pub partitions: Vec<u32>,
    /// Bytes that operators may reserve: less than the sandbox's limit, which also holds buffers.
    pub memory_bytes: u64,
    /// Threads that run the plan.
    pub threads: u32,
    /// Rows in a batch.
    pub batch_rows: u32,
    /// Access to S3, by bucket, where the plan reads from it.
    pub s3: BTreeMap<String, S3Access>,
}

/// A file that a worker may read, granted as a descriptor: the sandbox has no path to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileGrant {
    /// The path by which the plan names it.
    pub path: String,
    /// Its size in bytes when the plan was made.
    pub bytes: u64,
    /// Which file it was then: what changes when it is replaced or written to.
    #[serde(default)]
    pub version: String,
}

/// A UDF that a worker may call, granted as a connection to an instance in its own sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UdfGrant {
    /// Name in the plan.
    pub name: String,
    /// The most milliseconds that one batch may take.
    pub timeout_ms: u64,
}

/// How to reach a bucket. Given to the platform's own worker only, never to user code.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Access {
    /// Settings of `object_store` by their AWS variable (`AWS_ENDPOINT_URL`, `AWS_REGION`, …).
    pub settings: BTreeMap<String, String>,
    /// The entity tags with which the plan was made, by key.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

impl std::fmt::Debug for S3Access {
    // Values are secrets: only the names are shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.settings.keys()).finish()
    }
}

/// How far a task is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Rows read by its scans.
    pub rows_read: u64,
    /// Bytes read from storage.
    pub bytes_read: u64,
    /// Requests to storage.
    pub requests: u64,
    /// Rows given to UDFs.
    pub udf_rows: u64,
    /// Nanoseconds spent waiting for UDFs.
    pub udf_nanos: u64,
}

/// What one task called of one UDF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdfUse {
    /// Name in the plan.
    pub name: String,
    /// Rows given to it.
    pub rows: u64,
    /// Nanoseconds spent waiting for it.
    pub nanos: u64,
}

/// One operator of the plan as one task ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMetric {
    /// Operators from the fragment's root to this one, numbered in preorder.
    pub id: u32,
    /// How deep it stands below the fragment's root.
    pub depth: u32,
    /// `ParquetExec`, `FilterExec: l_quantity < 24`, shortened to one line.
    pub name: String,
    /// Rows that it gave.
    pub rows: u64,
    /// Nanoseconds of its own computing, without the UDFs that it calls.
    pub compute_nanos: u64,
}

/// What a finished task reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TaskDone {
    /// The last progress.
    pub progress: TaskProgress,
    /// Rows of its result.
    pub rows: u64,
    /// The most bytes that its operators reserved.
    pub peak_reserved_bytes: u64,
    /// Nanoseconds from the task's arrival to its end.
    pub wall_nanos: u64,
    /// Nanoseconds of processor time of the process during the task.
    pub cpu_nanos: u64,
    /// Its operators, each followed by the UDFs that it calls.
    pub operators: Vec<OperatorMetric>,
    /// What it called, by UDF.
    #[serde(default)]
    pub udfs: Vec<UdfUse>,
}
