//! Tables in FROM in the form that the planner knows.
//!
//! `FROM t` is `FROM t SELECT *`, as in DuckDB: the planner would select no column. `LATERAL unnest(l)`
//! is UNNEST, which may refer to other tables anyway, and so is `generate_series(1, t.n)`: as a table,
//! the planner has it of constants only. WITH ORDINALITY is one more list; behind all other tables it is
//! refused, because the planner ignores it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Query, Select, SelectFlavor, SelectItem, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Value, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::semantics::call;

/// Functions that give a list, and rows where they are called in FROM.
const SERIES: [&str; 2] = ["generate_series", "range"];

const ORDINALITY: (&str, &str) = (
    "WITH ORDINALITY numbers the rows of unnest, generate_series and range only",
    "number other rows with row_number() OVER (ORDER BY …), or in the table function",
);

/// Writes the tables of a query. An error is the reason why a table is refused, with a hint.
pub(crate) fn write(query: &mut Query) -> Result<(), (&'static str, &'static str)> {
    match VisitMut::visit(query, &mut TableVisitor) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

struct TableVisitor;

impl VisitorMut for TableVisitor {
    type Break = (&'static str, &'static str);

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        select.from.iter_mut().for_each(joined);
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(Default::default())];
        }
        ControlFlow::Continue(())
    }

    /// Comes after the SELECT: what still has numbers is no list.
    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        match table {
            TableFactor::Table { with_ordinality: true, .. }
            | TableFactor::Function { with_ordinality: true, .. }
            | TableFactor::UNNEST { with_ordinality: true, .. } => ControlFlow::Break(ORDINALITY),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn joined(from: &mut TableWithJoins) {
    let factors = from.joins.iter_mut().map(|join| &mut join.relation);
    for table in std::iter::once(&mut from.relation).chain(factors) {
        match table {
            TableFactor::NestedJoin { table_with_joins, .. } => joined(table_with_joins),
            table => unnest(table),
        }
    }
}

fn unnest(table: &mut TableFactor) {
    if let TableFactor::UNNEST { with_ordinality: true, alias, array_exprs, .. } = table {
        let lists = std::mem::take(array_exprs);
        *table = numbered("unnest", lists, alias.take());
        return;
    }
    let (name, args, alias, with_ordinality) = match table {
        TableFactor::Function { lateral: true, name, args, with_ordinality, alias } => {
            (name, args, alias, *with_ordinality)
        }
        TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, settings: None }),
            with_ordinality,
            alias,
            ..
        } => (name, args, alias, *with_ordinality),
        _ => return,
    };
    let name = name.to_string().to_lowercase();
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    let Some(args) = args.iter().map(value).collect::<Option<Vec<Expr>>>() else { return };
    let is_series = SERIES.contains(&name.as_str());
    let array_exprs = match name.as_str() {
        "unnest" => args,
        name if is_series && (with_ordinality || args.iter().any(has_column)) => {
            vec![call(name, args)]
        }
        _ => return,
    };
    if with_ordinality {
        *table = numbered(&name, array_exprs, alias.take());
        return;
    }
    let alias = alias.take().map(|alias| if is_series { with_column(alias) } else { alias });
    *table = of_lists(array_exprs, alias);
}

fn of_lists(array_exprs: Vec<Expr>, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::UNNEST {
        alias,
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}

/// Lists WITH ORDINALITY: beside their elements is a list of the numbers from 1.
fn numbered(function: &str, mut lists: Vec<Expr>, alias: Option<TableAlias>) -> TableFactor {
    let name = Ident::new(function);
    let mut alias =
        alias.unwrap_or(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    let unnamed = alias.name.value.clone();
    for place in alias.columns.len()..=lists.len() {
        let name = match place {
            place if place == lists.len() => Ident::new("ordinality"),
            0 => Ident { value: unnamed.clone(), ..alias.name.clone() },
            place => Ident::new(format!("{unnamed}_{place}")),
        };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    let lengths: Vec<Expr> = lists.iter().map(|list| call("len", vec![list.clone()])).collect();
    let longest = match lengths.as_slice() {
        [one] => one.clone(),
        _ => call("greatest", lengths),
    };
    let first = Expr::Value(Value::Number("1".to_owned(), false).into());
    lists.push(call("generate_series", vec![first, longest]));
    of_lists(lists, Some(alias))
}

/// The only column of a function in FROM has the name of the table.
fn with_column(mut alias: TableAlias) -> TableAlias {
    if alias.columns.is_empty() {
        let name = alias.name.clone();
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    alias
}

fn has_column(value: &Expr) -> bool {
    struct ColumnFinder;
    impl Visitor for ColumnFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(value, &mut ColumnFinder).is_break()
}
