//! Exchanges by streams: the tasks of two stages run at the same time, as a gang, and rows go from
//! one to the other over sockets. Between hosts, their agents pass the bytes on.
//!
//! A stream is a sequence of frames: [`Kind::Partition`](crate::Kind::Partition) names the
//! partition of the `Batch` frames that follow it, and [`Kind::End`](crate::Kind::End) is the last
//! one. A stream without an end is that of a task that was lost. The receiving side sends nothing;
//! it closes the connection if it needs no more rows.

use serde::{Deserialize, Serialize};

/// The greatest number of streams of one query at a time.
pub const MAX_STREAMS: usize = 1024;

/// The use that a task of a gang makes of its streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStreams {
    /// The task writes its batches to the streams, instead of an output.
    Send(Vec<Receiver>),
    /// The task reads the output of a stage from the streams.
    Receive {
        /// The stage, by which the plan names it.
        stage: u32,
    },
}

/// A task to which another one sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// The receiving task's index in the query.
    pub task: u32,
    /// The partitions that the task reads.
    pub partitions: Vec<u32>,
}
