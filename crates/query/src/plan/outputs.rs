//! The outputs of tasks that can be read, by which the tasks of a stage are planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use snowmelt_wire::OutputPartition;

/// The outputs of tasks that have ended, by stage.
pub(crate) type Outputs = BTreeMap<u32, Vec<TaskOutput>>;

/// The output of one task.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    pub(crate) task: u32,
    pub(crate) partitions: Arc<Vec<OutputPartition>>,
}
