//! INTERSECT ALL and EXCEPT ALL: set operations that count duplicates.
//!
//! DataFusion plans both as joins of whole rows, which keep or remove each row of the left side
//! however often it is there. Here the equal rows of each side are numbered, and the numbers are
//! compared too: the third of three equal rows has no partner on a side that has two.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, JoinType, NullEquality, internal_err};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition,
};

/// Names of the columns that are added to both sides.
const NUMBERS: [&str; 2] = ["__number_of_left", "__number_of_right"];

/// Makes set operations with ALL compare how often a row is there.
pub(super) fn count_duplicates(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if keeps_duplicates(&join) => Ok(Transformed::yes(numbered(join)?)),
        node => Ok(Transformed::no(node)),
    })
    .data()
}

/// Before the optimiser, no other join is one of these with equal nulls. Without ALL, the left side
/// has no duplicates.
fn keeps_duplicates(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

fn numbered(join: Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns();
    let left = with_number(join.left, NUMBERS[0])?;
    let right = with_number(join.right, NUMBERS[1])?;
    let column = |expr: Expr| expr.try_as_col().cloned();
    let keys: Option<Vec<(Column, Column)>> =
        join.on.into_iter().map(|(one, other)| Some((column(one)?, column(other)?))).collect();
    let Some(keys) = keys else { return internal_err!("a set operation compares expressions") };
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
    ours.push(Column::from_name(NUMBERS[0]));
    theirs.push(Column::from_name(NUMBERS[1]));
    LogicalPlanBuilder::from(left)
        .join_detailed(right, join.join_type, (ours, theirs), join.filter, join.null_equality)?
        .project(columns.into_iter().map(Expr::Column))?
        .build()
}

/// The rows with their number among those that are equal.
fn with_number(plan: Arc<LogicalPlan>, name: &str) -> Result<LogicalPlan> {
    let plan = Arc::unwrap_or_clone(plan);
    let row_number = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = Expr::from(WindowFunction::new(row_number, Vec::new()))
        .partition_by(columns)
        .build()?
        .alias(name);
    LogicalPlanBuilder::from(plan).window([number])?.build()
}
