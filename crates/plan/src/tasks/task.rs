//! A task of a query: what a worker runs, and what it needs for that.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use snowmelt_execute::context::BATCH_ROWS;
use snowmelt_wire::{
    FileGrant, ObjectOutput, OutputPartition, S3Access, TaskAsk, TaskRead, TaskStreams,
};

/// A task of a query, ready to be sent to a worker.
#[derive(Clone, Debug, Default)]
pub struct PlannedTask {
    /// Index of the task, from 0.
    pub task: u32,
    /// The partitions of the plan that the task runs.
    pub partitions: Vec<u32>,
    /// The worker's program: the same bytes for all tasks of a stage.
    pub plan: Bytes,
    /// The local files that the task's partitions read. `path` is the absolute path to open.
    pub files: Vec<FileGrant>,
    /// Names of the UDFs that the task's program calls.
    pub udfs: Vec<String>,
    /// Access to the buckets that the task's partitions read, by bucket.
    pub s3: BTreeMap<String, S3Access>,
    /// An upper bound of the bytes that the task's partitions read from files.
    pub bytes: u64,
    /// The parts that the task reads of the outputs of tasks that have ended.
    pub reads: Vec<TaskRead>,
    /// A stage and those of its tasks whose outputs this task reads: other tasks of its own stage
    /// run the same partition on the rest. `None`: the task reads the outputs of all tasks.
    pub only: Option<(u32, BTreeSet<u32>)>,
    /// True if the task writes its batches to a file for other tasks, and sends none.
    pub output: bool,
    /// True for an attempt beside another one of the same task: it is started only if there is room
    /// for it at once that nothing else waits for, and is lost otherwise.
    pub twin: bool,
    /// The objects to which the task writes its batches instead of to a file or the driver.
    pub objects: Option<ObjectOutput>,
    /// True if the task gets a file, its scratch, for data that does not fit into its memory.
    pub scratch: bool,
    /// True if the task joins by sorting, and its operators share its memory evenly, because one of
    /// them did not fit into it.
    pub sort_merge: bool,
    /// How often the memory that the task's operators may reserve is halved: as often as the kernel
    /// has ended a worker of the task.
    pub memory_halvings: u32,
    /// How often the number of rows in the task's batches is halved.
    pub batch_halvings: u32,
    /// The streams that the task sends or receives, if it belongs to a gang.
    pub streams: Option<TaskStreams>,
    /// The number of the task's gang, for which room was reserved. `None` outside of a gang.
    pub gang: Option<u64>,
}

impl PlannedTask {
    /// Returns the request for one attempt; `plan` is the number under which the task's plan was
    /// sent.
    pub fn request(&self, plan: u32, attempt: u32) -> TaskAsk {
        TaskAsk {
            task: self.task,
            attempt,
            partitions: self.partitions.clone(),
            plan,
            files: self.files.clone(),
            udfs: self.udfs.clone(),
            s3: self.s3.clone(),
            batch_rows: (BATCH_ROWS as u32 >> self.batch_halvings).max(1),
            reads: self.reads.clone(),
            output: self.output,
            twin: self.twin,
            objects: self.objects.clone(),
            scratch: self.scratch,
            sort_merge: self.sort_merge,
            memory_halvings: self.memory_halvings,
            streams: self.streams.clone(),
            gang: self.gang,
        }
    }

    /// Returns the bytes that the task has to read: an upper bound for files.
    pub fn work(&self) -> u64 {
        let received = self.reads.iter().flat_map(|read| &read.partitions);
        self.bytes + received.map(OutputPartition::bytes).sum::<u64>()
    }
}
