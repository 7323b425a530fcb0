//! The outputs of tasks that have ended, from which the tasks of later stages are made.

use std::collections::BTreeMap;
use std::sync::Arc;

use snowmelt_wire::{ObjectsAt, OutputPartition};

/// The outputs of tasks that have ended, by stage.
pub type Outputs = BTreeMap<u32, Vec<TaskOutput>>;

/// The output of one task.
#[derive(Clone, Debug)]
pub struct TaskOutput {
    /// The number of the task in the query.
    pub task: u32,
    /// The number of the attempt that was complete.
    pub attempt: u32,
    /// The bytes of each partition, and where they are.
    pub partitions: Arc<Vec<OutputPartition>>,
    /// The place of the objects of the task's stage; `None` if the task wrote to a file.
    pub objects: Option<ObjectsAt>,
}
