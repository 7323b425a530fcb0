//! Computes a call that several operators need once, and passes its values on as a column.
//!
//! An operator asks the plan below it for the calls that it needs. Where the lowest of them
//! evaluates such a call for each of its rows, a projection below it computes the call, and the
//! operators above read the column. So no row is called for that would not have been: a call behind
//! CASE, COALESCE, AND or OR reads a column that is there, and never adds one. A column passes
//! through the operators that keep the values of their rows: filters, projections, limits, sorts,
//! windows, and the sides of joins that give each row with its own values.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Filter, Join, Limit, Projection, Sort, SubqueryAlias, Window,
};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::columns::{
    above_first_rows, column_at, columns, filtered, has, named_as, renamed, restored, translated,
    union, within, without, without_known,
};
use super::find::{CallColumn, CallSet, calls_any, column, with_columns};

/// The name of the columns that have the values of calls, with a number.
const COLUMN: &str = "__call";

/// The rule that reuses calls. To be placed after DataFusion's rules: then conditions are where
/// they are evaluated.
#[derive(Debug)]
pub(crate) struct ReuseCalls;

impl OptimizerRule for ReuseCalls {
    fn name(&self) -> &str {
        "reuse_calls"
    }

    /// No order: the rule goes through the whole plan itself.
    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let calls = |node: &LogicalPlan| Ok(node.expressions().iter().any(calls_any));
        if !plan.exists(calls)? {
            return Ok(Transformed::no(plan));
        }
        let mut reuse = Reuse { names: config.alias_generator(), is_used: false };
        let rewritten = reuse.alone(plan.clone())?;
        Ok(match reuse.is_used {
            true => Transformed::yes(rewritten),
            false => Transformed::no(plan),
        })
    }
}

struct Reuse<'a> {
    names: &'a Arc<AliasGenerator>,
    /// True if a call is computed elsewhere, or read.
    is_used: bool,
}

/// A rewritten plan. It has the columns of the original one, by name, and perhaps more.
struct ReusePlan {
    plan: LogicalPlan,
    /// The calls, in terms of the original columns, whose values are columns.
    known: Vec<CallColumn>,
}

impl Reuse<'_> {
    /// Rewrites a plan of which no calls are asked. The result has exactly the original columns.
    fn alone(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let schema = Arc::clone(plan.schema());
        let done = self.rewrite(plan, &[])?;
        restored(done.plan, &schema)
    }

    /// Rewrites a plan above which some calls are needed.
    fn rewrite(&mut self, plan: LogicalPlan, wanted: &[Expr]) -> Result<ReusePlan> {
        match plan {
            LogicalPlan::Filter(filter) => self.filter(filter, wanted),
            LogicalPlan::Projection(projection) => self.projection(projection, wanted),
            LogicalPlan::SubqueryAlias(alias) => self.alias(alias, wanted),
            LogicalPlan::Sort(sort) => self.sort(sort, wanted),
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let ReusePlan { plan, known } =
                    self.rewrite(Arc::unwrap_or_clone(input), wanted)?;
                let input = Arc::new(plan);
                Ok(ReusePlan { plan: LogicalPlan::Limit(Limit { skip, fetch, input }), known })
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Window(window) => self.window(window, wanted),
            LogicalPlan::Join(join) => self.join(join, wanted),
            other => self.other(other),
        }
    }

    /// Rewrites an operator through which no column passes: the plan below it is rewritten by
    /// itself.
    fn other(&mut self, plan: LogicalPlan) -> Result<ReusePlan> {
        let inputs = plan.inputs().into_iter().cloned().collect::<Vec<_>>();
        if inputs.is_empty() {
            return Ok(ReusePlan { plan, known: Vec::new() });
        }
        let inputs = inputs.into_iter().map(|input| self.alone(input)).collect::<Result<_>>()?;
        Ok(ReusePlan { plan: plan.with_new_exprs(plan.expressions(), inputs)?, known: Vec::new() })
    }

    fn filter(&mut self, filter: Filter, wanted: &[Expr]) -> Result<ReusePlan> {
        let conditions = split_conjunction_owned(filter.predicate);
        let calls = CallSet::of(&conditions);
        let input = Arc::unwrap_or_clone(filter.input);
        let ReusePlan { mut plan, mut known } = self.rewrite(input, &union(wanted, &calls))?;
        let shared = without(calls.shared(wanted), &known);
        let mut calling = Vec::new();
        let mut waiting = Vec::new();
        // Those without calls first: they leave fewer rows.
        for condition in conditions {
            let replaced = self.replaced(condition.clone(), &known)?;
            match calls_any(&replaced) {
                true => calling.push(condition),
                false => waiting.push(replaced),
            }
        }
        for condition in calling {
            let own = CallSet::of([&condition]);
            let is_new = |call: &&Expr| own.always().any(|one| one == *call);
            let new = without(shared.iter().filter(is_new).cloned().collect(), &known);
            if !new.is_empty() {
                plan = filtered(plan, std::mem::take(&mut waiting));
                plan = self.with_calls(plan, new, &mut known)?;
            }
            waiting.push(self.replaced(condition, &known)?);
        }
        Ok(ReusePlan { plan: filtered(plan, waiting), known })
    }

    fn projection(&mut self, projection: Projection, wanted: &[Expr]) -> Result<ReusePlan> {
        let Projection { expr, input, schema, .. } = projection;
        let source = |index: usize| expr.get(index).map(|one| one.clone().unalias());
        let asked = translated(wanted, &schema, source)?;
        let inner: Vec<Expr> = asked.iter().map(|(_, inner)| inner.clone()).collect();
        let calls = CallSet::of(&expr);
        let below = union(&inner, &calls);
        let ReusePlan { mut plan, mut known } =
            self.rewrite(Arc::unwrap_or_clone(input), &below)?;
        let shared = without(calls.shared(&inner), &known);
        plan = self.with_calls(plan, shared, &mut known)?;
        let names = NamePreserver::new_for_projection();
        let mut columns = Vec::with_capacity(expr.len());
        for one in expr {
            let name = names.save(&one);
            columns.push(name.restore(self.replaced(one, &known)?));
        }
        let mut passed: Vec<CallColumn> = Vec::new();
        for (outer, inner) in asked {
            let Some(column) = column(&known, &inner) else { continue };
            if !columns.contains(&Expr::Column(column.clone())) {
                columns.push(Expr::Column(column.clone()));
            }
            passed.push((outer, column.clone()));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        Ok(ReusePlan { plan, known: passed })
    }

    fn alias(&mut self, alias: SubqueryAlias, wanted: &[Expr]) -> Result<ReusePlan> {
        let SubqueryAlias { input, alias, schema, .. } = alias;
        let below = Arc::clone(input.schema());
        let source = |index| column_at(&below, index).map(Expr::Column);
        let asked = translated(wanted, &schema, source)?;
        let inner: Vec<Expr> = asked.iter().map(|(_, inner)| inner.clone()).collect();
        let ReusePlan { plan, known } = self.rewrite(Arc::unwrap_or_clone(input), &inner)?;
        let again = SubqueryAlias::try_new(Arc::new(plan), alias.clone())?;
        let passed = asked.into_iter().filter_map(|(outer, inner)| {
            let column = Column::new(Some(alias.clone()), column(&known, &inner)?.name());
            // Of two columns of one name, only the qualifier tells which it is.
            again.schema.index_of_column(&column).ok()?;
            Some((outer, column))
        });
        let known = passed.collect();
        Ok(ReusePlan { plan: LogicalPlan::SubqueryAlias(again), known })
    }

    /// Rewrites a sort. Its calls become columns: sorted rows are merged by the same keys, which
    /// would be computed again.
    fn sort(&mut self, sort: Sort, wanted: &[Expr]) -> Result<ReusePlan> {
        if let Some(projection) = above_first_rows(&sort)? {
            self.is_used = true;
            return self.projection(projection, wanted);
        }
        let calls = CallSet::of(sort.expr.iter().map(|by| &by.expr));
        let input = Arc::unwrap_or_clone(sort.input);
        let ReusePlan { mut plan, mut known } = self.rewrite(input, &union(wanted, &calls))?;
        plan = self.with_calls(plan, without_known(calls.always(), &known), &mut known)?;
        let mut keys = Vec::with_capacity(sort.expr.len());
        for mut key in sort.expr {
            key.expr = self.replaced(key.expr, &known)?;
            keys.push(key);
        }
        let sort = Sort { expr: keys, input: Arc::new(plan), fetch: sort.fetch };
        Ok(ReusePlan { plan: LogicalPlan::Sort(sort), known })
    }

    /// Rewrites an aggregate. No column passes through it, because a group has no values of single
    /// rows.
    fn aggregate(&mut self, aggregate: Aggregate) -> Result<ReusePlan> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        let calls = CallSet::of(group_expr.iter().chain(&aggr_expr));
        let below = union(&[], &calls);
        let ReusePlan { mut plan, mut known } =
            self.rewrite(Arc::unwrap_or_clone(input), &below)?;
        plan = self.with_calls(plan, without(calls.of_aggregates(), &known), &mut known)?;
        let group = self.all_replaced(group_expr.clone(), &known)?;
        let functions = self.all_replaced(aggr_expr.clone(), &known)?;
        let plan = match group == group_expr && functions == aggr_expr {
            true => Aggregate::try_new_with_schema(
                Arc::new(plan),
                group,
                functions,
                Arc::clone(&schema),
            )?,
            false => Aggregate::try_new(Arc::new(plan), group, functions)?,
        };
        let plan = renamed(LogicalPlan::Aggregate(plan), &schema)?;
        Ok(ReusePlan { plan, known: Vec::new() })
    }

    /// Rewrites a window. Its calls become columns: rows are distributed, sorted and numbered by
    /// the same keys.
    fn window(&mut self, window: Window, wanted: &[Expr]) -> Result<ReusePlan> {
        let Window { input, window_expr, schema } = window;
        let wanted: Vec<Expr> = within(wanted, input.schema());
        let calls = CallSet::of(&window_expr);
        let input = Arc::unwrap_or_clone(input);
        let ReusePlan { mut plan, mut known } = self.rewrite(input, &union(&wanted, &calls))?;
        plan = self.with_calls(plan, without_known(calls.always(), &known), &mut known)?;
        let functions = self.all_replaced(window_expr.clone(), &known)?;
        let is_changed = functions != window_expr;
        let new = functions.len();
        let plan = LogicalPlan::Window(Window::try_new(functions, Arc::new(plan))?);
        if !is_changed {
            return Ok(ReusePlan { plan, known });
        }
        // The names of the new columns are those of their expressions.
        let now = plan.schema();
        let before = &schema;
        let inputs = now.fields().len() - new;
        let kept = (0..inputs).map(|at| Expr::Column(Column::from(now.qualified_field(at))));
        let first = before.fields().len() - new;
        let added = (0..new).map(|at| named_as(now, inputs + at, before, first + at));
        let columns = kept.chain(added).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        Ok(ReusePlan { plan, known })
    }

    fn join(&mut self, join: Join, wanted: &[Expr]) -> Result<ReusePlan> {
        let Join { left, right, on, filter, join_type, .. } = join;
        let (keeps_left, keeps_right) = keeps_values(join_type);
        let filters = CallSet::of(&filter);
        let (keys_left, keys_right): (Vec<Expr>, Vec<Expr>) = on.into_iter().unzip();
        let side = |reuse: &mut Self, input: Arc<LogicalPlan>, keys: Vec<Expr>, keeps: bool| {
            let wanted = if keeps { within(wanted, input.schema()) } else { Vec::new() };
            let calls = CallSet::of(&keys);
            let filters = within(&filters.all().cloned().collect::<Vec<_>>(), input.schema());
            let below = union(&[wanted.clone(), filters].concat(), &calls);
            let ReusePlan { plan, mut known } =
                reuse.rewrite(Arc::unwrap_or_clone(input), &below)?;
            let shared = without(calls.shared(&wanted), &known);
            let plan = reuse.with_calls(plan, shared, &mut known)?;
            let keys = reuse.all_replaced(keys, &known)?;
            Ok::<_, datafusion::error::DataFusionError>((Arc::new(plan), keys, known))
        };
        let (left, keys_left, known_left) = side(&mut *self, left, keys_left, keeps_left)?;
        let (right, keys_right, known_right) = side(&mut *self, right, keys_right, keeps_right)?;
        // The condition is evaluated before the values of a side are replaced by nulls.
        let all = [known_left.clone(), known_right.clone()].concat();
        let filter = filter.map(|filter| self.replaced(filter, &all)).transpose()?;
        let plan = Join::try_new(
            left,
            right,
            keys_left.into_iter().zip(keys_right).collect(),
            filter,
            join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        let left = keeps_left.then_some(known_left).into_iter();
        let known = left.chain(keeps_right.then_some(known_right)).flatten().collect();
        Ok(ReusePlan { plan: LogicalPlan::Join(plan), known })
    }

    fn replaced(&mut self, expression: Expr, known: &[CallColumn]) -> Result<Expr> {
        let replaced = with_columns(expression.clone(), known)?;
        self.is_used |= replaced != expression;
        Ok(replaced)
    }

    fn all_replaced(&mut self, expressions: Vec<Expr>, known: &[CallColumn]) -> Result<Vec<Expr>> {
        expressions.into_iter().map(|one| self.replaced(one, known)).collect()
    }

    /// The plan with columns for some calls, those in arguments of others first.
    fn with_calls(
        &mut self,
        mut plan: LogicalPlan,
        mut calls: Vec<Expr>,
        known: &mut Vec<CallColumn>,
    ) -> Result<LogicalPlan> {
        while !calls.is_empty() {
            let is_inside = |call: &Expr| calls.iter().any(|one| one != call && has(call, one));
            let (later, now): (Vec<_>, Vec<_>) =
                calls.iter().cloned().partition(|call| is_inside(call));
            let mut columns = columns(plan.schema());
            let mut added = Vec::with_capacity(now.len());
            for call in now {
                let name = self.names.next(COLUMN);
                columns.push(with_columns(call.clone(), known)?.alias(&name));
                added.push((call, Column::new_unqualified(name)));
            }
            plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
            known.extend(added);
            self.is_used = true;
            calls = later;
        }
        Ok(plan)
    }
}

/// Whether a join gives the values of its left and its right rows as they are.
fn keeps_values(join_type: JoinType) -> (bool, bool) {
    match join_type {
        JoinType::Inner => (true, true),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (true, false)
        }
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (false, true)
        }
        JoinType::Full => (false, false),
    }
}
