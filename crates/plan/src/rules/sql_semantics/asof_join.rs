//! The plans of ASOF joins.
//!
//! DataFusion has no such join. The rows of both sides are put into one table, sorted by keys and
//! time, and each row of the right side begins a group with the rows of the left side behind it: they
//! have it as their nearest. So the rows are sorted twice and none is compared with another, however
//! many have the same key. A right row without a key or time begins no group, and a left row without
//! one is in none: nulls are sorted first.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, DFSchema, JoinType, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::nth_value::first_value_udwf;
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprFunctionExt, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
    Operator, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, col, lit,
    when,
};
use datafusion::scalar::ScalarValue;

use crate::sql::NEAREST;

/// 1 for a row of the left side, 0 for one of the right side.
const SIDE: &str = "__asof_side";

const TIME: &str = "__asof_time";

/// The number of right rows up to this one, of the same key.
const GROUP: &str = "__asof_group";

fn left_name(place: usize) -> String {
    format!("__asof_left_{place}")
}

fn right_name(place: usize) -> String {
    format!("__asof_right_{place}")
}

fn found_name(place: usize) -> String {
    format!("__asof_found_{place}")
}

fn key_name(place: usize) -> String {
    format!("__asof_key_{place}")
}

/// Plans the ASOF joins of a plan.
pub(super) fn join_nearest(plan: LogicalPlan) -> Result<LogicalPlan> {
    let written = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if comparison(&join).is_some() => {
            Ok(Transformed::yes(nearest(join)?))
        }
        node => Ok(Transformed::no(node)),
    })?;
    match written.transformed {
        // Columns of both sides may be null now, for all that is above.
        true => written
            .data
            .transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))
            .data(),
        false => Ok(written.data),
    }
}

/// The comparison of a join by which rows are the nearest.
fn comparison(join: &Join) -> Option<BinaryExpr> {
    split_conjunction(join.filter.as_ref()?).into_iter().find_map(marked)
}

fn marked(term: &Expr) -> Option<BinaryExpr> {
    match term {
        Expr::ScalarFunction(call) if call.func.name() == NEAREST => match call.args.as_slice() {
            [Expr::BinaryExpr(comparison)] => Some(comparison.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// A pair of expressions that are compared, cast to the type of the comparison.
struct ExpressionPair {
    left: Expr,
    right: Expr,
}

/// The expressions that an ASOF join compares.
struct Compared {
    keys: Vec<ExpressionPair>,
    time: ExpressionPair,
    /// The comparison of `time`, with the left side written first.
    operator: Operator,
}

impl Compared {
    fn of(join: &Join) -> Result<Self> {
        let left = join.left.schema();
        let right = join.right.schema();
        let pair = |one: &Expr, op: Operator, other: &Expr| {
            let (ours, theirs, is_swapped) = if is_of(one, left) && is_of(other, right) {
                (one, other, false)
            } else if is_of(one, right) && is_of(other, left) {
                (other, one, true)
            } else {
                return plan_err!(
                    "ASOF JOIN compares expressions of its left side with those of its right side"
                );
            };
            let our_type = ours.get_type(left)?;
            let their_type = theirs.get_type(right)?;
            let types = BinaryTypeCoercer::new(&our_type, &op, &their_type).get_input_types()?;
            let pair =
                ExpressionPair { left: as_type(ours, types.0), right: as_type(theirs, types.1) };
            Ok((pair, is_swapped))
        };
        let mut keys = Vec::new();
        for (one, other) in &join.on {
            keys.push(pair(one, Operator::Eq, other)?.0);
        }
        let mut time = None;
        for term in join.filter.iter().flat_map(split_conjunction) {
            if let Some(BinaryExpr { left, op, right }) = marked(term) {
                let (pair, is_swapped) = pair(&left, op, &right)?;
                time = Some((pair, if is_swapped { op.swap().unwrap_or(op) } else { op }));
                continue;
            }
            match term {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    keys.push(pair(left, Operator::Eq, right)?.0);
                }
                _ => return plan_err!("ASOF JOIN takes equalities and one comparison"),
            }
        }
        match time {
            Some((time, operator)) => Ok(Self { keys, time, operator }),
            None => plan_err!("ASOF JOIN needs one comparison"),
        }
    }

    /// Whether a right row of the same time is a partner.
    fn takes_equal(&self) -> bool {
        matches!(self.operator, Operator::GtEq | Operator::LtEq)
    }

    /// Whether partners are before a row.
    fn looks_back(&self) -> bool {
        matches!(self.operator, Operator::GtEq | Operator::Gt)
    }
}

fn is_of(expr: &Expr, schema: &DFSchema) -> bool {
    expr.column_refs().into_iter().all(|column| schema.has_column(column))
}

fn as_type(expr: &Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr.clone()), to))
}

fn nearest(join: Join) -> Result<LogicalPlan> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return plan_err!("an ASOF join is an inner or a left one");
    }
    let compared = Compared::of(&join)?;
    let left = join.left.schema().columns();
    let right = join.right.schema().columns();
    let both = both_sides(&join, &compared, &left, &right)?;
    let keys: Vec<Expr> = (0..compared.keys.len()).map(|place| col(key_name(place))).collect();
    let order = vec![
        Sort::new(col(TIME), compared.looks_back(), true),
        Sort::new(col(SIDE), compared.takes_equal(), true),
    ];
    let of_right = when(col(SIDE).eq(lit(0_i64)), lit(1_i64)).end()?;
    let count = WindowFunctionDefinition::AggregateUDF(count_udaf());
    let group = Expr::from(WindowFunction::new(count, vec![of_right]))
        .partition_by(keys.clone())
        .order_by(order)
        .window_frame(WindowFrame::new_bounds(
            WindowFrameUnits::Rows,
            WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
            WindowFrameBound::CurrentRow,
        ))
        .build()?
        .alias(GROUP);
    let mut partition = keys;
    partition.push(col(GROUP));
    let first = |place: usize| {
        let first = WindowFunctionDefinition::WindowUDF(first_value_udwf());
        Ok(Expr::from(WindowFunction::new(first, vec![col(right_name(place))]))
            .partition_by(partition.clone())
            .order_by(vec![Sort::new(col(SIDE), true, true)])
            .build()?
            .alias(found_name(place)))
    };
    let found = (0..right.len()).map(first).collect::<Result<Vec<Expr>>>()?;
    let mut kept = col(SIDE).eq(lit(1_i64));
    if join.join_type == JoinType::Inner {
        kept = kept.and(col(GROUP).gt(lit(0_i64)));
    }
    let named = |name: String, column: &Column| {
        col(name).alias_qualified(column.relation.clone(), column.name.clone())
    };
    let ours = left.iter().enumerate().map(|(place, column)| named(left_name(place), column));
    let theirs = right.iter().enumerate().map(|(place, column)| named(found_name(place), column));
    LogicalPlanBuilder::from(both)
        .window([group])?
        .window(found)?
        .filter(kept)?
        .project(ours.chain(theirs))?
        .build()
}

/// The rows of both sides in one table, each with nulls for the columns of the other side.
fn both_sides(
    join: &Join,
    compared: &Compared,
    left: &[Column],
    right: &[Column],
) -> Result<LogicalPlan> {
    let nulls = |schema: &DFSchema, name: fn(usize) -> String| {
        let null = |(place, field): (usize, &Arc<arrow::datatypes::Field>)| {
            Ok(lit(ScalarValue::try_from(field.data_type())?).alias(name(place)))
        };
        schema.fields().iter().enumerate().map(null).collect::<Result<Vec<Expr>>>()
    };
    let values = |columns: &[Column], name: fn(usize) -> String| {
        let value =
            |(place, column): (usize, &Column)| Expr::Column(column.clone()).alias(name(place));
        columns.iter().enumerate().map(value).collect::<Vec<Expr>>()
    };
    let rest = |side: i64, of: fn(&ExpressionPair) -> &Expr| {
        let keys = compared.keys.iter().enumerate();
        let mut rest: Vec<Expr> =
            keys.map(|(place, pair)| of(pair).clone().alias(key_name(place))).collect();
        rest.push(of(&compared.time).clone().alias(TIME));
        rest.push(lit(side).alias(SIDE));
        rest
    };
    let mut ours = values(left, left_name);
    ours.extend(nulls(join.right.schema(), right_name)?);
    ours.extend(rest(1, |pair| &pair.left));
    let mut theirs = nulls(join.left.schema(), left_name)?;
    theirs.extend(values(right, right_name));
    theirs.extend(rest(0, |pair| &pair.right));
    let is_there = compared.keys.iter().chain([&compared.time]);
    let is_there = is_there.map(|pair| pair.right.clone().is_not_null()).reduce(Expr::and);
    let theirs = LogicalPlanBuilder::from(join.right.as_ref().clone())
        .filter(is_there.unwrap_or_else(|| lit(true)))?
        .project(theirs)?
        .build()?;
    LogicalPlanBuilder::from(join.left.as_ref().clone()).project(ours)?.union(theirs)?.build()
}
