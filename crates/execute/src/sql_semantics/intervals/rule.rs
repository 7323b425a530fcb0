//! An analyzer rule that compares, sorts and joins intervals by their lengths.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, Case, InList, InSubquery, ScalarFunction, Sort, WindowFunction,
};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    Subquery, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use super::refusal::unsupported;
use super::{function, groups};
use crate::sql_semantics::replacement::{is_comparison, replace_parts};

/// Functions that compare the elements of a list.
const COMPARING: [&str; 19] = [
    "array_distinct",
    "array_except",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_max",
    "array_min",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_sort",
    "array_union",
    "list_histogram",
    "list_mode",
    "list_quantile_disc",
];

/// Runs after type coercion: both sides of a comparison then have the same type.
#[derive(Debug)]
pub struct CompareIntervals {
    span: Arc<ScalarUDF>,
}

impl Default for CompareIntervals {
    fn default() -> Self {
        Self { span: Arc::new(ScalarUDF::from(function())) }
    }
}

impl AnalyzerRule for CompareIntervals {
    fn name(&self) -> &str {
        "compare_intervals"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| self.rewrite(plan))?;
        Ok(rewritten.data)
    }
}

/// Sorts the rows of windows by the lengths of intervals. Runs before type coercion, which has no
/// frames over intervals.
#[derive(Debug, Default)]
pub struct OrderWindows {
    lengths: CompareIntervals,
}

impl AnalyzerRule for OrderWindows {
    fn name(&self) -> &str {
        "order_windows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let LogicalPlan::Window(_) = plan else { return Ok(Transformed::no(plan)) };
            replace_parts(plan, |part, schema| match part {
                Expr::WindowFunction(window) => self.ordered(window, schema),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(rewritten.data)
    }
}

impl OrderWindows {
    fn ordered(
        &self,
        mut window: Box<WindowFunction>,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let of_intervals = window.params.args.iter().any(|of| is_interval(of, schema));
        if of_intervals && is_extreme(window.fun.name()).is_some() {
            return Err(unsupported(
                "min and max of intervals are no window functions here",
                "compute with numbers: min(extract(epoch FROM x)) OVER (…)",
            ));
        }
        let mut is_rewritten = self.lengths.sort(&mut window.params.order_by, schema);
        for key in &mut window.params.partition_by {
            let length = self.lengths.key(key.clone(), schema);
            is_rewritten |= length.transformed;
            *key = length.data;
        }
        Ok(Transformed::new_transformed(Expr::WindowFunction(window), is_rewritten))
    }
}

impl CompareIntervals {
    fn rewrite(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let rewritten = replace_parts(plan, |part, schema| self.compared(part, schema))?;
        let rewritten = rewritten.transform_data(|plan| Ok(self.joined(plan)))?;
        let rewritten = rewritten.transform_data(|plan| Ok(self.sorted(plan)))?;
        let rewritten =
            rewritten.transform_data(|plan| groups::by_lengths(plan, |expr| self.length(expr)))?;
        match rewritten.transformed {
            true => rewritten.map_data(LogicalPlan::recompute_schema),
            false => Ok(rewritten),
        }
    }

    /// Replaces the keys of a join that are intervals by their lengths.
    fn joined(&self, plan: LogicalPlan) -> Transformed<LogicalPlan> {
        let LogicalPlan::Join(Join { left, right, on, .. }) = &plan else {
            return Transformed::no(plan);
        };
        let keys: Vec<(Transformed<Expr>, Transformed<Expr>)> = on
            .iter()
            .map(|(ours, theirs)| {
                (self.key(ours.clone(), left.schema()), self.key(theirs.clone(), right.schema()))
            })
            .collect();
        if !keys.iter().any(|(ours, _)| ours.transformed) {
            return Transformed::no(plan);
        }
        let on = keys.into_iter().map(|(ours, theirs)| (ours.data, theirs.data)).collect();
        match plan {
            LogicalPlan::Join(join) => Transformed::yes(LogicalPlan::Join(Join { on, ..join })),
            other => Transformed::no(other),
        }
    }

    /// Sorts rows by the lengths of intervals, also the rows of which `SELECT DISTINCT ON (k)`
    /// takes the first.
    fn sorted(&self, mut plan: LogicalPlan) -> Transformed<LogicalPlan> {
        let is_rewritten = match &mut plan {
            LogicalPlan::Sort(order) => self.sort(&mut order.expr, order.input.schema()),
            LogicalPlan::Distinct(Distinct::On(on)) => {
                let mut is_rewritten = false;
                for key in &mut on.on_expr {
                    let length = self.key(key.clone(), on.input.schema());
                    is_rewritten |= length.transformed;
                    *key = length.data;
                }
                self.sort(on.sort_expr.iter_mut().flatten(), on.input.schema()) || is_rewritten
            }
            _ => false,
        };
        Transformed::new_transformed(plan, is_rewritten)
    }

    fn compared(&self, expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let key = |expr: Box<Expr>| Box::new(self.key(*expr, schema).data);
        Ok(match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_comparison(op) && is_interval(&left, schema) =>
            {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(key(left), op, key(right))))
            }
            Expr::Between(Between { expr, negated, low, high }) if is_interval(&expr, schema) => {
                let between = Between::new(key(expr), negated, key(low), key(high));
                Transformed::yes(Expr::Between(between))
            }
            Expr::InList(InList { expr, list, negated }) if is_interval(&expr, schema) => {
                let list = list.into_iter().map(|one| self.key(one, schema).data).collect();
                Transformed::yes(Expr::InList(InList { expr: key(expr), list, negated }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated })
                if is_interval(&expr, schema) =>
            {
                let subquery = self.lengths_of(subquery)?;
                Transformed::yes(Expr::InSubquery(InSubquery::new(key(expr), subquery, negated)))
            }
            Expr::Case(Case { expr: Some(expr), when_then_expr, else_expr })
                if is_interval(&expr, schema) =>
            {
                let whens = when_then_expr.into_iter().map(|(when, then)| (key(when), then));
                let when_then_expr = whens.collect();
                let expr = Some(key(expr));
                Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
            }
            Expr::ScalarFunction(call) => self.of_call(call, schema)?,
            Expr::AggregateFunction(call) => self.aggregate(call, schema)?,
            other => Transformed::no(other),
        })
    }

    /// Replaces the only column of a subquery by its lengths.
    fn lengths_of(&self, subquery: Subquery) -> Result<Subquery> {
        let plan = subquery.subquery.as_ref();
        let (qualifier, field) = plan.schema().qualified_field(0);
        let column = Expr::from((qualifier, field));
        let length = self.key(column, plan.schema()).data.alias(field.name());
        let plan = LogicalPlanBuilder::from(plan.clone()).project([length])?.build()?;
        Ok(Subquery { subquery: Arc::new(plan), ..subquery })
    }

    /// `nullif` as a comparison. Other functions that compare intervals are refused.
    fn of_call(&self, call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match (call.func.name(), call.args.as_slice()) {
            ("nullif", [one, other]) if is_interval(one, schema) => {
                let key = |expr: &Expr| self.key(expr.clone(), schema).data;
                let null = lit(ScalarValue::try_from(one.get_type(schema)?)?);
                let result = when(key(one).eq(key(other)), null).otherwise(one.clone())?;
                Ok(Transformed::yes(result))
            }
            ("greatest" | "least", [one, ..]) if is_interval(one, schema) => Err(unsupported(
                &format!("`{}` of intervals is not supported", call.func.name()),
                "write CASE WHEN a > b THEN a ELSE b END",
            )),
            ("array_has", [list, one]) if has_intervals(list, schema) => match list {
                Expr::ScalarFunction(list) if list.func.name() == "make_array" => {
                    let list = list.args.iter().map(|one| self.key(one.clone(), schema).data);
                    let one = self.key(one.clone(), schema).data;
                    Ok(Transformed::yes(one.in_list(list.collect(), false)))
                }
                _ => Err(unsupported(
                    "the search for an interval in a list is not supported",
                    "unnest the list, and compare its elements with =",
                )),
            },
            (name, [list, ..]) if COMPARING.contains(&name) && has_intervals(list, schema) => {
                let message = format!("`{name}` of intervals is not supported");
                Err(unsupported(
                    &message,
                    "unnest the list, and use min, max, DISTINCT or ORDER BY",
                ))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        }
    }

    /// Rewrites aggregates of intervals: the least and the greatest interval as the first one in
    /// the order of lengths, and the count of distinct intervals as the count of distinct lengths.
    fn aggregate(
        &self,
        mut call: AggregateFunction,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let mut is_rewritten = self.sort(&mut call.params.order_by, schema);
        if let Some(is_least) = is_extreme(call.func.name())
            && let [of] = call.params.args.as_slice()
            && is_interval(of, schema)
        {
            let key = self.key(of.clone(), schema).data;
            call.func = first_value_udaf();
            call.params.distinct = false;
            call.params.order_by = vec![Sort::new(key, is_least, false)];
            is_rewritten = true;
        }
        let name = call.func.name();
        if (call.params.distinct || name == "approx_distinct")
            && call.params.args.iter().any(|of| is_interval(of, schema))
        {
            if !matches!(name, "count" | "approx_distinct") {
                return Err(unsupported(
                    &format!("`{name}` of different intervals is not supported"),
                    "use SELECT DISTINCT in a subquery",
                ));
            }
            for of in &mut call.params.args {
                *of = self.key(of.clone(), schema).data;
            }
            is_rewritten = true;
        }
        Ok(Transformed::new_transformed(Expr::AggregateFunction(call), is_rewritten))
    }

    fn sort<'s>(&self, keys: impl IntoIterator<Item = &'s mut Sort>, schema: &DFSchema) -> bool {
        let mut is_rewritten = false;
        for Sort { expr, .. } in keys {
            if is_interval(expr, schema) {
                *expr = self.key(expr.clone(), schema).data;
                is_rewritten = true;
            }
        }
        is_rewritten
    }

    /// Returns the length of an interval, and any other expression as it is.
    fn key(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match is_interval(&expr, schema) {
            true => Transformed::yes(self.length(expr)),
            false => Transformed::no(expr),
        }
    }

    fn length(&self, interval: Expr) -> Expr {
        let call = ScalarFunction::new_udf(Arc::clone(&self.span), vec![interval]);
        Expr::ScalarFunction(call)
    }
}

fn has_intervals(list: &Expr, schema: &DFSchema) -> bool {
    match list.get_type(schema) {
        Ok(DataType::List(item) | DataType::LargeList(item)) => {
            matches!(item.data_type(), DataType::Interval(_))
        }
        _ => false,
    }
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// Whether an aggregate is the least value or the greatest; `None` for others.
fn is_extreme(function: &str) -> Option<bool> {
    match function {
        "min" => Some(true),
        "max" => Some(false),
        _ => None,
    }
}
