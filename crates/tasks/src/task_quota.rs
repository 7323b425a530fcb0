//! How much the tasks of a query may use together, which control decides for its tenant.
//!
//! Boundary: rooms of hosts are reserved elsewhere (`runner`); a share says nothing about a host.

use std::any::Any;
use std::fmt::Debug;

use async_trait::async_trait;
use snowmelt_types::{ByteSize, ErrorReport};

/// The sandboxes of a task or of a driver, with the sums of their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxSum {
    /// The number of sandboxes.
    pub sandboxes: u64,
    /// The sum of their memory limits.
    pub memory: ByteSize,
    /// The sum of their shares of processor, in thousandths of a core.
    pub cpu_millis: u64,
}

impl SandboxSum {
    /// The sum with another one.
    pub fn plus(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_add(other.sandboxes),
            memory: ByteSize(self.memory.bytes().saturating_add(other.memory.bytes())),
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
        }
    }
}

/// A share that a task has, until it is dropped.
pub type TaskShare = Box<dyn Any + Send + Sync>;

/// The quota of one query.
#[async_trait]
pub trait TaskQuota: Debug + Send + Sync {
    /// Takes the share of the driver and of one task, for as long as the query runs.
    ///
    /// # Errors
    /// The quota that is reached.
    fn begin(&self, all: SandboxSum) -> Result<(), ErrorReport>;

    /// Takes a share beside that of the one task, if there is one now.
    fn take(&self, sum: SandboxSum) -> Option<TaskShare>;

    /// Waits for the share of the one task, or for another one.
    async fn wait(&self, sum: SandboxSum) -> TaskShare;
}
