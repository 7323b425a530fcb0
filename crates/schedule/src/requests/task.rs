//! Tasks of queries: each task runs on one of the hosts that its query names, in the query's order
//! of preference.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{HostName, Tenant};

use super::call::State;

/// The requirements of a task of a query.
#[derive(Clone, Debug)]
pub struct TaskDemand {
    /// The owner of the query.
    pub tenant: Tenant,
    /// The memory that the task reserves, in bytes.
    pub memory: u64,
    /// The share of cores in thousandths of a core.
    pub cpu_millis: u32,
    /// The only host that may run the task. `None` if any host may.
    pub only: Option<HostName>,
}

/// The hosts that a waiting task would run on, and the further tasks behind it.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The hosts that could run the task now, the best first.
    pub hosts: Vec<HostName>,
    /// The number of further tasks of the query, of the same size, that are asked for once this
    /// task has its host.
    pub behind: u32,
    /// The time since which tasks of the query wait.
    pub since: Duration,
}

/// A task that waits or runs.
#[derive(Debug)]
pub(crate) struct HeldTask {
    pub task: Arc<TaskDemand>,
    pub since: Duration,
    pub wish: Wish,
    pub state: State,
}

impl HeldTask {
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waits)
    }
}
