//! DataFusion's session for planning, and the settings that plan and execution share.
//!
//! Invariant: with these settings a plan has no exchange below its merges, so that it can be cut
//! there; and an execution never moves a file from one partition to another, because the other
//! partition may belong to another worker.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::TableFunction;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_types::Report;

use super::rules::PushDownSemiJoins;
use super::statement::Statement;
use super::{BATCH_ROWS, QuerySpec, merge, names, sql_error};
use crate::checked::{self, CheckIntegers};
use crate::udf::{RemoteUdf, UdfPool};
use crate::{Error, Result};

/// Settings for the execution of a plan.
pub(crate) fn execution_config(partitions: usize, batch_rows: usize) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(partitions.max(1))
        .with_batch_size(batch_rows.max(1))
        .with_information_schema(false);
    let options = config.options_mut();
    // Otherwise a partition without remaining files takes those of other workers' partitions.
    options.execution.enable_file_stream_work_stealing = false;
    // The first read of a file fetches its footer; this size is enough for most files.
    options.execution.parquet.metadata_size_hint = Some(64 << 10);
    config
}

/// A session with the functions of a query, but without tables.
pub(super) fn planning(spec: &QuerySpec, pool: &Arc<UdfPool>) -> Result<SessionContext> {
    let mut state = SessionStateBuilder::new()
        .with_config(planning_config(spec.workers))
        .with_default_features()
        .with_analyzer_rule(Arc::new(CheckIntegers::default()))
        // After DataFusion's: then subqueries are joins, and no filters are left between joins.
        .with_optimizer_rule(Arc::new(PushDownSemiJoins))
        .build();
    checked::register(&mut state)?;
    let session = SessionContext::new_with_state(state);
    for signature in &spec.udfs {
        session.register_udf(RemoteUdf::from_signature(signature, Arc::clone(pool))?.into());
    }
    Ok(session)
}

fn planning_config(workers: u32) -> SessionConfig {
    let mut config = execution_config(workers as usize, BATCH_ROWS)
        .with_repartition_aggregations(false)
        .with_repartition_joins(false)
        .with_repartition_windows(false)
        // Workers sort their own rows and the driver merges: no exchange is needed for that.
        .with_repartition_sorts(true)
        .with_round_robin_repartition(false)
        // The table splits its files by row groups itself.
        .with_repartition_file_scans(false)
        .with_collect_statistics(true);
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.optimizer.repartition_file_min_size = 0;
    options.execution.planning_concurrency = 1;
    config
}

/// The optimised physical plan of a statement. An error in the SQL gives a report with a caret.
pub(super) async fn physical_plan(
    session: &SessionContext,
    statement: &Statement,
    spec: &QuerySpec,
) -> Result<Arc<dyn ExecutionPlan>> {
    let state = session.state();
    let wrong = |error| match sql_error::plan(&error, &spec.sql, &state, &spec.tables) {
        Some(report) => Error::Sql(Box::new(report)),
        None => Error::Sql(Box::new(Error::Execution(error).report())),
    };
    let mut query = statement.query.clone();
    let logical = loop {
        match state.statement_to_plan(query.clone()).await {
            Ok(plan) => break plan,
            Err(error) if names::correct_case(&mut query, &error) => (),
            Err(error) => return Err(wrong(error)),
        }
    };
    super::refuse::check_logical(&logical)?;
    let logical = names::with_written_names(logical, &query).map_err(wrong)?;
    let physical = state.create_physical_plan(&logical).await.map_err(wrong)?;
    merge::replace_exchanges(physical).map_err(wrong)
}

/// The built-in functions by name, for the decoding of plans. Created once per process.
pub(crate) fn function_registry() -> &'static SessionState {
    static REGISTRY: LazyLock<SessionState> = LazyLock::new(|| {
        let mut state = SessionStateBuilder::new()
            .with_config(execution_config(1, BATCH_ROWS))
            .with_default_features()
            .build();
        let registered = checked::register(&mut state);
        debug_assert!(registered.is_ok(), "a state takes any function");
        state
    });
    &REGISTRY
}

/// Names of all functions that SQL may call, for "did you mean".
pub(super) fn function_names(state: &SessionState) -> Vec<String> {
    let mut names: Vec<String> = state.udfs().into_iter().collect();
    names.extend(state.udafs());
    names.extend(state.udwfs());
    let tables = state.table_functions();
    names.extend(tables.values().map(|function: &Arc<TableFunction>| function.name().to_owned()));
    names.retain(|name| !checked::is_operator(name));
    names
}
