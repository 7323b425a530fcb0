//! Parts of a query that several others read, such as a common table expression, are planned once.
//!
//! DataFusion plans such a part anew wherever it is read, with the columns and filters that are
//! needed there, so that the plans differ and each would run. Here the part is a table for those who
//! read it: they say which columns and rows they need, the part has all of these, and its rows are
//! the output of one stage ([`SharedExec`](crate::operators::SharedExec)).
//!
//! Invariant: a part with values that may be others the next time is planned anew.

mod find;
mod reduce;
mod required_columns;
mod table;
mod worth;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;
use snowmelt_execute::tree::PlanNode;

use crate::estimate::likely_tasks::likely_tasks;
use crate::operators::may_differ;
use crate::rules::joins::independent;
use crate::rules::with_null_safe_keys;
use find::{SharedPart, divide};
use required_columns::{Need, needs};
use worth::is_worth;

/// Makes the optimised physical plan of a query for a largest number of tasks, and for the bytes of
/// files that are worth a task.
///
/// # Errors
/// An error in the SQL, or a plan that DataFusion does not support.
pub(crate) async fn physical_plan(
    logical: LogicalPlan,
    state: &SessionState,
    tasks: (usize, u64),
) -> Result<PlanNode> {
    let analyzed = state.analyzer().execute_and_check(logical, &state.options(), |_, _| {})?;
    let mut alone = HashSet::new();
    // Each time, at least one more part is planned wherever it is read.
    loop {
        let (plan, parts) = divide(&analyzed, &alone)?;
        if parts.is_empty() {
            break;
        }
        match with_parts(plan, parts, state, tasks).await {
            Ok(Ok(plan)) => return Ok(plan),
            Ok(Err(not_worth)) if alone.insert(Arc::clone(&not_worth)) => (),
            Ok(Err(_)) => break,
            Err(why) => {
                tracing::debug!(%why, "parts of the query are planned wherever they are read");
                break;
            }
        }
    }
    physical(&optimized(analyzed, state)?, state, tasks).await
}

fn optimized(analyzed: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let optimized = state.optimizer().optimize(analyzed, state, |_, _| {})?;
    with_null_safe_keys(optimized, state)
}

async fn physical(
    optimized: &LogicalPlan,
    state: &SessionState,
    tasks: (usize, u64),
) -> Result<PlanNode> {
    let physical = state.query_planner().create_physical_plan(optimized, state).await?;
    let merged = independent::merge_shared(physical)?;
    let tasks = likely_tasks(&merged, tasks.0, tasks.1);
    reduce::reduce(merged, tasks)
}

/// Plans the parts and then their readers. A part is optimised when all of its readers are, and
/// planned before them. Returns a part that is not worth it, if there is one.
async fn with_parts(
    plan: LogicalPlan,
    parts: Vec<SharedPart>,
    state: &SessionState,
    tasks: (usize, u64),
) -> Result<Result<PlanNode, Arc<LogicalPlan>>> {
    let plan = optimized(plan, state)?;
    let mut needed = needs(&plan)?;
    let mut ready: Vec<(SharedPart, Need, LogicalPlan)> = Vec::with_capacity(parts.len());
    for part in parts {
        // Nobody reads what the optimiser left out.
        let Some(need) = needed.remove(&part.table.name) else { continue };
        if need.is_of_some_rows() && part.is_union() {
            return Ok(Err(part.whole));
        }
        let body = optimized(need.of(&part)?, state)?;
        for (name, more) in needs(&body)? {
            needed.entry(name).or_default().add(more);
        }
        ready.push((part, need, body));
    }
    if needed.is_empty() {
        for (part, need, body) in ready.into_iter().rev() {
            let rows = physical(&body, state, tasks).await?;
            if may_differ(&rows) {
                return Err(DataFusionError::Internal("it may have other rows".to_owned()));
            }
            if !is_worth(&rows, need.readers()) {
                return Ok(Err(part.whole));
            }
            part.table.has(need.columns(), rows)?;
        }
        return physical(&plan, state, tasks).await.map(Ok);
    }
    Err(DataFusionError::Internal("a part of the query is read before it is planned".to_owned()))
}
