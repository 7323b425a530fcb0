//! Messages of aggregate functions: the steps in which an instance handles the states of groups.
//!
//! An instance keeps the states of several accumulators, each with its groups, numbered from 0. The
//! first schema of the connection is that of the rows: the arguments, then the group of each row
//! (UInt64). Each [`AggregateCall`] is answered by a `Failure`, or as its step says.

use serde::{Deserialize, Serialize};

/// The operation on the states of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregateStep {
    /// Rows are added. A `Batch` of rows follows; the answer is an [`AggregateDone`].
    Update,
    /// States of other accumulators are merged. A `Batch` of two columns follows: the states
    /// (LargeBinary, null for a group without rows) and the group of each (UInt64). The answer is
    /// an [`AggregateDone`].
    Merge,
    /// The states of the first groups are taken out. The answer is a `Schema` and a `Batch` with
    /// one column (LargeBinary).
    State,
    /// The results of the first groups are taken out. The answer is a `Schema` and a `Batch` with
    /// one column of the result's type.
    Finish,
}

/// A call of an aggregate function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// The operation.
    pub step: AggregateStep,
    /// The number of the accumulator. An accumulator that was not named before has no rows.
    pub accumulator: u64,
    /// The number of the accumulator's groups. Groups without rows have the initial state.
    pub groups: u64,
    /// The greatest number of groups that are taken out, for [`AggregateStep::State`] and
    /// [`AggregateStep::Finish`]. The answer has at least one group, and fewer than this if they
    /// are large. Groups that were taken are gone: the next one has the number 0 then.
    #[serde(default)]
    pub take: u64,
    /// The accumulators that no call names any more.
    #[serde(default)]
    pub forget: Vec<u64>,
}

/// The answer to rows or states that were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateDone {
    /// An estimate of the memory of this accumulator's states, in bytes.
    pub bytes: u64,
}
