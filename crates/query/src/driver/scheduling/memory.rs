//! A task that does not fit into memory runs again in a way that needs less.
//!
//! A hash join that was refused memory is done by sorting. A worker that the kernel has ended names
//! no operator: the next one joins by sorting, too, and its operators reserve half as much, so that
//! they put their rows into scratch sooner. What is beside the operators' memory (pages of files, free
//! memory of the allocator) is not known, so this is done several times: the last attempt's operators
//! have a sixteenth. An operator that has scratch and is refused memory all the same needs a batch of
//! each part that it merges: the next attempt has smaller batches. Other tasks of the stage go on as
//! they are: their part may fit.
//!
//! The further attempt may give its rows in another order. No row of the first attempt was read:
//! results of a stage that joins or groups are read once a task is complete (`plan/streaming.rs`).

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use snowmelt_execute::fault::{is_of_join, uses_scratch};
use snowmelt_execute::operators::{can_sort_merge, spills_sooner};
use snowmelt_plan::tasks::PlannedTask;
use snowmelt_types::{Code, ErrorReport};

use super::Board;
use crate::driver::tasks::Live;
use crate::{Error, Result};

/// Why an attempt of a task did not count whose hash join was refused memory.
pub(crate) const JOIN_TOO_LARGE: &str = "a hash join did not fit into memory";

/// Why an attempt of a task with a hash join did not count if the kernel ended its worker at its
/// memory limit: what held the memory is not known.
pub(crate) const JOIN_ENDED: &str = "a worker with a hash join reached its memory limit";

/// Why an attempt of a task without a hash join did not count if the kernel ended its worker at its
/// memory limit.
pub(crate) const GROUPS_ENDED: &str = "a worker reached its memory limit";

/// Why an attempt of a task did not count in which an operator with scratch was refused memory.
pub(crate) const BATCHES_TOO_LARGE: &str = "an operator that uses scratch did not fit into memory";

/// How often the memory of a task's operators is halved at most.
const MAX_HALVINGS: u32 = 4;

/// How often the rows of a task's batches are halved at most: fewer cost more time than they save
/// memory.
const MAX_BATCH_HALVINGS: u32 = 5;

/// The halvings of batches for an operator that was refused memory.
const BATCH_HALVINGS: u32 = 2;

/// A way in which a task can need less memory.
struct Smaller {
    sort_merge: bool,
    memory_halvings: u32,
    batch_halvings: u32,
    reason: &'static str,
    instead: &'static str,
}

impl Smaller {
    fn new(task: &PlannedTask, plan: &Arc<dyn ExecutionPlan>, why: &ErrorReport) -> Option<Self> {
        if why.known_code() != Code::WORKER_MEMORY {
            return None;
        }
        let sorts = !task.sort_merge && can_sort_merge(plan);
        // One that joins by sorting spills whatever else it does.
        let spills = task.sort_merge || spills_sooner(plan);
        match why.input.is_some() {
            true if sorts && is_of_join(why) => Some(Self::by_sorting(0, JOIN_TOO_LARGE)),
            true if !(spills && uses_scratch(why)) => None,
            // Its operators share the memory evenly, as where joins are done by sorting: another one
            // may have had all of it.
            true => (task.batch_halvings + BATCH_HALVINGS <= MAX_BATCH_HALVINGS).then_some(Self {
                sort_merge: true,
                memory_halvings: 0,
                batch_halvings: BATCH_HALVINGS,
                reason: BATCHES_TOO_LARGE,
                instead: "its batches are smaller",
            }),
            // No operator was refused memory.
            false if task.memory_halvings >= MAX_HALVINGS => None,
            false if sorts => Some(Self::by_sorting(1, JOIN_ENDED)),
            false => spills.then_some(Self {
                sort_merge: false,
                memory_halvings: 1,
                batch_halvings: u32::from(task.batch_halvings < MAX_BATCH_HALVINGS),
                reason: GROUPS_ENDED,
                instead: "it uses its scratch sooner",
            }),
        }
    }

    fn by_sorting(memory_halvings: u32, reason: &'static str) -> Self {
        let instead = "it sorts instead";
        Self { sort_merge: true, memory_halvings, batch_halvings: 0, reason, instead }
    }
}

impl Board<'_> {
    /// Handles an attempt that has failed, and would fail again in the same way.
    pub(crate) fn failed(&mut self, task: u32, live: &Live, why: ErrorReport) -> Result<()> {
        let entry = &self.entries[task as usize];
        let stage = &self.query.cut.stages[entry.stage];
        let Some(smaller) = Smaller::new(&entry.planned, stage.body(), &why) else {
            return Err(Error::Task(Box::new(why)));
        };
        self.break_gang(task, smaller.reason)?;
        self.discarded(task, live, smaller.reason);
        // Another attempt of the task would fail as well.
        self.cancel(task, "cancelled");
        self.shared.tracker.retried(task, &format!("{}, {}", smaller.reason, smaller.instead));
        self.further(task, &why)?;
        self.entries[task as usize].needs_less(
            smaller.sort_merge,
            smaller.memory_halvings,
            smaller.batch_halvings,
        );
        self.graph.failed(task);
        self.restore()
    }
}
