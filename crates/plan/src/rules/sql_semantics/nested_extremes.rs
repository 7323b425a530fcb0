//! `max` and `min` of lists and structs.
//!
//! DataFusion compares structs without their nulls, and fails for lists of lists. Here the largest is
//! the first one in descending order, in which a null inside is larger than all values, as in DuckDB and
//! PostgreSQL. What cannot be sorted so is refused.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, Sort};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition, and};
use snowmelt_execute::sql_semantics::{replace_parts, sql_name};

/// Takes the first list or struct in the order of `max` and `min`.
pub(super) fn by_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let replaced = replace_parts(node, replaced)?;
        match replaced.transformed {
            true => replaced.map_data(LogicalPlan::recompute_schema),
            false => Ok(replaced),
        }
    })
    .data()
}

fn replaced(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match &part {
        Expr::AggregateFunction(call) => {
            if matches!(call.func.name(), "first_value" | "last_value") {
                for key in &call.params.order_by {
                    check("arg_max, arg_min, first and last in the order", &key.expr, schema)?;
                }
            }
            match (extreme(call.func.name()), call.params.args.as_slice()) {
                (Some(ascending), [of]) if is_nested(of, schema) => {
                    check(call.func.name(), of, schema)?;
                    Ok(Transformed::yes(first(of, ascending, &call.params)))
                }
                _ => Ok(Transformed::no(part)),
            }
        }
        Expr::WindowFunction(call) => match (&call.fun, call.params.args.as_slice()) {
            (WindowFunctionDefinition::AggregateUDF(function), [of])
                if extreme(function.name()).is_some() && is_nested(of, schema) =>
            {
                not_impl_err!(
                    "{} of {} with OVER is not supported: aggregate with GROUP BY, and join the result",
                    function.name(),
                    named(&of.get_type(schema)?)
                )
            }
            _ => Ok(Transformed::no(part)),
        },
        _ => Ok(Transformed::no(part)),
    }
}

/// Whether an aggregate takes the smallest of its values, or the largest.
fn extreme(name: &str) -> Option<bool> {
    match name {
        "min" => Some(true),
        "max" => Some(false),
        _ => None,
    }
}

fn first(of: &Expr, ascending: bool, params: &AggregateFunctionParams) -> Expr {
    let is_there = of.clone().is_not_null();
    let filter = match &params.filter {
        Some(filter) => and(filter.as_ref().clone(), is_there),
        None => is_there,
    };
    let order = vec![Sort::new(of.clone(), ascending, !ascending)];
    let args = vec![of.clone()];
    let function = first_value_udaf();
    let filter = Some(Box::new(filter));
    Expr::AggregateFunction(AggregateFunction::new_udf(function, args, false, filter, order, None))
}

fn is_nested(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| of.is_nested())
}

fn named(of: &DataType) -> String {
    match of {
        DataType::Map(..) => "a map".to_owned(),
        of => sql_name(of),
    }
}

fn check(name: &str, expr: &Expr, schema: &DFSchema) -> Result<()> {
    let of = expr.get_type(schema)?;
    match of.is_nested() && !has_order(&of) {
        true => not_impl_err!(
            "{name} of {} is not supported: the elements of lists and structs must be plain values",
            named(&of)
        ),
        false => Ok(()),
    }
}

/// Lists and structs of plain values.
fn has_order(of: &DataType) -> bool {
    match of {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => !element.data_type().is_nested(),
        DataType::Struct(fields) => fields.iter().all(|field| !field.data_type().is_nested()),
        _ => false,
    }
}
