//! A task that does not fit into memory runs once more in a way that needs less.
//!
//! A hash join that was refused memory is done by sorting. A worker that the kernel has ended names
//! no operator: the next one joins by sorting, too, and its operators reserve half as much, so that
//! they put their rows into scratch sooner. Other tasks of the stage go on as they are: their part
//! may fit.
//!
//! The further attempt may give its rows in another order. None of the first one were read: results
//! of a stage that joins or groups are read once a task is complete (`plan/streaming.rs`).

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use snowmelt_types::{Code, ErrorReport};

use super::board::Board;
use super::runner::PlannedTask;
use super::tasks::Live;
use crate::fault::is_of_join;
use crate::plan::{can_sort_merge, spills_sooner};
use crate::{Error, Result};

/// Why the first attempt of such a task did not count.
pub(super) const JOIN_TOO_LARGE: &str = "a hash join did not fit into memory";

/// The same if the kernel ended its worker: what held the memory is not known.
pub(super) const JOIN_ENDED: &str = "a worker with a hash join reached its memory limit";

/// The same in a task without a hash join.
pub(super) const GROUPS_ENDED: &str = "a worker reached its memory limit";

/// How a task can need less memory.
struct Smaller {
    sort_merge: bool,
    half_memory: bool,
    reason: &'static str,
    instead: &'static str,
}

impl Smaller {
    fn new(task: &PlannedTask, plan: &Arc<dyn ExecutionPlan>, why: &ErrorReport) -> Option<Self> {
        let sorts = !task.sort_merge && can_sort_merge(plan);
        let joins = |half_memory, reason| Self {
            sort_merge: true,
            half_memory,
            reason,
            instead: "it sorts instead",
        };
        match (why.known_code(), why.input.is_some()) {
            (Code::WORKER_MEMORY, true) => {
                (sorts && is_of_join(why)).then(|| joins(false, JOIN_TOO_LARGE))
            }
            // No operator was refused memory.
            (Code::WORKER_MEMORY, false) if task.half_memory => None,
            (Code::WORKER_MEMORY, false) if sorts => Some(joins(true, JOIN_ENDED)),
            (Code::WORKER_MEMORY, false) => spills_sooner(plan).then_some(Self {
                sort_merge: false,
                half_memory: true,
                reason: GROUPS_ENDED,
                instead: "it uses its scratch sooner",
            }),
            _ => None,
        }
    }
}

impl Board<'_> {
    /// An attempt has failed, and would fail again in the same way.
    pub(super) fn failed(&mut self, task: u32, live: &Live, why: ErrorReport) -> Result<()> {
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
        self.entries[task as usize].needs_less(smaller.sort_merge, smaller.half_memory);
        self.graph.failed(task);
        self.restore()
    }
}
