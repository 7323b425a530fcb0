//! Names of all functions that SQL may call.

use std::sync::Arc;

use datafusion::catalog::TableFunction;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use snowmelt_execute::sql_semantics;

use crate::sql::equivalents;

/// Names of all functions that SQL may call, for "did you mean".
pub(crate) fn function_names(state: &SessionState) -> Vec<String> {
    let mut names: Vec<String> = state.udfs().into_iter().collect();
    names.extend(state.udafs());
    names.extend(state.udwfs());
    names.extend(equivalents::known().map(str::to_owned));
    let tables = state.table_functions();
    names.extend(tables.values().map(|function: &Arc<TableFunction>| function.name().to_owned()));
    names.retain(|name| !sql_semantics::is_operator(name));
    names
}
