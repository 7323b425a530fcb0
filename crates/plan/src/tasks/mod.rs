//! The tasks of a stage: how many, and what each of them reads.
//!
//! | member | owns |
//! |---|---|
//! | `task` | what a worker runs, and what it needs for that |
//! | `stage_tasks` | a stage as tasks |
//! | `division` | how many tasks a stage is worth |
//! | `spread`, `ranges` | partitions with too many rows, ranges of sorted rows |
//! | `outputs`, `stage_reads` | outputs of earlier tasks, and which of them a partition reads |
//! | `determinism_check` | what a task gives when it runs again |
//! | `sent_plans`, `sent_footers` | what a task is sent of plans and footers |

mod determinism_check;
mod division;
mod outputs;
mod ranges;
mod sent_footers;
mod sent_plans;
mod spread;
mod stage_reads;
pub(crate) mod stage_tasks;
mod task;

pub use determinism_check::{Repeat, repeats};
pub use division::{Division, TASK_BYTES, worth_a_task};
pub use outputs::{Outputs, TaskOutput};
pub use sent_plans::leave_out_files;
pub use stage_reads::partitions_read;
pub use stage_tasks::{reads, reads_by_range, tasks};
pub use task::PlannedTask;
