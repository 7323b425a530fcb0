//! The profile of a query: where its time, bytes and memory went. Pure data; the command line
//! shows it as text and as a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_wire::{OperatorMetric, TaskProgress};
use utoipa::ToSchema;

use super::cost::Cost;

/// The profile of one query: its time, bytes and memory by phase, operator and sandbox. Times are microseconds since the query was
/// accepted; amounts of memory are bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Profile {
    /// The identifier of the query.
    pub query: String,
    /// The SQL text of the query.
    pub sql: String,
    /// When the query was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// Time from the query's acceptance to the last row of its answer.
    pub wall_us: u64,
    /// The number of rows of the answer.
    pub rows: u64,
    /// The phases in order, without gaps from 0 to `wall_us`: packages, plan, start, run, merge.
    pub phases: Vec<PhaseSpan>,
    /// The lanes: one for each task and each UDF instance.
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
    /// Sums over the tasks of the query.
    pub totals: Totals,
    /// The beginning of what instances of functions wrote to stdout and stderr, by the function.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub printed: BTreeMap<String, String>,
    /// The cost of the query.
    #[serde(default)]
    pub cost: Cost,
    /// Observations of what is worth changing, the most important first.
    pub findings: Vec<Finding>,
}

/// The time of a phase of the query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PhaseSpan {
    /// The name of the phase: `packages`, `plan`, `start`, `run` or `merge`.
    pub phase: String,
    /// When the phase began, in microseconds since the query was accepted.
    pub from_us: u64,
    /// When the phase ended, in microseconds since the query was accepted.
    pub to_us: u64,
}

/// A stage of the query: a program that several tasks ran, each on its part of the rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StageProfile {
    /// The number of the stage.
    pub stage: u32,
    /// The numbers of the stages whose outputs this one reads.
    pub reads: Vec<u32>,
    /// The place where the stage's rows go: to the `driver`, or the medium of its exchange, such as
    /// `files`.
    pub medium: String,
    /// The columns or expressions by whose hash the stage's output is split; empty if it is not
    /// split.
    #[serde(default)]
    pub keys: Vec<String>,
    /// The number of the stage's tasks that are done.
    pub tasks: u32,
    /// The number of attempts that were started for these tasks, with those that did not count.
    pub attempts: u32,
    /// The number of attempts that were started because a worker was lost.
    pub retries: u32,
    /// The number of attempts that were started because an output was lost, of the task itself or
    /// of a task that it reads.
    pub remakes: u32,
    /// The number of attempts that were started because another one of the same task was slow
    /// (twins).
    pub twins: u32,
    /// Rows of the stage's results or outputs.
    pub rows: u64,
    /// Row groups that statistics left out of the stage's scans before they were divided between
    /// tasks.
    #[serde(default)]
    pub left_out: u64,
    /// Bytes that the stage read from storage.
    pub bytes_read: u64,
    /// Bytes of other stages' outputs that the stage's tasks were given to read.
    pub bytes_received: u64,
    /// Bytes of the stage's outputs, or of its results on the wire.
    pub bytes_sent: u64,
    /// When the first sandbox for a task of the stage was requested.
    pub from_us: u64,
    /// When the last task of the stage was done.
    pub to_us: u64,
    /// Processor time of the stage's tasks and of the functions beside them, in microseconds.
    pub cpu_us: u64,
    /// The most memory that one of the stage's sandboxes held.
    pub peak_memory: u64,
    /// The partition of the stage's output that has most rows; `None` if it has no rows, or no
    /// output.
    #[serde(default)]
    pub largest: Option<LargestPartition>,
    /// The attempts that did not count, in the order of their ends.
    #[serde(default)]
    pub discarded: Vec<DiscardedAttempt>,
}

/// The partition of a stage's output with most rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LargestPartition {
    /// The number of the partition.
    pub partition: u32,
    /// The number of partitions of the output.
    pub of: u32,
    /// Rows of the partition.
    pub rows: u64,
    /// The partition's rows as a share of all rows of the output, from 0 to 1.
    pub share: f64,
    /// The rows of the median partition, empty ones included.
    pub median_rows: u64,
}

/// An attempt of a task that did not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscardedAttempt {
    /// The number of the task in its stage.
    pub task: u32,
    /// The number of the attempt of the task, from 0.
    pub attempt: u32,
    /// When the attempt was started.
    pub from_us: u64,
    /// When the attempt ended.
    pub to_us: u64,
    /// The reason: `lost` with its worker, `inputs lost`, `output lost`, `overtaken` by another
    /// attempt, or `cancelled`.
    pub why: String,
}

/// The work of one sandbox in a query: a worker with its task, or an instance of a UDF.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// The name of the lane: `worker 3`, or with the name of a UDF `score 3`.
    pub name: String,
    /// The number of the stage of the lane's task.
    #[serde(default)]
    pub stage: u32,
    /// The host of the sandbox; absent if the query had one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// True if the sandbox was started for this query.
    pub cold: bool,
    /// When the sandbox was requested.
    pub asked_us: u64,
    /// When the sandbox was ready, with a UDF's code loaded: about `asked_us` for an idle one taken
    /// again.
    pub ready_us: u64,
    /// When the task began, because every other sandbox of the task was ready as well.
    #[serde(default)]
    pub began_us: u64,
    /// When the task was done.
    pub done_us: u64,
    /// Rows of the task's result; for a UDF the rows that the instance was given.
    pub rows: u64,
    /// The most memory that the sandbox held; absent if it is not known.
    pub peak_memory: Option<u64>,
    /// The memory limit of the sandbox.
    #[serde(default)]
    pub memory_limit: u64,
    /// Processor time of the task, in microseconds; 0 where it is not known.
    pub cpu_us: u64,
    /// Time that the set-up functions (`@sm.setup`) of a UDF's instance took, before `ready_us`; 0
    /// if it has none, or they ran for an earlier query.
    #[serde(default)]
    pub setup_us: u64,
    /// The number of attempts before the one that succeeded.
    pub retries: u32,
    /// The amounts that the task read, and its calls of UDFs.
    pub progress: TaskProgress,
}

impl Lane {
    /// Returns when the lane began to run its task, in microseconds since the query was accepted.
    pub fn runs_from_us(&self) -> u64 {
        self.began_us.max(self.ready_us)
    }

    /// Returns how long the sandbox was held for the task, in microseconds.
    pub fn held_us(&self) -> u64 {
        self.done_us.saturating_sub(self.asked_us)
    }

    /// Returns how long the lane ran its task, in microseconds.
    pub fn ran_us(&self) -> u64 {
        self.done_us.saturating_sub(self.runs_from_us())
    }
}

/// Sums over the tasks of a query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// The number of tasks.
    pub tasks: u32,
    /// The number of sandboxes that were started for this query.
    pub cold: u32,
    /// The number of idle sandboxes that were taken again.
    pub warm: u32,
    /// Seconds of function time: the sum over all sandboxes of the time that they were held.
    pub function_seconds: f64,
    /// Processor seconds of the tasks.
    pub cpu_seconds: f64,
    /// Sums of the tasks' progress: what they read, and their calls of UDFs.
    pub progress: TaskProgress,
    /// Bytes of all files of the scans.
    pub bytes_total: u64,
    /// Bytes of the tasks' results that went to the driver.
    pub bytes_exchanged: u64,
    /// The number of requests of the driver that listed objects of exchanges.
    #[serde(default)]
    pub exchange_lists: u64,
    /// The most memory that one sandbox held, in bytes.
    pub peak_memory: u64,
}

/// An observation about a query, with its evidence and advice. Findings are ranked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// The observation, in one line.
    pub title: String,
    /// The numbers that show it.
    pub evidence: String,
    /// The advice: the change that is likely to help.
    pub advice: String,
}
