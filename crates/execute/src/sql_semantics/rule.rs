//! An analyzer rule that replaces operators on integers, divisions of decimals and some casts by the
//! checked functions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, TryCast,
};
use datafusion::optimizer::AnalyzerRule;

use super::cast_barrier::{self, merges_decimals};
use super::decimal_division::{self, divides};
use super::integer_operators::{self, OperatorKind};
use super::replacement::replace_parts;
use super::rounding;
use super::text;

/// Runs after type coercion: both sides of an operator then have the same type.
#[derive(Debug)]
pub struct CheckIntegers {
    functions: Vec<(OperatorKind, Arc<ScalarUDF>)>,
    divide: Arc<ScalarUDF>,
    nearest: Arc<ScalarUDF>,
    barrier: Arc<ScalarUDF>,
    text: Arc<ScalarUDF>,
}

impl Default for CheckIntegers {
    fn default() -> Self {
        let functions = integer_operators::all().into_iter();
        Self {
            functions: functions.map(|f| (f.kind(), Arc::new(ScalarUDF::from(f)))).collect(),
            divide: Arc::new(ScalarUDF::from(decimal_division::Divide::default())),
            nearest: Arc::new(ScalarUDF::from(rounding::function())),
            barrier: Arc::new(ScalarUDF::from(cast_barrier::function())),
            text: Arc::new(ScalarUDF::from(text::function())),
        }
    }
}

impl AnalyzerRule for CheckIntegers {
    fn name(&self) -> &str {
        "check_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let replaced = replace_parts(plan, |part, schema| Ok(self.checked(part, schema)))?;
            match replaced.transformed {
                true => replaced.map_data(LogicalPlan::recompute_schema),
                false => Ok(replaced),
            }
        })?;
        Ok(rewritten.data)
    }
}

impl CheckIntegers {
    fn checked(&self, expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let expression = match self.rounded(expression, schema) {
            Ok(rounded) => return Transformed::yes(rounded),
            Err(expression) => expression,
        };
        let integer = |e: &Expr| type_of(e, schema).filter(DataType::is_integer);
        let kind = match &expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match integer(left) {
                left if left.is_some() && left == integer(right) => OperatorKind::Binary(*op),
                _ => return Transformed::no(expression),
            },
            Expr::Negative(inner) if integer(inner).is_some() => OperatorKind::Negate,
            _ => return Transformed::no(expression),
        };
        // Comparisons and divisions are binary too, but have no checked function.
        let Some((_, function)) = self.functions.iter().find(|(known, _)| *known == kind) else {
            return Transformed::no(expression);
        };
        let args = match expression {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
            Expr::Negative(inner) => vec![*inner],
            other => return Transformed::no(other),
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), args);
        Transformed::yes(Expr::ScalarFunction(call))
    }
}

impl CheckIntegers {
    /// Replaces a quotient of decimals, or a cast to an integer, by one that is rounded. `Err` has
    /// any other expression as it is.
    fn rounded(&self, expression: Expr, schema: &DFSchema) -> std::result::Result<Expr, Expr> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
                if type_of(&left, schema)
                    .zip(type_of(&right, schema))
                    .is_some_and(|(left, right)| divides(&left, &right)) =>
            {
                let call = ScalarFunction::new_udf(Arc::clone(&self.divide), vec![*left, *right]);
                Ok(Expr::ScalarFunction(call))
            }
            Expr::Cast(cast) => match self.of_cast(&cast.expr, cast.field.data_type(), schema) {
                Some(CastPart::Argument(expr)) => Ok(Expr::Cast(Cast { expr, ..cast })),
                Some(CastPart::Result) => Ok(called(&self.barrier, Expr::Cast(cast))),
                None => Err(Expr::Cast(cast)),
            },
            Expr::TryCast(cast) => match self.of_cast(&cast.expr, cast.field.data_type(), schema) {
                Some(CastPart::Argument(expr)) => Ok(Expr::TryCast(TryCast { expr, ..cast })),
                Some(CastPart::Result) => Ok(called(&self.barrier, Expr::TryCast(cast))),
                None => Err(Expr::TryCast(cast)),
            },
            expression => Err(expression),
        }
    }

    /// How a cast from an expression to a type is checked; `None` if it stays as it is.
    fn of_cast(&self, expr: &Expr, to: &DataType, schema: &DFSchema) -> Option<CastPart> {
        let from = type_of(expr, schema)?;
        let argument = |function| CastPart::Argument(Box::new(called(function, expr.clone())));
        if rounding::leaves_out(&from, to) {
            return Some(argument(&self.nearest));
        }
        if text::is_of_time(&from, to) {
            return Some(argument(&self.text));
        }
        merges_decimals(&from, to).then_some(CastPart::Result)
    }
}

/// The part of a cast on which a function is called.
enum CastPart {
    Argument(Box<Expr>),
    Result,
}

fn called(function: &Arc<ScalarUDF>, expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![expr]))
}

/// The type of an expression. A checked function has the type of its first argument: computing it
/// by the planner at each nested level would name and type all levels below again.
fn type_of(expression: &Expr, schema: &DFSchema) -> Option<DataType> {
    let mut expression = expression;
    while let Expr::ScalarFunction(call) = expression
        && call.func.name().starts_with(integer_operators::PREFIX)
        && ![decimal_division::NAME, text::NAME].contains(&call.func.name())
    {
        expression = call.args.first()?;
    }
    expression.get_type(schema).ok()
}
