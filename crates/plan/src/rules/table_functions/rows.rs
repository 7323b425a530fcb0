//! The plan of a call: a column with its list of rows, and an unnest of the list.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, NullHandling, UnnestOptions, internal_err};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::{Alias, ScalarFunction};
use datafusion::logical_expr::logical_plan::{EmptyRelation, Projection, Unnest};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use snowmelt_execute::udf::RemoteUdf;

/// The name of the column with the list.
pub(super) const ROWS: &str = "__rows";

/// The rows of a call, over one row without columns. Its arguments may be columns of other plans:
/// their types are checked where these are known.
pub(super) fn called(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Result<LogicalPlan> {
    let Some(remote) = RemoteUdf::inside(function) else {
        return internal_err!("`{}` is not a function of the user", function.name());
    };
    let field = Field::new(ROWS, remote.result_type().clone(), true);
    let schema = DFSchema::from_unqualified_fields(vec![field].into(), HashMap::new())?;
    let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
    let call = ScalarFunction::new_udf(Arc::clone(function), args);
    let list = Projection::try_new_with_schema(
        vec![Expr::ScalarFunction(call).alias(ROWS)],
        Arc::new(LogicalPlan::EmptyRelation(nothing)),
        Arc::new(schema),
    )?;
    let rows = unnested(LogicalPlan::Projection(list), false)?;
    let columns = values(rows.schema())?.into_iter().map(|(name, value)| value.alias(name));
    Ok(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::new(rows))?))
}

/// Returns a row for each row in the lists of a plan. With `keeps_all`, a row without a list, or
/// with an empty one, stays, with nulls.
pub(super) fn unnested(plan: LogicalPlan, keeps_all: bool) -> Result<LogicalPlan> {
    unnested_lists(plan, vec![Column::new_unqualified(ROWS)], keeps_all)
}

/// Returns a row for each place in several lists of a row, with the elements at this place. With
/// `keeps_all`, a row whose lists are all missing or empty stays, with nulls.
pub(super) fn unnested_lists(
    plan: LogicalPlan,
    lists: Vec<Column>,
    keeps_all: bool,
) -> Result<LogicalPlan> {
    let handling = match keeps_all {
        true => NullHandling::PreserveAndExpandEmpty,
        false => NullHandling::Drop,
    };
    let options = UnnestOptions::new().with_null_handling(handling);
    Ok(LogicalPlan::Unnest(Unnest::try_new(Arc::new(plan), lists, options)?))
}

/// The columns of the rows of an unnested plan: name and value.
pub(super) fn values(unnested: &DFSchema) -> Result<Vec<(String, Expr)>> {
    let DataType::Struct(columns) = unnested.field_with_unqualified_name(ROWS)?.data_type() else {
        return internal_err!("the rows of a table function are structs");
    };
    let row = || Expr::Column(Column::new_unqualified(ROWS));
    let value = |name: &str| (name.to_owned(), get_field(row(), name));
    Ok(columns.iter().map(|column| value(column.name())).collect())
}

/// A call by itself: the only column of a projection over one row without columns.
pub(super) fn call_of(projection: &Projection) -> Option<&ScalarFunction> {
    let [Expr::Alias(Alias { expr, name, .. })] = projection.expr.as_slice() else { return None };
    let Expr::ScalarFunction(call) = expr.as_ref() else { return None };
    let is_alone = matches!(projection.input.as_ref(), LogicalPlan::EmptyRelation(_));
    let is_table = || RemoteUdf::inside(&call.func).is_some_and(RemoteUdf::is_table);
    (is_alone && name == ROWS && is_table()).then_some(call)
}
