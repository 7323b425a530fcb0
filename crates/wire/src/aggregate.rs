//! Messages of aggregate functions: what an instance does with the states of groups.
//!
//! An instance keeps the states of several accumulators, each with its groups, from 0. The first
//! schema of the connection is that of the rows: the arguments, then the group of each row (UInt64).
//! Each [`AggregateCall`] is answered by a `Failure`, or as its step says.

use serde::{Deserialize, Serialize};

/// What is done with the states of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregateStep {
    /// Rows are added. A `Batch` of rows follows; the answer is an [`AggregateDone`].
    Update,
    /// States of other accumulators are merged. A `Batch` of two columns follows: the states
    /// (LargeBinary, null for a group without rows) and the group of each (UInt64). The answer is an
    /// [`AggregateDone`].
    Merge,
    /// The states of the first groups are taken. The answer is a `Schema` and a `Batch` with one
    /// column (LargeBinary).
    State,
    /// The results of the first groups are taken. The answer is a `Schema` and a `Batch` with one
    /// column of the result's type.
    Finish,
}

/// One call of an aggregate function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// What is done.
    pub step: AggregateStep,
    /// The accumulator. One that was not named before has no rows.
    pub accumulator: u64,
    /// How many groups it has. Those without rows have the initial state.
    pub groups: u64,
    /// For [`AggregateStep::State`] and [`AggregateStep::Finish`]: the most groups that are taken.
    /// The answer has at least one, and fewer than this if they are large. What is taken is gone, and
    /// the next group is group 0 then.
    #[serde(default)]
    pub take: u64,
    /// Accumulators that no call names any more.
    #[serde(default)]
    pub forget: Vec<u64>,
}

/// The answer to rows and states that were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateDone {
    /// An estimate of the memory of this accumulator's states.
    pub bytes: u64,
}
