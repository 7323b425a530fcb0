//! Tables in FROM in the form that the planner knows.
//!
//! `FROM t` is `FROM t SELECT *`, as in DuckDB: the planner would select no column. `LATERAL unnest(l)`
//! is UNNEST, which may refer to other tables anyway, and so is `generate_series(1, t.n)`: as a table,
//! the planner has it of constants only. The only column of such a table has the table's name, which is that
//! of the function if no other is given. WITH ORDINALITY is one more list; behind all other tables it is
//! refused, because the planner ignores it.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Query, Select, SelectFlavor, SelectItem, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Value, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::semantics::call;

/// Functions that give a list, and rows where they are called in FROM.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// The function that gives the parts of a text as rows.
const SPLIT: &str = "regexp_split_to_table";

const ORDINALITY: (&str, &str) = (
    "WITH ORDINALITY numbers the rows of unnest, generate_series and range only",
    "number other rows with row_number() OVER (ORDER BY …), or in the table function",
);

/// Writes the tables of a query. An error is the reason why a table is refused, with a hint.
pub(crate) fn write(query: &mut Query) -> Result<(), (&'static str, &'static str)> {
    let mut tables = TableVisitor::default();
    if let ControlFlow::Break(refusal) = VisitMut::visit(query, &mut tables) {
        return Err(refusal);
    }
    if !tables.named.is_empty() {
        _ = VisitMut::visit(query, &mut ColumnNames(&tables.named));
    }
    Ok(())
}

#[derive(Default)]
struct TableVisitor {
    /// The tables of functions that have another name than these.
    named: Vec<(Ident, String)>,
}

impl VisitorMut for TableVisitor {
    type Break = (&'static str, &'static str);

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let mut tables = Tables::default();
        select.from.iter_mut().for_each(|from| tables.write_joined(from));
        self.named.extend(tables.named);
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

/// The tables of one FROM.
#[derive(Default)]
struct Tables {
    named: Vec<(Ident, String)>,
    /// How many functions have no name but their own.
    unnamed: usize,
}

impl Tables {
    fn write_joined(&mut self, from: &mut TableWithJoins) {
        let factors = from.joins.iter_mut().map(|join| &mut join.relation);
        for table in std::iter::once(&mut from.relation).chain(factors) {
            match table {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    self.write_joined(table_with_joins);
                }
                table => self.write(table),
            }
        }
    }

    fn write(&mut self, table: &mut TableFactor) {
        if let TableFactor::UNNEST {
            with_offset: false, with_ordinality, alias, array_exprs, ..
        } = table
        {
            let lists = std::mem::take(array_exprs);
            *table = match with_ordinality {
                true => numbered("unnest", lists, alias.take()),
                false => {
                    let alias = self.named("unnest", lists.len(), alias.take());
                    of_lists(lists, Some(alias))
                }
            };
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
            SPLIT if args.len() == 2 => vec![call("regexp_split_to_array", args)],
            name if is_series && (with_ordinality || args.iter().any(has_column)) => {
                vec![call(name, args)]
            }
            name if is_series => {
                *alias = Some(self.named(name, 1, alias.take()));
                return;
            }
            _ => return,
        };
        if with_ordinality {
            *table = numbered(&name, array_exprs, alias.take());
            return;
        }
        let alias = self.named(&name, array_exprs.len(), alias.take());
        *table = of_lists(array_exprs, Some(alias));
    }

    /// The names of the table of a function and of its columns.
    fn named(&mut self, function: &str, columns: usize, alias: Option<TableAlias>) -> TableAlias {
        let mut alias = alias.unwrap_or_else(|| {
            self.unnamed += 1;
            let name = match self.unnamed {
                1 => Ident::new(function),
                number => Ident::new(format!("{function}_{}", number - 1)),
            };
            let columns = match columns {
                1 => vec![TableAliasColumnDef { name: Ident::new(function), data_type: None }],
                _ => Vec::new(),
            };
            TableAlias { explicit: true, name, columns, at: None }
        });
        if alias.columns.is_empty() {
            self.named.push((alias.name.clone(), function.to_owned()));
        }
        for place in alias.columns.len()..columns {
            let name = column_name(&alias.name, place);
            alias.columns.push(TableAliasColumnDef { name, data_type: None });
        }
        alias
    }
}

fn column_name(table: &Ident, place: usize) -> Ident {
    match place {
        0 => table.clone(),
        place => Ident::new(format!("{}_{place}", table.value)),
    }
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

/// The columns of functions that are written with the name of the function, `r.range` of
/// `range(3) AS r`, have the name of their table.
struct ColumnNames<'a>(&'a [(Ident, String)]);

impl ColumnNames<'_> {
    fn written(&self, expr: &Expr) -> Option<(Expr, &str)> {
        let Expr::CompoundIdentifier(path) = expr else { return None };
        let [table, column] = path.as_slice() else { return None };
        let is = |(named, function): &&(Ident, String)| {
            named.value.eq_ignore_ascii_case(&table.value)
                && !table.value.eq_ignore_ascii_case(function)
                && column.value.eq_ignore_ascii_case(function)
        };
        let (named, function) = self.0.iter().find(is)?;
        let column = Ident { span: column.span, ..named.clone() };
        Some((Expr::CompoundIdentifier(vec![table.clone(), column]), function))
    }
}

impl VisitorMut for ColumnNames<'_> {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some((expr, function)) = self.written(expr)
            {
                let alias = Ident::new(function);
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some((written, _)) = self.written(expr) {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

/// Lists WITH ORDINALITY: beside their elements is a list of the numbers from 1.
fn numbered(function: &str, mut lists: Vec<Expr>, alias: Option<TableAlias>) -> TableFactor {
    let name = Ident::new(function);
    let mut alias =
        alias.unwrap_or(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    for place in alias.columns.len()..=lists.len() {
        let name = match place {
            place if place == lists.len() => Ident::new("ordinality"),
            place => column_name(&alias.name, place),
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
