//! Joins with calls whose arguments are columns of the other side, and with UNNEST of such columns,
//! as an unnest over that side.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Alias, ScalarFunction};
use datafusion::logical_expr::logical_plan::{Filter, Join, Projection, SubqueryAlias, Unnest};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use snowmelt_types::{Code, ErrorReport};

use super::rows::{ROWS, call_of, unnested, unnested_lists, values};

/// Replaces the joins with calls that refer to their other side.
pub(crate) fn lateral(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) => of_join(join),
        node => Ok(Transformed::no(node)),
    });
    let plan = plan.data()?;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Projection(projection) = node {
            check_alone(projection)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(plan)
}

/// A call that stays alone must not refer to anything.
fn check_alone(projection: &Projection) -> Result<()> {
    let Some(call) = call_of(projection) else { return Ok(()) };
    resolved(call, projection.input.schema()).map(drop)
}

/// The right side of a join: what is computed from the rows of a call, from the top.
struct Side<'a> {
    steps: Vec<&'a LogicalPlan>,
    rows: RowSource<'a>,
}

/// The source of the rows.
#[derive(Clone, Copy)]
enum RowSource<'a> {
    Call(&'a ScalarFunction),
    /// UNNEST of the lists of a projection.
    Lists(&'a Unnest, &'a Projection),
}

impl<'a> Side<'a> {
    /// Takes the right side of a join apart. `None` if the call does not refer to the other side,
    /// or if there is no call.
    fn of(right: &'a LogicalPlan) -> Option<Self> {
        let mut steps = Vec::new();
        let mut node = right;
        loop {
            node = match node {
                LogicalPlan::Subquery(subquery) => subquery.subquery.as_ref(),
                LogicalPlan::Unnest(unnest) => {
                    let LogicalPlan::Projection(list) = unnest.input.as_ref() else { return None };
                    if let Some(call) = call_of(list) {
                        // The one above the unnest is the same for the whole join.
                        steps.pop();
                        let refers = call.args.iter().any(refers);
                        return refers.then_some(Self { steps, rows: RowSource::Call(call) });
                    }
                    let is_alone = matches!(list.input.as_ref(), LogicalPlan::EmptyRelation(_))
                        && unnest.schema.fields().len() == list.expr.len();
                    return (is_alone && list.expr.iter().any(Expr::contains_outer))
                        .then_some(Self { steps, rows: RowSource::Lists(unnest, list) });
                }
                LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
                | LogicalPlan::Projection(Projection { input, .. })
                | LogicalPlan::Filter(Filter { input, .. }) => {
                    steps.push(node);
                    input.as_ref()
                }
                _ => return None,
            };
        }
    }

    fn name(&self) -> &str {
        match self.rows {
            RowSource::Call(call) => call.func.name(),
            RowSource::Lists(..) => "unnest",
        }
    }

    /// Whether the side has just the columns of the call, perhaps under other names.
    fn is_plain(&self) -> bool {
        self.steps.iter().all(|step| match step {
            LogicalPlan::Projection(projection) => projection.expr.iter().all(is_column),
            LogicalPlan::Filter(_) => false,
            _ => true,
        })
    }
}

fn of_join(join: Join) -> Result<Transformed<LogicalPlan>> {
    let Some(side) = Side::of(&join.right) else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let conditions = conditions(&join);
    let keeps_all = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left if conditions.is_empty() && side.is_plain() => true,
        _ => return Err(unsupported_join(side.name())),
    };
    let left_schema = Arc::clone(join.left.schema());
    let left: Vec<Expr> = left_schema.columns().into_iter().map(Expr::Column).collect();
    let mut joined = match side.rows {
        RowSource::Call(call) => {
            let call = Expr::ScalarFunction(resolved(call, &left_schema)?).alias(ROWS);
            let list = [left.clone(), vec![call]].concat();
            let list = Projection::try_new(list, Arc::clone(&join.left))?;
            Joined::of(LogicalPlan::Projection(list), &left_schema, keeps_all)?
        }
        RowSource::Lists(unnest, lists) => {
            let name = |place: usize| format!("{ROWS} {place}");
            let values = lists.expr.iter().enumerate().map(|(place, list)| {
                Ok(inner(list.clone().unalias(), &left_schema)?.alias(name(place)))
            });
            let values = [left.clone(), values.collect::<Result<Vec<_>>>()?].concat();
            let input = Projection::try_new(values, Arc::clone(&join.left))?;
            let places = unnest.exec_columns.iter().map(|column| {
                lists
                    .schema
                    .index_of_column(column)
                    .map(|place| Column::new_unqualified(name(place)))
            });
            let plan = unnested_lists(
                LogicalPlan::Projection(input),
                places.collect::<Result<_>>()?,
                keeps_all,
            )?;
            let columns = unnest.schema.columns().into_iter().enumerate();
            let columns = columns.map(|(place, column)| {
                (column, Expr::Column(Column::new_unqualified(name(place))))
            });
            Joined { columns: columns.collect(), plan, left: &left_schema }
        }
    };
    for step in side.steps.iter().rev() {
        joined.apply(step)?;
    }
    let named = joined.columns.into_iter().map(|(column, value)| {
        let Column { relation, name, .. } = column;
        value.alias_qualified(relation, name)
    });
    let columns = left.into_iter().chain(named).collect();
    let mut plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined.plan))?);
    if let Some(condition) = conjunction(conditions) {
        plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
    }
    Ok(Transformed::yes(plan))
}

/// The rows of a call beside the rows of the left side of its join.
struct Joined<'a> {
    plan: LogicalPlan,
    left: &'a DFSchema,
    /// The columns that the right side has so far, and their values in terms of `plan`. They are
    /// kept apart, because names of both sides may be equal, and no plan can have both.
    columns: Vec<(Column, Expr)>,
}

impl<'a> Joined<'a> {
    fn of(list: LogicalPlan, left: &'a DFSchema, keeps_all: bool) -> Result<Self> {
        let plan = unnested(list, keeps_all)?;
        let values = values(plan.schema())?;
        let columns =
            values.into_iter().map(|(name, value)| (Column::new_unqualified(name), value));
        Ok(Self { columns: columns.collect(), plan, left })
    }

    /// Takes over a step of the right side.
    fn apply(&mut self, step: &LogicalPlan) -> Result<()> {
        match step {
            LogicalPlan::Filter(filter) => {
                let predicate = self.value(&filter.predicate)?;
                let input = std::mem::take(&mut self.plan);
                self.plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
            }
            LogicalPlan::Projection(projection) => {
                let values = projection.expr.iter().map(|expression| self.value(expression));
                let columns = projection.schema.columns().into_iter();
                self.columns = columns.zip(values.collect::<Result<Vec<_>>>()?).collect();
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { schema, .. }) => {
                let values = std::mem::take(&mut self.columns).into_iter().map(|(_, value)| value);
                self.columns = schema.columns().into_iter().zip(values).collect();
            }
            _ => (),
        }
        Ok(())
    }

    /// An expression of the right side in terms of the plan.
    fn value(&self, expression: &Expr) -> Result<Expr> {
        let replaced = expression.clone().transform(|part| match part {
            Expr::Column(column) => {
                let same =
                    |known: &Column| known.name == column.name && known.relation == column.relation;
                let found = self.columns.iter().find(|(known, _)| same(known));
                let Some((_, value)) = found else {
                    return internal_err!("`{column}` is not a column of a table function");
                };
                Ok(Transformed::yes(value.clone()))
            }
            part => of_left(part, self.left),
        });
        replaced.data()
    }
}

/// The conditions of a join that are not always true.
fn conditions(join: &Join) -> Vec<Expr> {
    let keys = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    keys.chain(join.filter.clone()).filter(|condition| !is_true(condition)).collect()
}

fn is_true(condition: &Expr) -> bool {
    match condition {
        Expr::Literal(value, _) => value == &ScalarValue::Boolean(Some(true)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            matches!(left.as_ref(), Expr::Literal(value, _) if !value.is_null()) && left == right
        }
        _ => false,
    }
}

fn is_column(expression: &Expr) -> bool {
    match expression {
        Expr::Column(_) => true,
        Expr::Alias(Alias { expr, .. }) => is_column(expr),
        _ => false,
    }
}

/// An expression with columns of the left side instead of references to them.
fn inner(expression: Expr, left: &DFSchema) -> Result<Expr> {
    expression.transform(|part| of_left(part, left)).data()
}

fn of_left(part: Expr, left: &DFSchema) -> Result<Transformed<Expr>> {
    match part {
        Expr::OuterReferenceColumn(_, column) if left.has_column(&column) => {
            Ok(Transformed::yes(Expr::Column(column)))
        }
        part => Ok(Transformed::no(part)),
    }
}

fn refers(argument: &Expr) -> bool {
    // The visitor never fails.
    argument.exists(|part| Ok(is_reference(part))).unwrap_or(true)
}

fn is_reference(part: &Expr) -> bool {
    matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(..))
}

/// The call with columns of the left side.
fn resolved(call: &ScalarFunction, left: &DFSchema) -> Result<ScalarFunction> {
    let argument = |argument: &Expr| {
        let argument = inner(argument.clone(), left)?;
        let found = argument.transform(|part| match part {
            Expr::Column(column) => {
                let found = Column::from(left.qualified_field_from_column(&column)?);
                Ok(Transformed::yes(Expr::Column(found)))
            }
            Expr::OuterReferenceColumn(_, column) => Err(not_before(call.func.name(), &column)),
            part => Ok(Transformed::no(part)),
        });
        found.data()
    };
    let args = call.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
    Ok(ScalarFunction::new_udf(Arc::clone(&call.func), args))
}

fn not_before(name: &str, column: &Column) -> DataFusionError {
    let message =
        format!("`{name}` is called with `{column}`, which no table joined before it has");
    refused(
        message,
        "write the table and the call in one FROM, the table first: FROM t, f(t.column)",
    )
}

fn unsupported_join(name: &str) -> DataFusionError {
    let message = format!(
        "`{name}` is called for rows of another table, by a join that is neither CROSS JOIN nor \
         JOIN nor LEFT JOIN … ON TRUE of the call alone"
    );
    refused(message, "filter in a subquery of the joined rows, or let the function filter")
}

fn refused(message: String, hint: &str) -> DataFusionError {
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint);
    DataFusionError::External(Box::new(report))
}
