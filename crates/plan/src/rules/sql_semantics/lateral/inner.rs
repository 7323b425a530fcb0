//! A subquery, computed for each different combination of values of the outer columns that it refers
//! to.
//!
//! The values are put below each operator that needs them, as further columns: groups and the rows of
//! windows are those of one combination, and so are the rows that a limit counts.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::logical_plan::{
    Distinct, FetchType, Filter, Limit, Projection, SkipType, Unnest,
};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFunctionDefinition, lit,
};

use super::parts::refused;
use crate::rules::sql_semantics::outer_shape::has_outer;

/// The outer columns that a subquery refers to.
pub(super) struct Outer {
    pub(super) columns: Vec<Column>,
    /// Names of the columns with their values.
    pub(super) names: Vec<String>,
    /// The plan of the different combinations of the columns' values.
    pub(super) values: LogicalPlan,
}

impl Outer {
    /// Collects the values of `columns` from `left`. `number` makes the names different from others
    /// in the same plan.
    pub(super) fn new(left: &LogicalPlan, columns: Vec<Column>, number: usize) -> Result<Self> {
        let name = |place| format!("outer value {number}.{place}");
        let names: Vec<String> = (1..=columns.len()).map(name).collect();
        let values = columns.iter().zip(&names);
        let values = values.map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let values = LogicalPlanBuilder::from(left.clone())
            .project(values.collect::<Vec<Expr>>())?
            .distinct()?
            .build()?;
        Ok(Self { columns, names, values })
    }

    /// The rows of a subquery, with its columns and the values that they are for.
    pub(super) fn rows_of(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        if !has_outer(plan)? {
            return match plan {
                LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => {
                    Ok(self.values.clone())
                }
                plan => {
                    LogicalPlanBuilder::from(self.values.clone()).cross_join(plan.clone())?.build()
                }
            };
        }
        match plan {
            LogicalPlan::Subquery(it) => self.rows_of(&it.subquery),
            LogicalPlan::SubqueryAlias(it) => {
                LogicalPlanBuilder::from(self.rows_of(&it.input)?).alias(it.alias.clone())?.build()
            }
            LogicalPlan::Projection(it) => self.projected(it),
            LogicalPlan::Filter(it) => {
                let input = self.rows_of(&it.input)?;
                let predicate = self.resolved(&it.predicate, &input)?.data;
                Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?))
            }
            LogicalPlan::Sort(it) if it.fetch.is_none() => {
                let input = self.rows_of(&it.input)?;
                let order = self.order(&it.expr, &input)?;
                LogicalPlanBuilder::from(input).sort(order)?.build()
            }
            LogicalPlan::Limit(it) => self.limited(it),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                LogicalPlanBuilder::from(self.rows_of(input)?).distinct()?.build()
            }
            LogicalPlan::Distinct(Distinct::On(it)) => self.distinct_on(it),
            LogicalPlan::Aggregate(it) => self.grouped(it),
            LogicalPlan::Window(it) => self.windowed(it),
            LogicalPlan::Union(it) => self.united(it),
            LogicalPlan::Values(it) => self.listed(it),
            LogicalPlan::Join(it) => self.joined(it),
            LogicalPlan::Unnest(it) => {
                let input = Arc::new(self.rows_of(&it.input)?);
                let unnest = Unnest::try_new(input, it.exec_columns.clone(), it.options.clone())?;
                Ok(LogicalPlan::Unnest(unnest))
            }
            _ => Err(refused("this form of subquery in LATERAL is not supported")),
        }
    }

    /// The value of an outer column in a plan with the values.
    pub(super) fn value(&self, place: usize, plan: &LogicalPlan) -> Result<Expr> {
        let name = &self.names[place];
        match plan.schema().iter().find(|(_, field)| field.name() == name) {
            Some(found) => Ok(Expr::from(found)),
            None => Err(refused("this form of subquery in LATERAL is not supported")),
        }
    }

    pub(super) fn all_values(&self, plan: &LogicalPlan) -> Result<Vec<Expr>> {
        (0..self.names.len()).map(|place| self.value(place, plan)).collect()
    }

    /// An expression with the values instead of the outer columns.
    pub(super) fn resolved(&self, expr: &Expr, plan: &LogicalPlan) -> Result<Transformed<Expr>> {
        expr.clone().transform_up(|part| {
            let Expr::OuterReferenceColumn(_, column) = &part else {
                return Ok(Transformed::no(part));
            };
            match self.columns.iter().position(|known| known == column) {
                Some(place) => Ok(Transformed::yes(self.value(place, plan)?)),
                None => Ok(Transformed::no(part)),
            }
        })
    }

    /// An expression that keeps the name that it has in the subquery.
    pub(super) fn named(
        &self,
        expr: &Expr,
        table: Option<&TableReference>,
        field: &FieldRef,
        plan: &LogicalPlan,
    ) -> Result<Expr> {
        let resolved = self.resolved(expr, plan)?;
        Ok(match resolved.transformed {
            true => resolved.data.unalias().alias_qualified(table.cloned(), field.name()),
            false => resolved.data,
        })
    }

    pub(super) fn order(&self, keys: &[Sort], plan: &LogicalPlan) -> Result<Vec<Sort>> {
        let key = |key: &Sort| Ok(key.with_expr(self.resolved(&key.expr, plan)?.data));
        keys.iter().map(key).collect()
    }

    fn projected(&self, projection: &Projection) -> Result<LogicalPlan> {
        let input = self.rows_of(&projection.input)?;
        let columns = projection.expr.iter().zip(projection.schema.iter());
        let mut columns = columns
            .map(|(expr, (table, field))| self.named(expr, table, field, &input))
            .collect::<Result<Vec<_>>>()?;
        columns.extend(self.all_values(&input)?);
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?))
    }

    /// The first rows of each combination.
    fn limited(&self, limit: &Limit) -> Result<LogicalPlan> {
        let below = |input: &Arc<LogicalPlan>| {
            Arc::new(LogicalPlan::Limit(Limit { input: Arc::clone(input), ..limit.clone() }))
        };
        match limit.input.as_ref() {
            // A projection above a sort: the rows are limited where their order is known.
            LogicalPlan::Projection(it) => {
                let mut above = it.clone();
                above.input = below(&it.input);
                return self.projected(&above);
            }
            LogicalPlan::SubqueryAlias(it) => {
                let input = self.rows_of(&below(&it.input))?;
                return LogicalPlanBuilder::from(input).alias(it.alias.clone())?.build();
            }
            _ => (),
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(refused(
                "LIMIT of a value that is no number, in LATERAL, is not supported",
            ));
        };
        let (input, order) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => {
                let input = self.rows_of(&sort.input)?;
                let order = self.order(&sort.expr, &input)?;
                (input, order)
            }
            input => (self.rows_of(input)?, Vec::new()),
        };
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let name = format!("number of {}", self.names[0]);
        let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
        let mut number = WindowFunction::new(function, Vec::new());
        number.params.partition_by = self.all_values(&input)?;
        number.params.order_by = order;
        number.params.window_frame = WindowFrame::new(Some(true));
        let number = Expr::from(number).alias(&name);
        let place = |rows: usize| lit(u64::try_from(rows).unwrap_or(u64::MAX));
        let number_of = Expr::Column(Column::new_unqualified(name));
        let mut kept = number_of.clone().gt(place(skip));
        if let Some(fetch) = fetch {
            kept = kept.and(number_of.lt_eq(place(skip.saturating_add(fetch))));
        }
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(input).window([number])?.filter(kept)?.project(columns)?.build()
    }
}
