//! The columns that FROM has, and which of them a name without a table means.

use arrow::datatypes::{DataType, Field};
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName, TableFactor,
    TableWithJoins, Value,
};

use super::names::folded;
use crate::sql::asof;

/// A column of FROM.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// The expression that stands for the column in the SQL.
    pub(super) expr: Expr,
    /// True if the column is the key of a join with USING or NATURAL.
    pub(super) is_key: bool,
    /// The names of the column's fields, if it is a struct.
    pub(super) fields: Vec<String>,
}

impl Named {
    /// A column of a table.
    pub(super) fn new(table: Option<&TableReference>, field: &Field) -> Self {
        let quoted = |name: &str| Ident::with_quote('"', name);
        let mut path: Vec<Ident> = match table {
            Some(table) => table.to_vec().iter().map(|part| quoted(part)).collect(),
            None => Vec::new(),
        };
        path.push(quoted(field.name()));
        let expr = match path.len() {
            1 => Expr::Identifier(path.remove(0)),
            _ => Expr::CompoundIdentifier(path),
        };
        let fields = match field.data_type() {
            DataType::Struct(fields) => fields.iter().map(|field| field.name().clone()).collect(),
            _ => Vec::new(),
        };
        Self { name: field.name().clone(), expr, is_key: false, fields }
    }

    /// Whether the column belongs to the table with this name.
    pub(super) fn is_of(&self, table: &[String]) -> bool {
        match &self.expr {
            Expr::CompoundIdentifier(path) => {
                let own = path.split_last().map(|(_, own)| own).unwrap_or_default();
                own.iter()
                    .map(|part| &part.value)
                    .rev()
                    .zip(table.iter().rev())
                    .all(|(a, b)| a == b)
            }
            _ => false,
        }
    }
}

/// The columns of a table in FROM, if they are known.
pub(super) type TableColumns<'a> = &'a dyn Fn(&TableFactor) -> Option<Vec<Named>>;

/// Writes the joins with ON. Returns the columns of the result, the keys first; `None` if they are
/// not known, and then some joins may be as they were.
pub(super) fn of_joins(from: &mut TableWithJoins, columns: TableColumns<'_>) -> Option<Vec<Named>> {
    let mut left = of_factor(&mut from.relation, columns)?;
    for join in &mut from.joins {
        let right = of_factor(&mut join.relation, columns)?;
        let side = kept(&join.join_operator);
        let is_asof = std::mem::take(&mut join.global);
        let keys = match constraint(&mut join.join_operator) {
            Some(constraint) => keys(constraint, &left, &right, is_asof)?,
            None => None,
        };
        left = joined(left, right, side, keys.unwrap_or_default());
    }
    Some(left)
}

fn of_factor(factor: &mut TableFactor, columns: TableColumns<'_>) -> Option<Vec<Named>> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            of_joins(table_with_joins, columns)
        }
        factor => columns(factor),
    }
}

/// The sides whose rows a join keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JoinSides {
    /// Rows with a partner, or all rows of the left side.
    Left,
    Right,
    Both,
    OnlyLeft,
    OnlyRight,
}

fn kept(operator: &JoinOperator) -> JoinSides {
    use JoinOperator::*;
    match operator {
        Right(_) | RightOuter(_) => JoinSides::Right,
        FullOuter(_) => JoinSides::Both,
        Semi(_) | LeftSemi(_) | Anti(_) | LeftAnti(_) => JoinSides::OnlyLeft,
        RightSemi(_) | RightAnti(_) => JoinSides::OnlyRight,
        _ => JoinSides::Left,
    }
}

pub(super) fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator::*;
    match operator {
        Join(it) | Inner(it) | Left(it) | LeftOuter(it) | Right(it) | RightOuter(it)
        | FullOuter(it) | Semi(it) | LeftSemi(it) | RightSemi(it) | Anti(it) | LeftAnti(it)
        | RightAnti(it) => Some(it),
        _ => None,
    }
}

/// The pairs of keys of a join, which has ON instead of their names after it.
type KeyPairs = Vec<(Named, Named)>;

/// The last key of an ASOF join is its time.
fn keys(
    constraint: &mut JoinConstraint,
    left: &[Named],
    right: &[Named],
    is_asof: bool,
) -> Option<Option<KeyPairs>> {
    let names: Vec<String> = match constraint {
        JoinConstraint::Using(names) => {
            let name = |name: &ObjectName| match name.0.as_slice() {
                [part] => part.as_ident().map(folded),
                _ => None,
            };
            names.iter().map(name).collect::<Option<_>>()?
        }
        JoinConstraint::Natural => {
            let shared = |one: &&Named| right.iter().any(|other| other.name == one.name);
            left.iter().filter(shared).map(|one| one.name.clone()).collect()
        }
        JoinConstraint::On(_) | JoinConstraint::None => return Some(None),
    };
    let keys: KeyPairs = names
        .iter()
        .map(|name| Some((only(left, name)?.clone(), only(right, name)?.clone())))
        .collect::<Option<_>>()?;
    *constraint = JoinConstraint::On(equal(&keys, is_asof));
    Some(Some(keys))
}

/// The only column of a name; if there is none, of the name in another case.
fn only<'a>(columns: &'a [Named], name: &str) -> Option<&'a Named> {
    let single = |found: &dyn Fn(&Named) -> bool| {
        let mut found = columns.iter().filter(|column| found(column));
        found.next().filter(|_| found.next().is_none())
    };
    match columns.iter().any(|column| column.name == name) {
        true => single(&|column| column.name == name),
        false => single(&|column| column.name.to_lowercase() == name.to_lowercase()),
    }
}

fn equal(keys: &[(Named, Named)], is_asof: bool) -> Expr {
    let binary = |left: Expr, op, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    };
    let each = keys.iter().enumerate().map(|(place, (one, other))| {
        let pair = |op| binary(one.expr.clone(), op, other.expr.clone());
        match is_asof && place + 1 == keys.len() {
            true => asof::nearest(pair(BinaryOperator::GtEq)),
            false => pair(BinaryOperator::Eq),
        }
    });
    let all = each.reduce(|before, next| binary(before, BinaryOperator::And, next));
    all.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()))
}

fn joined(left: Vec<Named>, right: Vec<Named>, kept: JoinSides, keys: KeyPairs) -> Vec<Named> {
    match kept {
        JoinSides::OnlyLeft => return left,
        JoinSides::OnlyRight => return right,
        _ => (),
    }
    let is = |column: &Named, key: &Named| column.expr == key.expr;
    let left = left.into_iter().filter(|column| !keys.iter().any(|(key, _)| is(column, key)));
    let right = right.into_iter().filter(|column| !keys.iter().any(|(_, key)| is(column, key)));
    let merged = keys.iter().map(|(one, other)| Named {
        name: one.name.clone(),
        expr: match kept {
            JoinSides::Right => other.expr.clone(),
            JoinSides::Both => first_that_is_there(one.expr.clone(), other.expr.clone()),
            _ => one.expr.clone(),
        },
        is_key: true,
        fields: one.fields.clone(),
    });
    merged.chain(left).chain(right).collect()
}

fn first_that_is_there(one: Expr, other: Expr) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(one), argument(other)],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
