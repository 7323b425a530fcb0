//! Joins and unions in a subquery in LATERAL, and its lists of rows.

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Union, Values};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

use super::inner::Outer;
use super::parts::{is_same, refused};
use crate::rules::sql_semantics::outer_shape::has_outer;

impl Outer {
    pub(super) fn united(&self, union: &Union) -> Result<LogicalPlan> {
        let input = |input: &Arc<LogicalPlan>| {
            let rows = self.rows_of(input)?;
            let mut columns: Vec<Expr> =
                input.schema().columns().into_iter().map(Expr::Column).collect();
            for (place, name) in self.names.iter().enumerate() {
                columns.push(self.value(place, &rows)?.alias(name));
            }
            LogicalPlanBuilder::from(rows).project(columns)?.build()
        };
        self.of_all(union.inputs.iter().map(input).collect::<Result<_>>()?, &union.schema)
    }

    /// The rows of VALUES.
    pub(super) fn listed(&self, list: &Values) -> Result<LogicalPlan> {
        let row = |row: &Vec<Expr>| {
            let fields = list.schema.fields();
            let columns = row.iter().zip(fields).map(|(value, field)| {
                Ok(self.resolved(value, &self.values)?.data.alias(field.name()))
            });
            let mut columns = columns.collect::<Result<Vec<_>>>()?;
            columns.extend(self.all_values(&self.values)?);
            LogicalPlanBuilder::from(self.values.clone()).project(columns)?.build()
        };
        self.of_all(list.values.iter().map(row).collect::<Result<_>>()?, &list.schema)
    }

    /// The rows of several plans, with the names of a schema. The values are their last columns.
    pub(super) fn of_all(&self, plans: Vec<LogicalPlan>, schema: &DFSchema) -> Result<LogicalPlan> {
        let mut plans = plans.into_iter();
        let Some(first) = plans.next() else {
            return Err(refused("this form of subquery in LATERAL is not supported"));
        };
        let all =
            plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?;
        let found: Vec<Expr> = all.schema().columns().into_iter().map(Expr::Column).collect();
        let named = schema.iter().zip(&found).map(|((table, field), column)| {
            column.clone().alias_qualified(table.cloned(), field.name())
        });
        let values = found.iter().skip(schema.fields().len()).cloned();
        let columns: Vec<Expr> = named.chain(values).collect();
        LogicalPlanBuilder::from(all).project(columns)?.build()
    }

    pub(super) fn joined(&self, join: &Join) -> Result<LogicalPlan> {
        use JoinType::{Inner, Left, LeftAnti, LeftSemi};
        let right_refers = has_outer(&join.right)?;
        let keeps_left = match join.join_type {
            Inner => false,
            Left | LeftSemi | LeftAnti => true,
            _ => return Err(refused("a right or full join in LATERAL is not supported")),
        };
        let left_has = keeps_left || has_outer(&join.left)? || !right_refers;
        let left = match left_has {
            true => self.rows_of(&join.left)?,
            false => join.left.as_ref().clone(),
        };
        let mut right = match right_refers {
            true => self.rows_of(&join.right)?,
            false => join.right.as_ref().clone(),
        };
        let mut conditions = Vec::new();
        if left_has && right_refers {
            let mut columns: Vec<Expr> =
                join.right.schema().columns().into_iter().map(Expr::Column).collect();
            for (place, name) in self.names.iter().enumerate() {
                let name = format!("right {name}");
                columns.push(self.value(place, &right)?.alias(&name));
                let same = Expr::Column(Column::new_unqualified(name));
                conditions.push(is_same(self.value(place, &left)?, same));
            }
            right = LogicalPlanBuilder::from(right).project(columns)?.build()?;
        }
        let values = if left_has { left.clone() } else { right.clone() };
        for (one, other) in &join.on {
            let one = self.resolved(one, &values)?.data;
            let other = self.resolved(other, &values)?.data;
            conditions.push(match join.null_equality {
                NullEquality::NullEqualsNull => is_same(one, other),
                NullEquality::NullEqualsNothing => one.eq(other),
            });
        }
        if let Some(filter) = &join.filter {
            conditions.push(self.resolved(filter, &values)?.data);
        }
        let mut columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        columns.extend(self.all_values(&values)?);
        LogicalPlanBuilder::from(left)
            .join_on(right, join.join_type, conditions)?
            .project(columns)?
            .build()
    }
}
