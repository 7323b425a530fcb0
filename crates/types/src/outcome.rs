//! The end of a sandbox, according to the kernel and the limits.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ByteSize;

/// The reason why a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    /// The process exited.
    Exit {
        /// The exit code of the process.
        code: i32,
    },
    /// A signal that Snowmelt did not send ended it.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel killed a process because the sandbox reached its memory limit.
    OutOfMemory {
        /// The limit.
        limit: ByteSize,
        /// The peak memory use.
        peak: ByteSize,
    },
    /// The sandbox ended after a fork failed because of its pids limit.
    PidsLimit {
        /// The limit of processes and threads.
        limit: u32,
    },
    /// Snowmelt killed the sandbox because its time limit expired.
    Timeout {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// Snowmelt killed the sandbox for another reason (the query was cancelled, the instance was
    /// evicted).
    Killed,
    /// The platform's process that created the sandbox died, and the kernel killed the sandbox with
    /// it.
    SpawnerLost,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { code } => write!(f, "exited with code {code}"),
            Self::Signal { signal } => write!(f, "was ended by signal {signal}"),
            Self::OutOfMemory { limit, peak } => {
                write!(f, "ran out of memory: limit {limit}, peak {peak}")
            }
            // A refused fork means that the limit was reached, so the peak is the limit.
            Self::PidsLimit { limit } => {
                write!(f, "reached its limit of processes: limit {limit}, peak {limit}")
            }
            Self::Timeout { limit_ms } => write!(f, "did not end within {limit_ms} ms"),
            Self::Killed => f.write_str("was stopped"),
            Self::SpawnerLost => f.write_str("was lost: the spawner that created it died"),
        }
    }
}

/// The end of a sandbox and its resource use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The reason why the sandbox ended.
    #[serde(flatten)]
    pub end: End,
    /// The peak memory use, where the kernel counts it.
    pub peak_memory: Option<ByteSize>,
    /// Processor time, user and system, where the kernel counts it.
    pub cpu: Option<Duration>,
    /// The time from the creation of the sandbox to its end.
    pub wall: Duration,
}
