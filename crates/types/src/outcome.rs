//! How a sandbox came to its end, as the kernel and the limits saw it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ByteSize;

/// Why a sandbox is no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    /// The process ended by itself.
    Exit {
        /// Its exit code.
        code: i32,
    },
    /// A signal that Snowmelt did not send ended it.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel killed it because it reached its memory limit.
    OutOfMemory {
        /// The limit that was set.
        limit: ByteSize,
        /// The most memory that it held.
        peak: ByteSize,
    },
    /// It ended after it was refused a process because of its pids limit.
    PidsLimit {
        /// The most processes and threads that it may have.
        limit: u32,
    },
    /// Snowmelt killed it because its time was up.
    Timeout {
        /// The time that it had, in milliseconds.
        limit_ms: u64,
    },
    /// Snowmelt killed it for another reason (the query was cancelled, the instance was evicted).
    Killed,
    /// The process of the platform that had made it died, and the kernel ended it with that.
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
            // It was refused one more than that.
            Self::PidsLimit { limit } => {
                write!(f, "reached its limit of processes: limit {limit}, peak {limit}")
            }
            Self::Timeout { limit_ms } => write!(f, "did not end within {limit_ms} ms"),
            Self::Killed => f.write_str("was stopped"),
            Self::SpawnerLost => f.write_str("was lost: the spawner that had made it died"),
        }
    }
}

/// The end of a sandbox with what it used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it ended.
    #[serde(flatten)]
    pub end: End,
    /// The most memory that it held, where the kernel counts it.
    pub peak_memory: Option<ByteSize>,
    /// Processor time, user and system, where the kernel counts it.
    pub cpu: Option<Duration>,
    /// From its creation to its end.
    pub wall: Duration,
}
