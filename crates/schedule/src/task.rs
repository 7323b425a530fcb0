//! Tasks of queries: each runs on one host, of those that its query names in an order of its own.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{HostName, Tenant};

use crate::call::State;

/// What a task of a query needs.
#[derive(Clone, Debug)]
pub struct Task {
    /// Whose it is.
    pub tenant: Tenant,
    /// Bytes that it reserves.
    pub memory: u64,
    /// Thousandths of cores.
    pub cpu_millis: u32,
    /// The only host that can run it, if that is so.
    pub only: Option<HostName>,
}

/// Where a task that waits would run.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The hosts that could run it now, the best first.
    pub hosts: Vec<HostName>,
    /// Further tasks of its query, as large as it, for which it is asked when it has its host.
    pub behind: u32,
    /// Since when tasks of its query wait.
    pub since: Duration,
}

/// A task that waits or runs.
#[derive(Debug)]
pub(crate) struct HeldTask {
    pub task: Arc<Task>,
    pub since: Duration,
    pub wish: Wish,
    pub state: State,
}

impl HeldTask {
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waits)
    }
}
