//! The tasks that exchange rows by streams ([`crate::TaskStreams`]): room for all of them is reserved
//! at once.

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
    /// The number of its streams.
    pub fn streams(&self) -> usize {
        self.senders.len().saturating_mul(self.receivers.len())
    }
}

/// What a task of a gang needs of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangTask {
    /// The task.
    pub task: u32,
    /// Names of the functions that it calls.
    pub udfs: Vec<String>,
    /// True if it reads from buckets.
    pub network: bool,
    /// The local files that it reads: it runs on a host that has them.
    #[serde(default)]
    pub files: Vec<FileGrant>,
}
