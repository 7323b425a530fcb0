//! PIVOT and UNPIVOT in FROM as subqueries, and the queries that find the values of a PIVOT that lists
//! none.
//!
//! The values are texts: those of the column cast to VARCHAR, without null, as in DuckDB. They are not
//! known until the query that finds them has run. It sees the same tables of WITH as the PIVOT.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, ExprWithAlias, Ident, NullInclusion, PivotValueSource, Query,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, VisitMut,
    VisitorMut, With,
};

use super::forms::{Pivot, Unpivot, template};
use crate::sql::semantics::{cast, quoted};

/// The values of columns of PIVOT that have no list, by the text of the query that finds them.
pub type PivotValues = BTreeMap<String, Vec<String>>;

/// Why PIVOTs are not written.
pub(crate) enum Unwritten {
    /// The part that cannot be written as a subquery.
    Wrong(String),
    /// The values of a column are not known: this query finds them.
    Unlisted(Box<Query>),
}

/// Writes PIVOT and UNPIVOT in FROM as subqueries. `asked` is the text of a query that finds values.
pub(crate) fn write(
    query: &mut Query,
    known: &PivotValues,
    asked: &dyn Fn(&Query) -> Option<String>,
) -> Result<(), Unwritten> {
    let mut writer = PivotWriter { known, asked, around: Vec::new() };
    match VisitMut::visit(query, &mut writer) {
        ControlFlow::Break(unwritten) => Err(unwritten),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct PivotWriter<'a> {
    known: &'a PivotValues,
    asked: &'a dyn Fn(&Query) -> Option<String>,
    around: Vec<Around>,
}

/// The tables of WITH of a query in which the writer is.
struct Around {
    with: Option<With>,
    /// How many of them are written, and may be used.
    written: usize,
}

impl VisitorMut for PivotWriter<'_> {
    type Break = Unwritten;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Unwritten> {
        self.around.push(Around { with: query.with.clone(), written: 0 });
        ControlFlow::Continue(())
    }

    /// The first queries inside of a query are those of its WITH, in their order.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Unwritten> {
        self.around.pop();
        if let Some(around) = self.around.last_mut()
            && let Some(with) = &mut around.with
            && let Some(table) = with.cte_tables.get_mut(around.written)
        {
            *table.query = query.clone();
            around.written += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Unwritten> {
        match self.written(factor) {
            Ok(Some(written)) => *factor = written,
            Ok(None) => (),
            Err(unwritten) => return ControlFlow::Break(unwritten),
        }
        ControlFlow::Continue(())
    }
}

impl PivotWriter<'_> {
    fn written(&self, factor: &TableFactor) -> Result<Option<TableFactor>, Unwritten> {
        let (query, alias) = match factor.clone() {
            TableFactor::Pivot {
                table,
                aggregate_functions: aggregates,
                value_column,
                value_source,
                default_on_null,
                alias,
            } => {
                let groups = match default_on_null {
                    None => None,
                    Some(Expr::Tuple(groups)) => Some(groups),
                    Some(_) => return Err(Unwritten::Wrong(FORM.to_owned())),
                };
                let columns = self.columns(&table, value_column, value_source)?;
                (Pivot { table: *table, aggregates, columns, groups }.query(), alias)
            }
            TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } => {
                let Expr::Identifier(value) = value else {
                    let message = "UNPIVOT takes the name of one column of values";
                    return Err(Unwritten::Wrong(message.to_owned()));
                };
                let with_nulls = null_inclusion == Some(NullInclusion::IncludeNulls);
                (Unpivot { table: *table, columns, name, value, with_nulls }.query(), alias)
            }
            _ => return Ok(None),
        };
        let subquery = Box::new(query.map_err(Unwritten::Wrong)?);
        Ok(Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None }))
    }

    /// The columns of a PIVOT with their values.
    fn columns(
        &self,
        table: &TableFactor,
        columns: Vec<Expr>,
        source: PivotValueSource,
    ) -> Result<Vec<(Expr, Vec<ExprWithAlias>)>, Unwritten> {
        let column = |column| match (&source, column) {
            (PivotValueSource::List(_), Expr::InList { .. }) => {
                Err(Unwritten::Wrong(FORM.to_owned()))
            }
            (PivotValueSource::List(values), column) => Ok((column, values.clone())),
            (PivotValueSource::Any(_), Expr::InList { expr, list, negated: false }) => {
                let listed = list.into_iter().map(|expr| ExprWithAlias { expr, alias: None });
                Ok((*expr, listed.collect()))
            }
            (PivotValueSource::Any(_), column) => {
                let values = self.values(finding(table.clone(), &column)?)?;
                Ok((as_text(&column), values))
            }
            (PivotValueSource::Subquery(values), column) => {
                let value = Ident::new("value");
                let columns = vec![TableAliasColumnDef { name: value.clone(), data_type: None }];
                let name = Ident::new("listed");
                let alias = Some(TableAlias { explicit: true, name, columns, at: None });
                let subquery = Box::new((**values).clone());
                let of = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
                let values = self.values(finding(of, &Expr::Identifier(value))?)?;
                Ok((as_text(&column), values))
            }
        };
        if matches!(&source, PivotValueSource::List(_)) && columns.len() != 1 {
            return Err(Unwritten::Wrong(FORM.to_owned()));
        }
        columns.into_iter().map(column).collect()
    }

    /// The values that a query has found.
    fn values(&self, mut query: Query) -> Result<Vec<ExprWithAlias>, Unwritten> {
        for around in self.around.iter().rev() {
            let Some(mut with) = around.with.clone() else { continue };
            with.cte_tables.truncate(around.written);
            match &mut query.with {
                _ if with.cte_tables.is_empty() => (),
                Some(inner) => {
                    with.cte_tables.append(&mut inner.cte_tables);
                    inner.recursive |= with.recursive;
                    inner.cte_tables = with.cte_tables;
                }
                none => *none = Some(with),
            }
        }
        let known = (self.asked)(&query).and_then(|asked| self.known.get(&asked));
        let Some(known) = known else { return Err(Unwritten::Unlisted(Box::new(query))) };
        let value = |text: &String| {
            let name = if text.is_empty() { "''" } else { text };
            let alias = Some(Ident::with_quote('"', name));
            ExprWithAlias { expr: quoted(text), alias }
        };
        Ok(known.iter().map(value).collect())
    }
}

const FORM: &str = "PIVOT takes one column with its values, FOR c IN ('a', 'b')";

fn as_text(column: &Expr) -> Expr {
    let column = Expr::Nested(Box::new(column.clone()));
    cast(CastKind::Cast, column, DataType::Varchar(None))
}

/// The query that finds the values of a column.
fn finding(table: TableFactor, column: &Expr) -> Result<Query, Unwritten> {
    let (mut query, mut select) =
        template("select distinct 1 as \"value\" from t").map_err(Unwritten::Wrong)?;
    if let Some(SelectItem::ExprWithAlias { expr, .. }) = select.projection.first_mut() {
        *expr = as_text(column);
    }
    select.selection = Some(Expr::IsNotNull(Box::new(Expr::Nested(Box::new(column.clone())))));
    select.from = vec![TableWithJoins { relation: table, joins: Vec::new() }];
    query.body = Box::new(SetExpr::Select(Box::new(select)));
    Ok(query)
}
