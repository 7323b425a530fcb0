//! PIVOT and UNPIVOT, written with aggregates that have a FILTER, and with lists.
//!
//! A value of PIVOT becomes a column: `sum(x)` of the rows that have it. The groups are, unless the
//! statement has others, all columns that it does not name. A column of UNPIVOT becomes a row: its
//! name and its value are elements of two lists, which are unnested together.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, ExcludeSelectItem, Expr, ExprWithAlias, GroupByExpr, Ident, ObjectName,
    Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins, Value, Visit, VisitMut,
    Visitor, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::sql::semantics::{call, quoted};
use crate::sql::using::{LEFT, NAMES, VALUES, has_columns_call};

/// The aggregates that take a FILTER here.
const AGGREGATES: [&str; 32] = [
    "any_value",
    "approx_count_distinct",
    "approx_distinct",
    "arbitrary",
    "arg_max",
    "arg_min",
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "count_if",
    "first",
    "first_value",
    "group_concat",
    "last",
    "last_value",
    "list",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "quantile_cont",
    "quantile_disc",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "variance",
];

/// The most columns that a PIVOT can make, which is the most that a table can have.
const MAX_COLUMNS: usize = 10_000;

/// A table whose values become columns.
pub(crate) struct Pivot {
    pub(crate) table: TableFactor,
    pub(crate) aggregates: Vec<ExprWithAlias>,
    /// The columns whose values become columns, each with these values. The answer has columns for
    /// all combinations.
    pub(crate) columns: Vec<(Expr, Vec<ExprWithAlias>)>,
    /// The expressions of the groups. `None` for all columns that are not named.
    pub(crate) groups: Option<Vec<Expr>>,
}

/// A table whose columns become rows.
pub(crate) struct Unpivot {
    pub(crate) table: TableFactor,
    pub(crate) columns: Vec<ExprWithAlias>,
    pub(crate) name: Ident,
    pub(crate) value: Ident,
    pub(crate) with_nulls: bool,
}

impl Pivot {
    /// The query that it stands for, or what is wrong with it.
    pub(crate) fn query(mut self) -> Result<Query, String> {
        if self.aggregates.is_empty() {
            let count = template("select count(*) from t")?;
            let Some(SelectItem::UnnamedExpr(expr)) = count.1.projection.first().cloned() else {
                return Err(NO_TEMPLATE.to_owned());
            };
            self.aggregates.push(ExprWithAlias { expr, alias: None });
        }
        let (mut query, mut select) = template("select * from t group by all")?;
        let mut items = Vec::new();
        match &self.groups {
            Some(groups) => {
                items.extend(groups.iter().cloned().map(SelectItem::UnnamedExpr));
                select.group_by = GroupByExpr::Expressions(groups.clone(), Vec::new());
            }
            None => {
                let mut named = Vec::new();
                self.columns.iter().for_each(|(it, _)| columns_of(it, &mut named));
                self.aggregates
                    .iter()
                    .for_each(|aggregate| columns_of(&aggregate.expr, &mut named));
                items.push(all_but(named));
            }
        }
        for values in self.combinations()? {
            for aggregate in &self.aggregates {
                items.push(self.item(&values, aggregate)?);
            }
        }
        select.projection = items;
        select.from = vec![TableWithJoins { relation: self.table, joins: Vec::new() }];
        query.body = Box::new(SetExpr::Select(Box::new(select)));
        Ok(query)
    }

    /// Each combination of values of the columns, the last one's first.
    fn combinations(&self) -> Result<Vec<Vec<&ExprWithAlias>>, String> {
        let count = self.columns.iter().try_fold(self.aggregates.len(), |count, (_, values)| {
            count.checked_mul(values.len()).filter(|count| *count <= MAX_COLUMNS)
        });
        if count.is_none() {
            return Err(format!("PIVOT has more than {MAX_COLUMNS} columns"));
        }
        let mut all: Vec<Vec<&ExprWithAlias>> = vec![Vec::new()];
        for (_, values) in &self.columns {
            let before = std::mem::take(&mut all);
            for (before, value) in
                before.iter().flat_map(|before| values.iter().map(move |one| (before, one)))
            {
                all.push(before.iter().copied().chain([value]).collect());
            }
        }
        Ok(all)
    }

    /// The column of a combination of values.
    fn item(
        &self,
        values: &[&ExprWithAlias],
        aggregate: &ExprWithAlias,
    ) -> Result<SelectItem, String> {
        let columns = self.columns.iter().map(|(column, _)| column);
        let each = columns.zip(values).map(|(column, value)| equal(column, &value.expr));
        let condition = each.reduce(and);
        let mut expr = aggregate.expr.clone();
        if !condition.is_some_and(|condition| filter(&mut expr, &condition)) {
            return Err(one_aggregate());
        }
        let texts: Vec<String> = values
            .iter()
            .map(|value| match &value.alias {
                Some(alias) => alias.value.clone(),
                None => text_of(&value.expr),
            })
            .collect();
        let of_values = texts.join("_");
        let alias = match (&aggregate.alias, self.aggregates.len()) {
            (None, 1) => of_values,
            (Some(alias), _) => format!("{of_values}_{}", alias.value),
            (None, _) => format!("{of_values}_{}", aggregate.expr),
        };
        let alias = Ident::with_quote('"', alias);
        Ok(SelectItem::ExprWithAlias { expr, alias })
    }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

/// Gives the aggregates of an expression a condition. False if it has none, or something beside them
/// that differs from row to row.
fn filter(expr: &mut Expr, condition: &Expr) -> bool {
    let mut writer = FilterWriter { condition, found: false, inside: 0, wrong: false };
    _ = VisitMut::visit(expr, &mut writer);
    writer.found && !writer.wrong
}

struct FilterWriter<'a> {
    condition: &'a Expr,
    found: bool,
    /// The number of aggregates around an expression.
    inside: usize,
    wrong: bool,
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function)
        if AGGREGATES.contains(&function.name.to_string().to_lowercase().as_str()))
}

impl VisitorMut for FilterWriter<'_> {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        let is_name = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        let is_window = matches!(expr, Expr::Function(function) if function.over.is_some());
        self.wrong |= is_name && self.inside == 0 || is_window;
        self.inside += usize::from(is_aggregate(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if !is_aggregate(expr) {
            return ControlFlow::Continue(());
        }
        self.inside -= 1;
        if self.inside == 0
            && let Expr::Function(function) = expr
        {
            self.found = true;
            let before = function.filter.take().map(Expr::Nested);
            let all = before.into_iter().fold(self.condition.clone(), and);
            function.filter = Some(Box::new(all));
        }
        ControlFlow::Continue(())
    }
}

/// Whether a column has a value, which may be null.
fn equal(column: &Expr, value: &Expr) -> Expr {
    let column = Box::new(Expr::Nested(Box::new(column.clone())));
    match value {
        Expr::Value(value) if value.value == Value::Null => Expr::IsNull(column),
        value => Expr::BinaryOp {
            left: column,
            op: BinaryOperator::Eq,
            right: Box::new(Expr::Nested(Box::new(value.clone()))),
        },
    }
}

fn one_aggregate() -> String {
    "PIVOT takes aggregates, such as sum(x) or sum(x) / count(*)".to_owned()
}

impl Unpivot {
    /// The items of its query, if its columns are those of `COLUMNS(…)`.
    fn of_columns(&self) -> Option<Vec<SelectItem>> {
        let [ExprWithAlias { expr: columns @ Expr::Function(_), alias: None }] =
            self.columns.as_slice()
        else {
            return None;
        };
        let part = |name| call(name, vec![columns.clone()]);
        let named = |name, alias: &Ident| SelectItem::ExprWithAlias {
            expr: part(name),
            alias: alias.clone(),
        };
        has_columns_call(columns).then(|| {
            let left = SelectItem::UnnamedExpr(part(LEFT));
            vec![left, named(NAMES, &self.name), named(VALUES, &self.value)]
        })
    }

    /// The items of its query for columns by their names.
    fn of_names(&self) -> Result<Vec<SelectItem>, String> {
        let mut named = Vec::new();
        for column in &self.columns {
            match &column.expr {
                Expr::Identifier(name) => named.push(name.clone()),
                other => return Err(format!("UNPIVOT takes names of columns, not {other}")),
            }
        }
        let names = named.iter().zip(&self.columns).map(|(name, column)| match &column.alias {
            Some(alias) => quoted(&alias.value),
            None => quoted(&name.value),
        });
        let names = names.collect();
        let values = self.columns.iter().map(|column| column.expr.clone()).collect();
        let unnested = |elem, alias: &Ident| SelectItem::ExprWithAlias {
            expr: call("unnest", vec![Expr::Array(Array { elem, named: false })]),
            alias: alias.clone(),
        };
        Ok(vec![all_but(named), unnested(names, &self.name), unnested(values, &self.value)])
    }

    /// The query that it stands for, or what is wrong with it.
    pub(crate) fn query(self) -> Result<Query, String> {
        let (mut query, mut select) = template("select * from t")?;
        select.projection = match self.of_columns() {
            Some(items) => items,
            None => self.of_names()?,
        };
        select.from = vec![TableWithJoins { relation: self.table, joins: Vec::new() }];
        query.body = Box::new(SetExpr::Select(Box::new(select)));
        if self.with_nulls {
            return Ok(query);
        }
        let mut outer = within(query)?;
        if let SetExpr::Select(select) = outer.body.as_mut() {
            select.selection = Some(Expr::IsNotNull(Box::new(Expr::Identifier(self.value))));
        }
        Ok(outer)
    }
}

const NO_TEMPLATE: &str = "PIVOT is not supported here";

/// The syntax tree of a plain query, to be filled in.
pub(crate) fn template(sql: &str) -> Result<(Query, Select), String> {
    let parser = Parser::new(&GenericDialect).try_with_sql(sql);
    let query = parser.and_then(|mut parser| parser.parse_query());
    match query.map(|query| (query.body.as_ref().clone(), *query)) {
        Ok((SetExpr::Select(select), query)) => Ok((query, *select)),
        _ => Err(NO_TEMPLATE.to_owned()),
    }
}

/// `SELECT *` from a query.
pub(crate) fn within(query: Query) -> Result<Query, String> {
    let (mut outer, mut select) = template("select * from (select 1) as pivoted")?;
    if let Some(TableFactor::Derived { subquery, .. }) =
        select.from.first_mut().map(|from| &mut from.relation)
    {
        **subquery = query;
    }
    outer.body = Box::new(SetExpr::Select(Box::new(select)));
    Ok(outer)
}

/// The names of columns in an expression.
fn columns_of(expr: &Expr, found: &mut Vec<Ident>) {
    struct Names<'a>(&'a mut Vec<Ident>);
    impl Visitor for Names<'_> {
        type Break = Infallible;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Infallible> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(path) => path.last(),
                _ => None,
            };
            if let Some(name) = name
                && !self.0.iter().any(|known| known.value == name.value)
            {
                self.0.push(name.clone());
            }
            ControlFlow::Continue(())
        }
    }
    _ = Visit::visit(expr, &mut Names(found));
}

/// `*` without these columns.
pub(crate) fn all_but(named: Vec<Ident>) -> SelectItem {
    let names: Vec<ObjectName> = named.into_iter().map(|name| vec![name].into()).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    SelectItem::Wildcard(WildcardAdditionalOptions { opt_exclude, ..Default::default() })
}

/// The name of a value's column.
fn text_of(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}
