//! Runs the stages of a query: each begins once all stages that it reads are complete.
//!
//! Stages that do not depend on each other run at the same time, and so do the tasks of a stage.
//! The first permanent failure ends the query; dropping the other attempts cancels them.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use futures::stream::{FuturesUnordered, StreamExt};
use snowmelt_plan::query::PlannedQuery;
use snowmelt_plan::results::{MEMORY_BYTES, Spool};
use snowmelt_plan::tasks::Division;
use tokio::time::MissedTickBehavior;

use super::Board;
use crate::driver::runner::RunOptions;
use crate::driver::tasks::{ProgressTracker, QueryContext, SharedRecords};
use crate::driver::{Reporter, TaskRunner};
use crate::{Error, Result};

/// How often slow tasks are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs all stages. The results go to the queues of the driver's plan.
pub(crate) async fn run_all(
    query: Arc<PlannedQuery>,
    runner: Arc<dyn TaskRunner>,
    reporter: Arc<dyn Reporter>,
    options: RunOptions,
    done: SharedRecords,
) -> Result<()> {
    let spool = Spool::new(MEMORY_BYTES, runner.spool().map_err(Error::Spool)?);
    let stages = query.cut.stages.len();
    let tracker = Arc::new(ProgressTracker::new(stages, query.bytes_total(), reporter));
    let shared = QueryContext { runner, spool, tracker };
    let RunOptions { workers, task_bytes, scan_task_bytes, .. } = options;
    let division = Division { workers, task_bytes, scan_task_bytes };
    let mut running = FuturesUnordered::new();
    let mut board = Board::new(&query, &shared, division, options, done);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    // After a pause of the driver, what has come meanwhile is read before the next look.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    board.proceed(&mut running)?;
    while !board.is_complete() {
        tokio::select! {
            biased;
            ended = running.next() => match ended {
                Some(Some(ended)) => board.ended(ended)?,
                // Cancelled.
                Some(None) => (),
                None => return Err(nothing_runs()),
            },
            _ = looks.tick() => board.look(&mut running)?,
        }
        board.proceed(&mut running)?;
    }
    Ok(())
}

/// The internal error that no task runs, although tasks wait: each of them needs a task that runs,
/// or will.
fn nothing_runs() -> Error {
    DataFusionError::Internal("tasks of the query wait for outputs that no task makes".to_owned())
        .into()
}
