//! Calls of table functions in the text of a statement.
//!
//! Invariant: afterwards every call is a table factor `Function` with arguments by position, which
//! is lateral if it may refer to other tables.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, TableAlias,
    TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use snowmelt_execute::udf::table_columns;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::Signature;

use crate::sql::Statement;
use crate::sql::errors::sql_error;
use crate::{Error, Result};

/// The names of the columns of each table function, by its name in lower case.
type FunctionColumns = HashMap<String, Vec<String>>;

/// Finds the calls of table functions in a statement, and checks their form. `sql` is its text, for
/// errors.
pub(crate) fn prepare(
    statement: &mut Statement,
    signatures: &[Signature],
    sql: &str,
) -> Result<()> {
    let mut known = FunctionColumns::new();
    for signature in signatures {
        if let Some(columns) = table_columns(signature)? {
            let names = columns.iter().map(|column| column.name().clone()).collect();
            known.insert(signature.name.to_lowercase(), names);
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    let DfStatement::Statement(inner) = &mut statement.query else { return Ok(()) };
    match VisitMut::visit(inner.as_mut(), &mut FromCallVisitor { known }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break((name, report)) => {
            Err(sql_error::location_error(Error::Sql(report), &name, sql))
        }
    }
}

/// The name of a function, and what is wrong with its call.
type FunctionError = (String, Box<ErrorReport>);

/// A call in FROM.
struct FromCall {
    name: ObjectName,
    args: Vec<FunctionArg>,
    alias: Option<TableAlias>,
}

struct FromCallVisitor {
    known: FunctionColumns,
}

impl VisitorMut for FromCallVisitor {
    type Break = FunctionError;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<FunctionError> {
        let Some(call) = self.call(factor) else { return ControlFlow::Continue(()) };
        self.check(&call)?;
        let FromCall { name, args, alias } = call;
        // A function of constants may be on any side of a join.
        let lateral = args.visit(&mut ColumnBreak).is_break();
        let with_ordinality = false;
        *factor = TableFactor::Function { lateral, name, args, with_ordinality, alias };
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<FunctionError> {
        match expr {
            Expr::Function(function) if self.columns(&function.name).is_some() => {
                let name = written(&function.name);
                let message = format!("`{name}` is a table function, which is called in FROM");
                let hint =
                    format!("write FROM t, {name}(t.column) AS r, and the columns of r here");
                wrong(name, message, &hint)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl FromCallVisitor {
    fn columns(&self, name: &ObjectName) -> Option<&[String]> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        self.known.get(&name.value.to_lowercase()).map(Vec::as_slice)
    }

    /// Takes the parts of a call out of `f(x)`, `LATERAL f(x)` or `TABLE(f(x))`.
    fn call(&self, factor: &mut TableFactor) -> Option<FromCall> {
        match factor {
            TableFactor::Table { name, args: Some(args), alias, .. } => {
                self.columns(name)?;
                Some(FromCall {
                    name: name.clone(),
                    args: std::mem::take(&mut args.args),
                    alias: alias.take(),
                })
            }
            TableFactor::Function { name, args, alias, .. } => {
                self.columns(name)?;
                Some(FromCall {
                    name: name.clone(),
                    args: std::mem::take(args),
                    alias: alias.take(),
                })
            }
            TableFactor::TableFunction { expr: Expr::Function(function), alias } => {
                self.columns(&function.name)?;
                let args = match &mut function.args {
                    FunctionArguments::List(list) => std::mem::take(&mut list.args),
                    _ => Vec::new(),
                };
                let name = function.name.clone();
                let alias = alias.take();
                Some(FromCall { name, args, alias })
            }
            _ => None,
        }
    }

    fn check(&self, call: &FromCall) -> ControlFlow<FunctionError> {
        let name = written(&call.name);
        let by_position =
            |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
        if !call.args.iter().all(by_position) {
            let message = format!("the arguments of `{name}` are given by position");
            return wrong(name, message, "write one value for each parameter, in their order");
        }
        let columns = self.columns(&call.name).unwrap_or_default();
        let named = call.alias.as_ref().map_or(0, |alias| alias.columns.len());
        if named > 0 && named != columns.len() {
            let message =
                format!("`{name}` has {}, and its alias names {named}", counted(columns.len()));
            let hint = format!("its columns are {}", columns.join(", "));
            return wrong(name, message, &hint);
        }
        ControlFlow::Continue(())
    }
}

fn wrong(name: String, message: String, hint: &str) -> ControlFlow<FunctionError> {
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint);
    ControlFlow::Break((name, Box::new(report)))
}

fn counted(columns: usize) -> String {
    match columns {
        1 => "1 column".to_owned(),
        many => format!("{many} columns"),
    }
}

fn written(name: &ObjectName) -> String {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => name.value.clone(),
        _ => name.to_string(),
    }
}

/// Breaks at a column.
struct ColumnBreak;

impl Visitor for ColumnBreak {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
