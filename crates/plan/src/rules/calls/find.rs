//! Calls in expressions, and whether the value of an expression needs them.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, Operator};
use snowmelt_execute::udf::RemoteUdf;

/// A call and how often it is written.
#[derive(Clone, Debug)]
pub(super) struct CallUses {
    pub(super) call: Expr,
    /// Number of places where the call is evaluated for each row.
    pub(super) always: usize,
    /// Number of places where the call is evaluated for some rows: behind CASE, COALESCE, AND and
    /// OR.
    pub(super) sometimes: usize,
}

/// The different calls of some expressions, outer calls before the ones in their arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct CallSet {
    pub(super) found: Vec<CallUses>,
}

impl CallSet {
    /// Finds the calls in expressions that are evaluated for each row.
    pub(super) fn of<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Self {
        let mut calls = Self::default();
        expressions.into_iter().for_each(|expression| calls.visit(expression, true));
        calls
    }

    /// Returns all calls.
    pub(super) fn all(&self) -> impl Iterator<Item = &Expr> {
        self.found.iter().map(|found| &found.call)
    }

    /// Returns the calls that each row needs.
    pub(super) fn always(&self) -> impl Iterator<Item = &Expr> {
        self.found.iter().filter(|found| found.always > 0).map(|found| &found.call)
    }

    /// Returns the calls that each row needs and that are written more than once, or are also in
    /// `wanted`.
    pub(super) fn shared(&self, wanted: &[Expr]) -> Vec<Expr> {
        let is_shared = |found: &&CallUses| {
            let written = found.always + found.sometimes;
            found.always > 0 && (written > 1 || wanted.contains(&found.call))
        };
        self.found.iter().filter(is_shared).map(|found| found.call.clone()).collect()
    }

    /// Returns the calls in arguments of aggregates for which a column is worth it: shared calls
    /// or, if there are several functions, all calls that each row needs, because a projection
    /// calls them together.
    pub(super) fn of_aggregates(&self) -> Vec<Expr> {
        let name = |call: &Expr| Some(remote(call)?.wire_signature().name.clone());
        let functions: BTreeSet<String> = self.always().filter_map(name).collect();
        match functions.len() {
            0 | 1 => self.shared(&[]),
            _ => self.always().cloned().collect(),
        }
    }

    /// Notes a call; true if its arguments are to be visited too.
    fn note(&mut self, call: &Expr, always: bool) -> bool {
        let place = match self.found.iter().position(|found| &found.call == call) {
            Some(place) => place,
            None => {
                self.found.push(CallUses { call: call.clone(), always: 0, sometimes: 0 });
                self.found.len() - 1
            }
        };
        let found = &mut self.found[place];
        let is_new = found.always == 0 && (always || found.sometimes == 0);
        match always {
            true => found.always += 1,
            false => found.sometimes += 1,
        }
        is_new
    }

    fn visit(&mut self, expression: &Expr, always: bool) {
        match expression {
            Expr::ScalarFunction(function) => self.visit_function(expression, function, always),
            Expr::Case(case) => self.visit_case(case, always),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
                self.visit(left, always);
                self.visit(right, false);
            }
            Expr::InList(list) => {
                self.visit(&list.expr, always);
                list.list.iter().for_each(|item| self.visit(item, false));
            }
            Expr::AggregateFunction(AggregateFunction { params, .. }) => {
                // A filter is evaluated before the arguments.
                let all = always && params.filter.is_none();
                params.args.iter().for_each(|argument| self.visit(argument, all));
                params.order_by.iter().for_each(|by| self.visit(&by.expr, all));
                params.filter.iter().for_each(|filter| self.visit(filter, always));
            }
            Expr::WindowFunction(window) => self.visit_window(window, always),
            // They have rows, or variables, of their own.
            Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::ScalarSubquery(_)
            | Expr::SetComparison(_)
            | Expr::HigherOrderFunction(_)
            | Expr::Lambda(_) => (),
            other => {
                let visited = other.apply_children(|child| {
                    self.visit(child, always);
                    Ok(TreeNodeRecursion::Continue)
                });
                debug_assert!(visited.is_ok(), "the visitor above never fails");
            }
        }
    }

    fn visit_function(&mut self, expression: &Expr, function: &ScalarFunction, always: bool) {
        if is_reusable(expression) && !self.note(expression, always) {
            return;
        }
        let (eager, lazy) = match function.func.conditional_arguments(&function.args) {
            Some(parts) => parts,
            None => (function.args.iter().collect(), Vec::new()),
        };
        eager.into_iter().for_each(|argument| self.visit(argument, always));
        lazy.into_iter().for_each(|argument| self.visit(argument, false));
    }

    fn visit_case(&mut self, case: &Case, always: bool) {
        let mut always = always;
        if let Some(value) = &case.expr {
            self.visit(value, always);
        }
        for (when, then) in &case.when_then_expr {
            // Each row needs the first condition.
            self.visit(when, std::mem::take(&mut always));
            self.visit(then, false);
        }
        if let Some(value) = &case.else_expr {
            self.visit(value, false);
        }
    }

    fn visit_window(&mut self, window: &WindowFunction, always: bool) {
        let params = &window.params;
        let all = always && params.filter.is_none();
        params.args.iter().for_each(|argument| self.visit(argument, all));
        params.partition_by.iter().for_each(|by| self.visit(by, always));
        params.order_by.iter().for_each(|by| self.visit(&by.expr, always));
        params.filter.iter().for_each(|filter| self.visit(filter, always));
    }
}

/// True if an expression calls a function of the user.
pub(super) fn calls_any(expression: &Expr) -> bool {
    exists(expression, |part| remote(part).is_some())
}

/// True for a call whose value may be used for each equal call of the row. False for a call that
/// may have another value each time: a call without arguments, unless it is declared deterministic,
/// or with arguments that are volatile themselves.
pub(super) fn is_reusable(expression: &Expr) -> bool {
    remote(expression).is_some() && !exists(expression, is_another_each_time)
}

fn is_another_each_time(part: &Expr) -> bool {
    match part {
        Expr::ScalarFunction(function) => match RemoteUdf::inside(&function.func) {
            Some(remote) => function.args.is_empty() && !remote.is_deterministic(),
            None => part.is_volatile_node(),
        },
        Expr::ScalarSubquery(_)
        | Expr::InSubquery(_)
        | Expr::Exists(_)
        | Expr::SetComparison(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::Placeholder(_)
        | Expr::HigherOrderFunction(_)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_) => true,
        _ => false,
    }
}

fn remote(expression: &Expr) -> Option<&RemoteUdf> {
    match expression {
        Expr::ScalarFunction(function) => RemoteUdf::inside(&function.func),
        _ => None,
    }
}

/// True if `test` is true for a part of an expression.
pub(super) fn exists(expression: &Expr, test: impl Fn(&Expr) -> bool) -> bool {
    // The visitor never fails.
    expression.exists(|part| Ok(test(part))).unwrap_or(true)
}

/// A call, and the column that has its values.
pub(super) type CallColumn = (Expr, Column);

/// Returns the column that has the values of a call, if it is known.
pub(super) fn column<'a>(known: &'a [CallColumn], call: &Expr) -> Option<&'a Column> {
    known.iter().find(|(one, _)| one == call).map(|(_, column)| column)
}

/// The expression with columns instead of the calls that are known, the outermost first.
pub(super) fn with_columns(expression: Expr, known: &[CallColumn]) -> Result<Expr> {
    if known.is_empty() {
        return Ok(expression);
    }
    let replaced = expression.transform_down(|part| {
        Ok(match column(known, &part) {
            Some(column) => {
                let column = Expr::Column(column.clone());
                Transformed::new(column, true, TreeNodeRecursion::Jump)
            }
            None => Transformed::no(part),
        })
    })?;
    Ok(replaced.data)
}
