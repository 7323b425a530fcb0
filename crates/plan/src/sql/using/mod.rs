//! Joins with USING and NATURAL, whose key is one column of the result.
//!
//! The key of a right join is the key of its right side, and the key of a full join the first of
//! both keys that is not null. DataFusion takes the key of one side for all joins, in `*` even the
//! key of the table whose name is first in the alphabet, and does not find the key again below
//! WHERE or in a second USING. Here such joins are written with ON before they are planned, and `*`
//! and the names of keys as the expressions that they stand for. To do so, the planner is asked for
//! the columns of each table in FROM.
//!
//! | member | owns |
//! |---|---|
//! | `columns` | the columns of FROM, and which of them a name means |
//! | `select` | keys and `*` in a SELECT |
//! | `names` | names in expressions, and their replacement |
//! | `star_duplicates` | `*` beside a column of the same name |
//! | `columns_expansion`, `columns_selection` | `COLUMNS(…)`, and the columns that it names |
//! | `column_conditions` | conditions of names of columns |
//! | `unpivot_columns` | UNPIVOT of columns that `COLUMNS(…)` names |
//! | `sample_hash` | samples that can be repeated |

mod column_conditions;
mod columns;
mod columns_expansion;
mod columns_selection;
mod names;
mod sample_hash;
mod select;
mod star_duplicates;
mod unpivot_columns;

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, Statement as SqlStatement,
    TableFactor, TableWithJoins, Value, VisitMut, VisitorMut, With,
};

use columns::Named;
pub(crate) use columns_expansion::has_call as has_columns_call;
pub(crate) use names::{folded, replace_names};
pub(crate) use unpivot_columns::{LEFT, NAMES, VALUES};

/// Plans a query; `None` if it has no plan.
pub(crate) type Planner<'a> = &'a dyn Fn(Statement) -> Option<LogicalPlan>;

/// Writes joins with USING and NATURAL with ON, and gives columns of a SELECT different names if
/// `tells_apart`. False if a join is left whose answer would be wrong, because the columns of a table
/// are not known: the statement must not run.
pub(crate) fn merge_keys(
    statement: &mut Statement,
    tells_apart: bool,
    planner: Planner<'_>,
) -> bool {
    let Some(query) = query_of(statement) else { return true };
    let scope = CteScope::default();
    let mut merging = Merging { planner, scope: &scope, tells_apart, all_known: true };
    merging.query(query);
    merging.all_known
}

fn query_of(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Statement(inner) => match inner.as_mut() {
            SqlStatement::Query(query) => Some(query),
            _ => None,
        },
        _ => None,
    }
}

/// The common table expressions that a query sees.
#[derive(Clone, Default)]
struct CteScope {
    tables: Vec<Cte>,
    recursive: bool,
}

impl CteScope {
    fn add(&mut self, table: &Cte) {
        self.tables.retain(|other| other.alias.name.value != table.alias.name.value);
        self.tables.push(table.clone());
    }

    fn with(&self) -> Option<With> {
        (!self.tables.is_empty()).then(|| With {
            with_token: AttachedToken::empty(),
            recursive: self.recursive,
            cte_tables: self.tables.clone(),
        })
    }
}

struct Merging<'a> {
    planner: Planner<'a>,
    scope: &'a CteScope,
    tells_apart: bool,
    all_known: bool,
}

impl Merging<'_> {
    fn query(&mut self, query: &mut Query) {
        let mut scope = self.scope.clone();
        if let Some(with) = &mut query.with {
            scope.recursive |= with.recursive;
            for table in &mut with.cte_tables {
                self.within(&scope, |merging| merging.query(&mut table.query));
                scope.add(table);
            }
        }
        self.within(&scope, |merging| {
            // The queries inside of it first: their columns are asked below.
            _ = VisitMut::visit(&mut query.body, merging);
            merging.body(&mut query.body, query.order_by.as_mut());
            merging.order_by_all(query);
        });
    }

    fn within(&mut self, scope: &CteScope, work: impl FnOnce(&mut Merging<'_>)) {
        let Self { planner, tells_apart, .. } = *self;
        let mut inner = Merging { planner, scope, tells_apart, all_known: true };
        work(&mut inner);
        self.all_known &= inner.all_known;
    }

    fn body(&mut self, body: &mut SetExpr, mut order: Option<&mut OrderBy>) {
        match body {
            SetExpr::Select(select) => {
                sample_hash::write(select, order.as_deref_mut(), &|table| self.columns(table));
                columns_expansion::write(select, &|table| self.columns(table));
                if self.tells_apart {
                    star_duplicates::name_apart(select, order.as_deref(), &|table| {
                        self.columns(table)
                    });
                }
                let known = select::merge(select, order, &|table| self.columns(table));
                self.all_known &= known;
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, None);
                self.body(right, None);
            }
            _ => (),
        }
    }

    /// ORDER BY ALL by the numbers of the columns, where `*` stands for some of them.
    fn order_by_all(&self, query: &mut Query) {
        let all = match &query.order_by {
            Some(OrderBy { kind: OrderByKind::All(options), .. }) => *options,
            _ => return,
        };
        let mut asked = query.clone();
        (asked.with, asked.order_by) = (self.scope.with(), None);
        let asked = Statement::Statement(Box::new(SqlStatement::Query(Box::new(asked))));
        let Some(plan) = (self.planner)(asked) else { return };
        let key = |place: usize| OrderByExpr {
            expr: Expr::Value(Value::Number(place.to_string(), false).into()),
            options: all,
            with_fill: None,
        };
        let keys = (1..=plan.schema().fields().len()).map(key).collect();
        if let Some(order) = &mut query.order_by {
            order.kind = OrderByKind::Expressions(keys);
        }
    }

    /// The columns of a table in FROM, as `SELECT *` gives them.
    fn columns(&self, table: &TableFactor) -> Option<Vec<Named>> {
        let mut asked = DFParserBuilder::new("select * from t").build().ok()?;
        let mut asked = asked.parse_statements().ok()?.pop_front()?;
        let query = query_of(&mut asked)?;
        query.with = self.scope.with();
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        select.from = vec![TableWithJoins { relation: table.clone(), joins: Vec::new() }];
        let plan = (self.planner)(asked)?;
        Some(plan.schema().iter().map(|(table, field)| Named::new(table, field)).collect())
    }
}

impl VisitorMut for Merging<'_> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        self.query(query);
        ControlFlow::Continue(())
    }
}
