//! The tasks that exchange rows by streams ([`crate::TaskStreams`]): room for all of them is
//! reserved at once.

use serde::{Deserialize, Serialize};

use crate::FileGrant;

/// The tasks of a gang: each of the senders is connected with each of the receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangAsk {
    /// The tasks that send.
    pub senders: Vec<GangTask>,
    /// The tasks that receive.
    pub receivers: Vec<GangTask>,
}

impl GangAsk {
    /// The number of streams between the tasks of the gang.
    pub fn streams(&self) -> usize {
        self.senders.len().saturating_mul(self.receivers.len())
    }
}

/// The requirements of a task of a gang on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangTask {
    /// The task's index in the query.
    pub task: u32,
    /// The names of the functions that the task calls.
    pub udfs: Vec<String>,
    /// True if the task reads from buckets.
    pub network: bool,
    /// The local files that the task reads: it runs on a host that has them.
    #[serde(default)]
    pub files: Vec<FileGrant>,
}
