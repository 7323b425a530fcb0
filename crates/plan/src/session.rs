//! DataFusion's session for planning: its settings, functions and rules.

use std::sync::Arc;

use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_execute::codec::KeepNullable;
use snowmelt_execute::context::{BATCH_ROWS, execution_config};
use snowmelt_execute::sql_functions;
use snowmelt_execute::sql_semantics;
use snowmelt_execute::sql_semantics::{
    CheckIntegers, CheckSubqueries, CompareIntervals, OrderWindows,
};
use snowmelt_execute::udf::{self, CheckAggregateCalls, UdfPool};
use snowmelt_types::{Code, ErrorReport, Report};

use crate::rules::table_functions::lateral;
use crate::rules::{
    CompareDates, DatesWithIntervals, ForgetOrder, HideConstants, IndependentJoins, JoinOrder,
    KeepCallsAbove, MANY_COLUMNS, PlainKeys, PushDownConditions, PushDownSemiJoins, ReuseCalls,
    TableFunctions, all_columns, exact, summary, without_same_columns,
};
use crate::spec::QuerySpec;
use crate::sql::errors::sql_error;
use crate::sql::naming::{names, sort_keys};
use crate::sql::{ResultKind, Statement, StatementWriter, asof};
use crate::{Error, Result, common_parts};

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A session with the functions of a query, but without tables.
pub(crate) fn planning(spec: &QuerySpec, pool: &Arc<UdfPool>) -> Result<SessionContext> {
    let mut state = SessionStateBuilder::new()
        .with_config(planning_config(spec.workers))
        .with_default_features()
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(logical_rules())
        .with_physical_optimizer_rules(optimizer_rules(spec.scan_task_bytes))
        .with_relation_planners(vec![Arc::new(TableFunctions::of(&spec.udfs, pool)?)])
        .build();
    state.register_expr_planner(Arc::new(DatesWithIntervals))?;
    sql_semantics::register(&mut state)?;
    sql_functions::register(&mut state)?;
    state.register_expr_planner(Arc::new(sql_functions::Multiples::default()))?;
    state.register_udf(asof::function())?;
    // Few queries have them, and they are many.
    if spec.sql.to_ascii_lowercase().contains("exclude") {
        sql_functions::exclusions::register(&mut state)?;
    }
    let session = SessionContext::new_with_state(state);
    for signature in &spec.udfs {
        udf::register(&session, signature, pool)?;
    }
    Ok(session)
}

fn planning_config(workers: u32) -> SessionConfig {
    let mut config = execution_config(workers as usize, BATCH_ROWS)
        // Each task runs one partition alone: to divide it further gains nothing.
        .with_round_robin_repartition(false)
        // The table splits its files by row groups itself.
        .with_repartition_file_scans(false)
        .with_collect_statistics(true);
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.optimizer.repartition_file_min_size = 0;
    // As joins: tasks have no state in common in which a subquery's value could be.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.execution.planning_concurrency = 1;
    config
}

/// DataFusion's rules, of which the last ones give expressions their types, and this project's.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(OrderWindows::default()));
    rules.extend([
        Arc::new(CompareDates) as Arc<dyn AnalyzerRule + Send + Sync>,
        Arc::new(CheckIntegers::default()),
        Arc::new(CompareIntervals::default()),
        Arc::new(CheckSubqueries::default()),
        Arc::new(CheckAggregateCalls),
    ]);
    rules
}

/// DataFusion's rules, and this project's.
fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let conditions = PushDownConditions::default();
    for rule in rules.iter_mut().filter(|rule| rule.name() == conditions.name()) {
        *rule = Arc::new(PushDownConditions::default());
    }
    let keys = PlainKeys::default();
    for rule in rules.iter_mut().filter(|rule| rule.name() == keys.name()) {
        *rule = Arc::new(PlainKeys::default());
    }
    // After DataFusion's: then subqueries are joins, and no filters are left between joins.
    rules.push(Arc::new(PushDownSemiJoins));
    rules.push(Arc::new(ReuseCalls));
    rules
}

/// DataFusion's rules without those that connect operators of the final plan, which run for each
/// stage ([`finish`]), and with this project's order and forms of joins.
fn optimizer_rules(scan_task_bytes: u64) -> Vec<Rule> {
    let selection = JoinSelection::new();
    let after = FilterPushdown::new_post_optimization();
    let check = SanityCheckPlan::new();
    let mut rules = PhysicalOptimizer::new().rules;
    rules.retain(|rule| rule.name() != after.name() && rule.name() != check.name());
    let place = rules.iter().position(|rule| rule.name() == selection.name()).unwrap_or_default();
    rules.splice(
        place..=place,
        [Arc::new(JoinOrder { scan_task_bytes }) as Rule, Arc::new(IndependentJoins)],
    );
    KeepCallsAbove::within(&mut rules);
    rules.insert(0, Arc::new(KeepNullable));
    rules.insert(0, Arc::new(ForgetOrder));
    HideConstants::within(&mut rules);
    rules
}

/// Passes the filters of joins and sorts to the scans of the same stage, and checks that each input
/// has the order and distribution that its operator needs.
pub(crate) fn finish(
    plan: Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = FilterPushdown::new_post_optimization().optimize(plan, config.options())?;
    Ok(SanityCheckPlan::new().optimize(plan, config.options())?)
}

/// The optimised physical plan of a statement. An error in the SQL gives a report with a caret.
pub(crate) async fn physical_plan(
    session: &SessionContext,
    statement: &Statement,
    spec: &QuerySpec,
) -> Result<Arc<dyn ExecutionPlan>> {
    let state = session.state();
    let wrong = |error| match sql_error::plan(&error, &spec.sql, &state, &spec.tables) {
        Some(report) => Error::Sql(Box::new(report)),
        None => Error::Sql(Box::new(Error::Execution(error).report())),
    };
    let declared = udf::declared_types(&spec.udfs)?;
    let mut query = statement.query.clone();
    let mut writing = StatementWriter::new(&state, &statement.values, declared);
    let logical = loop {
        let (typed, keys_are_merged) = writing.as_in_sql(&query);
        match all_columns::planned(typed, &state).await.and_then(lateral) {
            Ok(_) if !keys_are_merged => return Err(unknown_keys()),
            Ok(plan) if !sort_keys::sorts_by_item(&plan).map_err(wrong)? => break plan,
            Ok(_) if writing.sort_by_keys(&query) => (),
            Ok(_) => return Err(unclear_key()),
            Err(error) if names::correct_case(&mut query, &error) => (),
            Err(error) if writing.learns_from(&query, &error) => (),
            Err(error) => return Err(wrong(error)),
        }
    };
    let logical = exact(logical).map_err(wrong)?;
    let logical = names::with_written_names(logical, &query).map_err(wrong)?;
    let logical = match statement.result_kind {
        ResultKind::Summary => summary(logical, &state).map_err(wrong)?,
        _ => logical,
    };
    let logical = without_same_columns(logical, MANY_COLUMNS).map_err(wrong)?;
    let tasks = (spec.workers.max(1) as usize, spec.scan_task_bytes);
    common_parts::physical_plan(logical, &state, tasks).await.map_err(wrong)
}

fn unclear_key() -> Error {
    let message = "ORDER BY has an expression with the name of an item, which is also a column of the \
                   table";
    let report = ErrorReport::new(Code::SQL_NAME, message);
    Error::Sql(Box::new(report.hint("give the item another name with AS")))
}

fn unknown_keys() -> Error {
    let message = "USING or NATURAL of an outer join, with a table whose columns are not known before \
                   the join";
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message);
    Error::Sql(Box::new(report.hint("write the join with ON")))
}
