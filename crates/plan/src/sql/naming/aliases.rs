//! Names that a SELECT gives to its items and uses again in it: `select k + 1 as x, x * 2`, also in
//! WHERE, as in DuckDB.
//!
//! SQL has such names in ORDER BY only, so a column has precedence: a name stands for an item where
//! the planner finds no column, and only for an earlier one. It is replaced by the item's expression,
//! if that has the same value each time.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Select, SelectItem, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::sql::using::{folded, replace_names};

/// The places at which a statement uses names of items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reused(BTreeSet<Location>);

/// Whether a function may have another value at each call.
pub(crate) type Varies<'a> = &'a dyn Fn(&str) -> bool;

impl Reused {
    /// Adds the name that the planner has not found, if it is that of an item.
    pub(crate) fn add(
        &mut self,
        statement: &Statement,
        error: &DataFusionError,
        varies: Varies<'_>,
    ) -> bool {
        let Some(at) = unknown_name(error).filter(|at| !self.0.contains(at)) else { return false };
        let only = Self([at].into());
        let found = only.write(&mut statement.clone(), varies);
        if found {
            self.0.insert(at);
        }
        found
    }

    /// Replaces the names by the expressions of their items. False if there was no name to replace.
    pub(crate) fn write(&self, statement: &mut Statement, varies: Varies<'_>) -> bool {
        let Statement::Statement(inner) = statement else { return false };
        if self.0.is_empty() {
            return false;
        }
        let mut writing = AliasWriter { at: &self.0, varies, found: false };
        _ = VisitMut::visit(inner.as_mut(), &mut writing);
        writing.found
    }
}

/// Returns the place of the name that the planner has not found.
fn unknown_name(error: &DataFusionError) -> Option<Location> {
    let is_unqualified = match error.find_root() {
        DataFusionError::SchemaError(error, _) => {
            matches!(error.as_ref(), SchemaError::FieldNotFound { field, .. } if field.relation.is_none())
        }
        DataFusionError::Collection(errors) => return errors.iter().find_map(unknown_name),
        _ => false,
    };
    let start = error.diagnostic().filter(|_| is_unqualified)?.span?.start;
    Some(Location { line: start.line, column: start.column })
}

struct AliasWriter<'a> {
    at: &'a BTreeSet<Location>,
    varies: Varies<'a>,
    found: bool,
}

impl VisitorMut for AliasWriter<'_> {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        let mut named: Vec<(Ident, Expr)> = Vec::new();
        for item in &mut select.projection {
            self.replace(item, &named);
            if let SelectItem::ExprWithAlias { alias, expr } = item
                && !calls(expr, self.varies)
            {
                named.push((alias.clone(), expr.clone()));
            }
        }
        let clauses = [&mut select.selection, &mut select.having, &mut select.qualify];
        for clause in clauses.into_iter().flatten() {
            self.replace(clause, &named);
        }
        ControlFlow::Continue(())
    }
}

impl AliasWriter<'_> {
    fn replace(&mut self, part: &mut impl VisitMut, named: &[(Ident, Expr)]) {
        replace_names(part, |name| {
            let is_same = |(known, _): &&(Ident, Expr)| folded(known) == folded(name);
            let found = self.at.contains(&name.span.start);
            let (_, of) = named.iter().rev().find(is_same).filter(|_| found)?;
            self.found = true;
            Some(Expr::Nested(Box::new(of.clone())))
        });
    }
}

/// Whether an expression calls such a function.
fn calls(expr: &Expr, wanted: Varies<'_>) -> bool {
    struct AliasCalls<'a>(Varies<'a>);
    impl Visitor for AliasCalls<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) => match function.name.0.as_slice() {
                    [ObjectNamePart::Identifier(name)] if !(self.0)(&name.value.to_lowercase()) => {
                        ControlFlow::Continue(())
                    }
                    _ => ControlFlow::Break(()),
                },
                _ => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut AliasCalls(wanted)).is_break()
}
