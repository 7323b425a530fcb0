//! Groups, windows and first rows of a subquery in LATERAL: those of one combination of outer values.

use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Aggregate, DistinctOn, Window};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};

use super::inner::Outer;
use super::parts::{is_same, refused};

impl Outer {
    pub(super) fn distinct_on(&self, distinct: &DistinctOn) -> Result<LogicalPlan> {
        let input = self.rows_of(&distinct.input)?;
        let values = self.all_values(&input)?;
        let resolve = |expr: &Expr| Ok(self.resolved(expr, &input)?.data);
        let mut on = values.clone();
        on.extend(distinct.on_expr.iter().map(resolve).collect::<Result<Vec<_>>>()?);
        let selected = distinct.select_expr.iter().zip(distinct.schema.iter());
        let mut selected = selected
            .map(|(expr, (table, field))| self.named(expr, table, field, &input))
            .collect::<Result<Vec<_>>>()?;
        selected.extend(values.clone());
        let order = match &distinct.sort_expr {
            Some(keys) => {
                let first = values.into_iter().map(|value| value.sort(true, false));
                Some(first.chain(self.order(keys, &input)?).collect())
            }
            None => None,
        };
        LogicalPlanBuilder::from(input).distinct_on(on, selected, order)?.build()
    }

    pub(super) fn grouped(&self, aggregate: &Aggregate) -> Result<LogicalPlan> {
        let is_set = |group: &Expr| matches!(group, Expr::GroupingSet(_));
        if aggregate.group_expr.iter().any(is_set) {
            return Err(refused("GROUPING SETS in LATERAL are not supported"));
        }
        let input = self.rows_of(&aggregate.input)?;
        let all = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
        let mut all = all
            .zip(aggregate.schema.iter())
            .map(|(expr, (table, field))| self.named(expr, table, field, &input))
            .collect::<Result<Vec<_>>>()?;
        let computed = all.split_off(aggregate.group_expr.len());
        all.extend(self.all_values(&input)?);
        let is_total = aggregate.group_expr.is_empty();
        let grouped = LogicalPlanBuilder::from(input).aggregate(all, computed)?.build()?;
        match is_total {
            true => self.with_totals(aggregate, grouped),
            false => Ok(grouped),
        }
    }

    /// An aggregate without groups has a row for each combination, also for one without rows.
    pub(super) fn with_totals(
        &self,
        aggregate: &Aggregate,
        grouped: LogicalPlan,
    ) -> Result<LogicalPlan> {
        let there = format!("there is {}", self.names[0]);
        let mut found: Vec<Expr> =
            aggregate.schema.columns().into_iter().map(Expr::Column).collect();
        for (place, name) in self.names.iter().enumerate() {
            found.push(self.value(place, &grouped)?.alias(format!("found {name}")));
        }
        found.push(lit(true).alias(&there));
        let grouped = LogicalPlanBuilder::from(grouped).project(found)?.build()?;
        let mut same = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let found = Expr::Column(Column::new_unqualified(format!("found {name}")));
            same.push(is_same(self.value(place, &self.values)?, found));
        }
        let all = LogicalPlanBuilder::from(self.values.clone())
            .join_on(grouped, JoinType::Left, same)?
            .build()?;
        let mut columns = Vec::new();
        for (expr, (table, field)) in aggregate.aggr_expr.iter().zip(aggregate.schema.iter()) {
            let Expr::AggregateFunction(call) = expr.clone().unalias() else {
                return Err(refused("this aggregate in LATERAL is not supported"));
            };
            let value = Expr::from((table, field));
            let without = call.func.default_value(field.data_type())?;
            columns.push(match without.is_null() {
                true => value,
                false => {
                    let is_there = Expr::Column(Column::new_unqualified(&there)).is_not_null();
                    when(is_there, value)
                        .otherwise(lit(without))?
                        .alias_qualified(table.cloned(), field.name())
                }
            });
        }
        columns.extend(self.all_values(&all)?);
        LogicalPlanBuilder::from(all).project(columns)?.build()
    }

    pub(super) fn windowed(&self, window: &Window) -> Result<LogicalPlan> {
        let input = self.rows_of(&window.input)?;
        let values = self.all_values(&input)?;
        let first = window.input.schema().fields().len();
        let fields = window.schema.iter().skip(first);
        let numbered = window.window_expr.iter().zip(fields).map(|(expr, (_, field))| {
            let Expr::WindowFunction(mut call) = self.resolved(expr, &input)?.data.unalias() else {
                return Err(refused("this window function in LATERAL is not supported"));
            };
            call.params.partition_by.extend(values.clone());
            Ok(Expr::WindowFunction(call).alias(field.name()))
        });
        let numbered = numbered.collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(input).window(numbered)?.build()
    }
}
