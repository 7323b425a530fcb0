//! Estimates of operators, from those of their inputs.

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use snowmelt_execute::exchange::ExchangeReadExec;
use snowmelt_execute::tree::{PlanNode, file_scan};

use super::column::{ColumnEstimate, width};
use super::selectivity::{column, selectivity};
use super::{Estimate, Input, joined_rows};
use crate::operators::SharedExec;
use crate::tables::read_bytes;

/// Stored bytes of a row in a file without statistics.
const STORED_WIDTH: f64 = 64.0;

/// Rows of an operator of which nothing is known.
const UNKNOWN_ROWS: f64 = 1000.0;

/// The part of the pairs that a condition of a join beside its keys keeps.
const RESIDUAL: f64 = 0.5;

/// An anti join keeps at least this part of the rows, and a semi join drops none for certain.
const LEAST_ANTI: f64 = 0.1;

/// The output of an operator in all partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rows: f64,
    pub(crate) bytes: f64,
}

/// The size of an operator's output.
pub(crate) fn size(node: &PlanNode) -> Size {
    let found = estimate(node);
    Size { rows: found.rows, bytes: found.rows * found.width() }
}

/// Estimates the rows and columns of an operator's output.
pub(crate) fn estimate(node: &PlanNode) -> Estimate {
    let found = of_node(node);
    match node.fetch() {
        Some(fetch) if (fetch as f64) < found.rows => found.with_rows(fetch as f64),
        _ => found,
    }
}

fn of_node(node: &PlanNode) -> Estimate {
    let children = node.children();
    if children.is_empty() {
        return of_leaf(node);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let input = estimate(filter.input());
        let kept = selectivity(filter.predicate(), &input.columns);
        let rows = input.rows * kept;
        let output = input.with_rows(rows);
        return match filter.projection() {
            Some(projection) => output.columns_at(projection),
            None => output,
        };
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return of_projection(projection);
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return of_aggregate(aggregate);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return of_join(join);
    }
    if node.is::<CrossJoinExec>() || node.is::<NestedLoopJoinExec>() {
        return of_pairs(node);
    }
    if node.is::<UnionExec>() || node.is::<InterleaveExec>() {
        return of_union(node);
    }
    of_others(node)
}

fn of_leaf(node: &PlanNode) -> Estimate {
    if let Some(origin) =
        node.downcast_ref::<ExchangeReadExec>().and_then(|downcast_ref| downcast_ref.origin())
    {
        return estimate(origin);
    }
    if let Some(shared) = node.downcast_ref::<SharedExec>() {
        return estimate(shared.part());
    }
    let statistics = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new()).ok();
    let counted = statistics.as_ref().and_then(|found| found.num_rows.get_value().copied());
    let stored = || {
        let files = file_scan(node)?.file_groups.iter().flat_map(|group| group.files());
        Some(files.map(read_bytes).sum::<u64>() as f64 / STORED_WIDTH)
    };
    let rows = counted.map(|rows| rows as f64).or_else(stored).unwrap_or(UNKNOWN_ROWS);
    let schema = node.schema();
    let fields = schema.fields().iter().enumerate();
    let columns = fields.map(|(index, field)| {
        let found = statistics.as_ref().and_then(|found| found.column_statistics.get(index));
        match found {
            Some(found) => ColumnEstimate::of_scan(found, field.data_type(), rows),
            None => ColumnEstimate::unknown(rows, width(field.data_type())),
        }
    });
    Estimate { rows, source_rows: rows, columns: columns.collect() }
}

fn of_projection(projection: &ProjectionExec) -> Estimate {
    let input = estimate(projection.input());
    let schema = projection.schema();
    let columns = projection.expr().iter().zip(schema.fields()).map(|(projected, field)| {
        match column(&projected.expr) {
            Some(index) => input.column(index),
            None => ColumnEstimate::unknown(input.rows, width(field.data_type())),
        }
    });
    Estimate { columns: columns.collect(), ..input }
}

fn of_aggregate(aggregate: &AggregateExec) -> Estimate {
    let input = estimate(aggregate.input());
    let keys = aggregate.group_expr().expr().iter();
    let keys: Vec<ColumnEstimate> = keys
        .map(|(key, _)| match column(key) {
            Some(index) => input.column(index),
            None => ColumnEstimate::unknown(input.rows, 8.0),
        })
        .collect();
    let groups = keys.iter().map(|key| key.distinct.max(1.0)).product::<f64>();
    let sets = aggregate.group_expr().groups().len().max(1) as f64;
    let rows = (groups * sets).min((input.rows * sets).max(1.0));
    let schema = aggregate.schema();
    let columns = schema.fields().iter().enumerate().map(|(index, field)| match keys.get(index) {
        Some(key) => ColumnEstimate { distinct: key.distinct.min(rows), ..key.clone() },
        None => ColumnEstimate {
            is_computed: true,
            ..ColumnEstimate::unknown(rows, width(field.data_type()))
        },
    });
    let source_rows = rows.min(input.source_rows);
    Estimate { rows, source_rows, columns: columns.collect() }
}

fn of_join(join: &HashJoinExec) -> Estimate {
    let left = estimate(join.left());
    let right = estimate(join.right());
    let distinct = |key, input: &Estimate| match column(key) {
        Some(index) => input.column(index).distinct,
        None => input.rows,
    };
    let on = join.on().iter();
    let keys = on.map(|(one, other)| (distinct(one, &left), distinct(other, &right)));
    let keys: Vec<(f64, f64)> = keys.collect();
    let residual = if join.filter().is_some() { RESIDUAL } else { 1.0 };
    let kind = *join.join_type();
    let in_left = left.columns.len();
    let mut output = of_kind(kind, left, right, &keys, residual);
    for ((one, other), (left, right)) in join.on().iter().zip(&keys) {
        let places = match kind {
            JoinType::Inner => [column(one), column(other).map(|index| index + in_left)],
            JoinType::LeftSemi => [column(one), None],
            JoinType::RightSemi => [None, column(other)],
            _ => [None, None],
        };
        for place in places.into_iter().flatten() {
            output.limit_distinct(place, left.min(*right));
        }
    }
    match join.projection.as_ref() {
        Some(projection) => output.columns_at(projection),
        None => output,
    }
}

/// The output of a join without its projection.
fn of_kind(
    kind: JoinType,
    left: Estimate,
    right: Estimate,
    keys: &[(f64, f64)],
    residual: f64,
) -> Estimate {
    let inner = joined_rows(input(&left), input(&right), keys) * residual;
    let swapped: Vec<_> = keys.iter().map(|(left, right)| (*right, *left)).collect();
    match kind {
        JoinType::Inner => both(left, right, inner),
        JoinType::Left => {
            let rows = inner.max(left.rows);
            let unmatched = unmatched(left.rows, inner);
            both(left, right.with_nulls(unmatched), rows)
        }
        JoinType::Right => {
            let rows = inner.max(right.rows);
            let unmatched = unmatched(right.rows, inner);
            both(left.with_nulls(unmatched), right, rows)
        }
        JoinType::Full => {
            let rows = inner.max(left.rows + right.rows);
            let of_both = [unmatched(right.rows, inner), unmatched(left.rows, inner)];
            both(left.with_nulls(of_both[0]), right.with_nulls(of_both[1]), rows)
        }
        JoinType::LeftSemi => {
            let rows = left.rows * found(&left, &right, keys) * residual;
            left.with_rows(rows)
        }
        JoinType::RightSemi => {
            let rows = right.rows * found(&right, &left, &swapped) * residual;
            right.with_rows(rows)
        }
        JoinType::LeftAnti => {
            let lost = found(&left, &right, keys) * residual;
            let rows = left.rows * (1.0 - lost).max(LEAST_ANTI);
            left.with_rows(rows)
        }
        JoinType::RightAnti => {
            let lost = found(&right, &left, &swapped) * residual;
            let rows = right.rows * (1.0 - lost).max(LEAST_ANTI);
            right.with_rows(rows)
        }
        JoinType::LeftMark => marked(left),
        JoinType::RightMark => marked(right),
    }
}

/// Returns the part of the rows of an input that have no match, where a join gives `pairs` pairs.
fn unmatched(rows: f64, pairs: f64) -> f64 {
    1.0 - (pairs / rows.max(1.0)).min(1.0)
}

fn input(of: &Estimate) -> Input {
    Input { rows: of.rows, source_rows: of.source_rows }
}

/// All columns of two inputs.
fn both(left: Estimate, right: Estimate, rows: f64) -> Estimate {
    let source_rows = left.source_rows.max(right.source_rows);
    let mut left = left.with_rows(rows);
    let right = right.with_rows(rows);
    left.columns.extend(right.columns);
    Estimate { rows, source_rows, columns: left.columns }
}

/// Returns the part of the first input whose keys are in the second one. The first input has at
/// most as many keys of the second one as that has rows: more are counted where their number is
/// overestimated.
fn found(own: &Estimate, other: &Estimate, keys: &[(f64, f64)]) -> f64 {
    let scale = (own.source_rows / other.source_rows.max(1.0)).min(1.0);
    let each = keys.iter().map(|(own, other)| (other * scale / own.max(1.0)).min(1.0));
    each.fold(1.0, f64::min)
}

fn marked(mut of: Estimate) -> Estimate {
    of.columns.push(ColumnEstimate { distinct: 2.0, ..ColumnEstimate::unknown(of.rows, 1.0) });
    of
}

fn of_pairs(node: &PlanNode) -> Estimate {
    let children = node.children();
    let left = estimate(children[0]);
    let right = estimate(children[1]);
    let nested = node.downcast_ref::<NestedLoopJoinExec>();
    let kept = if nested.is_some_and(|join| join.filter().is_some()) { RESIDUAL } else { 1.0 };
    let kind = nested.map_or(JoinType::Inner, |join| *join.join_type());
    let rows = left.rows * right.rows * kept;
    let output = match kind {
        JoinType::Inner => both(left, right, rows),
        // The keys of one row on each side.
        kind => of_kind(kind, left, right, &[(1.0, 1.0)], kept),
    };
    match nested.and_then(|join| join.projection().as_ref()) {
        Some(projection) => output.columns_at(projection),
        None => output,
    }
}

fn of_union(node: &PlanNode) -> Estimate {
    let inputs: Vec<Estimate> = node.children().into_iter().map(estimate).collect();
    let sum = |value: fn(&Estimate) -> f64| inputs.iter().map(value).sum::<f64>();
    let rows = sum(|input| input.rows);
    let source_rows = sum(|input| input.source_rows);
    let count = node.schema().fields().len();
    let columns = (0..count).map(|index| {
        let each = || inputs.iter().map(move |input| input.column(index));
        let distinct = each().map(|column| column.distinct).sum();
        let width = each().map(|column| column.width).fold(0.0, f64::max);
        ColumnEstimate { distinct, ..ColumnEstimate::unknown(rows, width) }
    });
    Estimate { rows, source_rows, columns: columns.collect() }
}

/// An operator that passes the rows of its first input on, and may add columns.
fn of_others(node: &PlanNode) -> Estimate {
    let input = estimate(node.children()[0]);
    let schema = node.schema();
    let columns = schema.fields().iter().enumerate().map(|(index, field)| {
        let found = input.columns.get(index).cloned();
        found.unwrap_or_else(|| ColumnEstimate::unknown(input.rows, width(field.data_type())))
    });
    Estimate { columns: columns.collect(), ..input }
}
