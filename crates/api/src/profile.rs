//! The profile of a query: where its time, bytes and memory went. Pure data; the command line
//! shows it as text and as a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_wire::{OperatorMetric, TaskProgress};
use utoipa::ToSchema;

use crate::cost::Cost;

/// Where the time, bytes and memory of one query went. Times are microseconds since the query was
/// accepted; amounts of memory are bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Profile {
    /// The query's id.
    pub query: String,
    /// Its SQL.
    pub sql: String,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// From acceptance to the last row.
    pub wall_us: u64,
    /// Rows of the answer.
    pub rows: u64,
    /// The phases in order, without gaps from 0 to `wall_us`: packages, plan, start, run, merge.
    pub phases: Vec<PhaseSpan>,
    /// A lane per task and per UDF instance.
    pub lanes: Vec<Lane>,
    /// The stages, in the order of their numbers. Each reads only stages before it; those with the
    /// medium `driver` are read by the driver.
    #[serde(default)]
    pub stages: Vec<StageProfile>,
    /// The operators of the stages, one after another in preorder, summed over the tasks.
    pub operators: Vec<OperatorMetric>,
    /// The driver's operators above the cut, in preorder.
    pub driver_operators: Vec<OperatorMetric>,
    /// The physical plan of the workers, as text.
    pub worker_plan: String,
    /// The physical plan of the driver, as text.
    pub driver_plan: String,
    /// Sums over the tasks.
    pub totals: Totals,
    /// The beginning of what instances of functions wrote to stdout and stderr, by the function.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub printed: BTreeMap<String, String>,
    /// What it cost.
    #[serde(default)]
    pub cost: Cost,
    /// What is worth changing, the most important first.
    pub findings: Vec<Finding>,
}

/// One phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PhaseSpan {
    /// `packages`, `plan`, `start`, `run` or `merge`.
    pub phase: String,
    /// Begin.
    pub from_us: u64,
    /// End.
    pub to_us: u64,
}

/// One stage: a program that several tasks ran, each on its part of the rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StageProfile {
    /// Its number.
    pub stage: u32,
    /// The stages whose outputs it reads.
    pub reads: Vec<u32>,
    /// Where its rows go: to the `driver`, or the medium of its exchange, such as `files`.
    pub medium: String,
    /// The columns or expressions by whose hash its output is split; empty if it is not.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Its tasks that are done.
    pub tasks: u32,
    /// Attempts that were started for them, with those that did not count.
    pub attempts: u32,
    /// Attempts that were started because a worker was lost.
    pub retries: u32,
    /// Attempts that were started because an output was lost, of the task itself or of one that it
    /// reads.
    pub remakes: u32,
    /// Attempts that were started because another one of the same task was slow.
    pub twins: u32,
    /// Rows of its results or outputs.
    pub rows: u64,
    /// Row groups that statistics left out of its scans before they were divided between tasks.
    #[serde(default)]
    pub left_out: u64,
    /// Bytes that it read from storage.
    pub bytes_read: u64,
    /// Bytes of other stages' outputs that its tasks were given to read.
    pub bytes_received: u64,
    /// Bytes of its outputs, or of its results on the wire.
    pub bytes_sent: u64,
    /// When the first sandbox of one of its tasks was asked for.
    pub from_us: u64,
    /// When its last task was done.
    pub to_us: u64,
    /// Processor time of its tasks and of the functions beside them.
    pub cpu_us: u64,
    /// The most memory that one of its sandboxes held.
    pub peak_memory: u64,
    /// The partition of its output that has most rows; `None` if it has no rows, or no output.
    #[serde(default)]
    pub largest: Option<LargestPartition>,
    /// The attempts that did not count, in the order of their ends.
    #[serde(default)]
    pub discarded: Vec<DiscardedAttempt>,
}

/// The partition of a stage's output with most rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LargestPartition {
    /// Its number.
    pub partition: u32,
    /// How many partitions there are.
    pub of: u32,
    /// Its rows.
    pub rows: u64,
    /// Its rows as a share of all rows, from 0 to 1.
    pub share: f64,
    /// The rows of the median partition, empty ones included.
    pub median_rows: u64,
}

/// An attempt of a task that did not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscardedAttempt {
    /// The task.
    pub task: u32,
    /// The attempt of it, from 0.
    pub attempt: u32,
    /// When it was started.
    pub from_us: u64,
    /// When it ended.
    pub to_us: u64,
    /// `lost` with its worker, `inputs lost`, `output lost`, `overtaken` by another attempt, or
    /// `cancelled`.
    pub why: String,
}

/// What one sandbox did.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// `worker 3` or `score 3`.
    pub name: String,
    /// The stage of its task.
    #[serde(default)]
    pub stage: u32,
    /// The host that it was on; absent if the query had one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// True if its sandbox was started for this query.
    pub cold: bool,
    /// Sandbox asked for.
    pub asked_us: u64,
    /// Sandbox ready, with a UDF's code loaded: about `asked_us` for an idle one taken again.
    pub ready_us: u64,
    /// Its task began: every other sandbox of the task was ready as well.
    #[serde(default)]
    pub began_us: u64,
    /// Task done.
    pub done_us: u64,
    /// Rows of its result; of a UDF the rows that it was given.
    pub rows: u64,
    /// The most memory that its sandbox held.
    pub peak_memory: Option<u64>,
    /// The memory limit of its sandbox.
    #[serde(default)]
    pub memory_limit: u64,
    /// Processor time of its task, where it is known.
    pub cpu_us: u64,
    /// How long the set-up functions (`@sm.setup`) of a UDF's instance ran, before `ready_us`; 0 if it
    /// has none, or they ran for an earlier query.
    #[serde(default)]
    pub setup_us: u64,
    /// Attempts before the one that succeeded.
    pub retries: u32,
    /// What it read and called.
    pub progress: TaskProgress,
}

impl Lane {
    /// When it began to run its task.
    pub fn runs_from_us(&self) -> u64 {
        self.began_us.max(self.ready_us)
    }

    /// How long its sandbox was held for the task.
    pub fn held_us(&self) -> u64 {
        self.done_us.saturating_sub(self.asked_us)
    }

    /// How long it ran its task.
    pub fn ran_us(&self) -> u64 {
        self.done_us.saturating_sub(self.runs_from_us())
    }
}

/// Sums over the tasks of a query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Tasks.
    pub tasks: u32,
    /// Sandboxes started for this query.
    pub cold: u32,
    /// Idle sandboxes taken again.
    pub warm: u32,
    /// Seconds of function time: the sum over all sandboxes of the time that they were held.
    pub function_seconds: f64,
    /// Processor seconds of the tasks.
    pub cpu_seconds: f64,
    /// Sums of the tasks' progress.
    pub progress: TaskProgress,
    /// Bytes of all files of the scans.
    pub bytes_total: u64,
    /// Bytes of the tasks' results that went to the driver.
    pub bytes_exchanged: u64,
    /// Requests of the driver that listed objects of exchanges.
    #[serde(default)]
    pub exchange_lists: u64,
    /// The most memory that one sandbox held.
    pub peak_memory: u64,
}

/// A ranked observation with its evidence.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What it is, in one line.
    pub title: String,
    /// The numbers that show it.
    pub evidence: String,
    /// What to do.
    pub advice: String,
}
