//! The values of a function for all rows of a partition, one after another.
//!
//! Sums, counts and averages of integers and decimals take rows out of what they have added. All other
//! values are computed anew unless all rows come behind those of the frame before: floating-point numbers
//! would lose digits, lists have an order, and other accumulators take out only what came first.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{filter, partition};
use arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, PartitionEvaluator};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::PhysicalExpr;

use super::Row;
use super::frame::{Excluded, without};

/// The computation over the rows that are left of a frame.
#[derive(Debug)]
pub(super) enum Chosen {
    All(Aggregation),
    One { row: Row, ignores_nulls: bool },
}

/// The evaluation of one partition.
#[derive(Debug)]
pub(super) struct Partition {
    kind: Excluded,
    chosen: Chosen,
    /// The number of arguments before the condition of FILTER.
    arguments: usize,
    /// The next row.
    row: usize,
    /// The rows that are equal in all keys of ORDER BY.
    groups: Vec<Range<usize>>,
    group: usize,
}

impl Partition {
    pub(super) fn new(kind: Excluded, chosen: Chosen, arguments: usize) -> Self {
        Self { kind, chosen, arguments, row: 0, groups: Vec::new(), group: 0 }
    }
}

impl PartitionEvaluator for Partition {
    /// Rows come in their order. Behind the arguments, `values` has the keys of ORDER BY.
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let row = self.row;
        self.row += 1;
        let condition = values[self.arguments].as_boolean();
        if row == 0 {
            let keys = &values[self.arguments + 1..];
            self.groups = match keys.is_empty() {
                true => std::iter::once(0..condition.len()).collect(),
                false => partition(keys)?.ranges(),
            };
        }
        while self.groups[self.group].end <= row {
            self.group += 1;
        }
        let left = self.kind.left(range, row, &self.groups[self.group]);
        let arguments = &values[..self.arguments];
        match &mut self.chosen {
            Chosen::All(aggregation) => aggregation.value(arguments, condition, left),
            Chosen::One { row: chosen, ignores_nulls } => {
                let column = &arguments[0];
                let nth = arguments.get(1).map(|nth| nth.as_primitive::<Int64Type>());
                let counts = |at: &usize| {
                    condition.is_valid(*at)
                        && condition.value(*at)
                        && !(*ignores_nulls && column.is_null(*at))
                };
                let mut rows = left.into_iter().flatten().filter(counts);
                // A place that is null is none.
                let nth = nth.map(|nth| if nth.is_valid(row) { nth.value(row) } else { 0 });
                let at = match (chosen, nth.unwrap_or(1)) {
                    (Row::Last, _) => rows.next_back(),
                    (_, nth) if nth > 0 => {
                        usize::try_from(nth - 1).ok().and_then(|before| rows.nth(before))
                    }
                    _ => None,
                };
                match at {
                    Some(at) => ScalarValue::try_from_array(column, at),
                    None => ScalarValue::try_from(column.data_type()),
                }
            }
        }
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}

/// An aggregate, with the rows that it has added.
#[derive(Debug)]
pub(super) struct Aggregation {
    aggregate: Arc<AggregateUDF>,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<FieldRef>,
    takes_out: bool,
    accumulator: Box<dyn Accumulator>,
    added: Vec<Range<usize>>,
}

impl Aggregation {
    pub(super) fn new(
        aggregate: &Arc<AggregateUDF>,
        is_distinct: bool,
        exprs: &[Arc<dyn PhysicalExpr>],
        fields: &[FieldRef],
    ) -> Result<Self> {
        let columns = exprs.iter().zip(fields).enumerate().map(|(place, (expr, field))| {
            match expr.downcast_ref::<Literal>() {
                Some(_) => Arc::clone(expr),
                None => Arc::new(Column::new(field.name(), place)),
            }
        });
        let exprs: Vec<Arc<dyn PhysicalExpr>> = columns.collect();
        let is_exact = |field: &FieldRef| {
            field.data_type().is_integer() || matches!(field.data_type(), DataType::Decimal128(..))
        };
        let is_sum = matches!(aggregate.name(), "sum" | "avg") && fields.iter().all(is_exact);
        let takes_out = !is_distinct && (is_sum || aggregate.name() == "count");
        let aggregate = Arc::clone(aggregate);
        let fields = fields.to_vec();
        let accumulator = accumulator(&aggregate, is_distinct, &exprs, &fields, takes_out)?;
        let takes_out = takes_out && accumulator.supports_retract_batch();
        let added = Vec::new();
        Ok(Self { aggregate, is_distinct, exprs, fields, takes_out, accumulator, added })
    }

    /// The value of the rows of some ranges.
    fn value(
        &mut self,
        arguments: &[ArrayRef],
        condition: &BooleanArray,
        ranges: Vec<Range<usize>>,
    ) -> Result<ScalarValue> {
        let mut leave = without(&self.added, &ranges);
        let mut come = without(&ranges, &self.added);
        let end = self.added.last().map_or(0, |last| last.end);
        let is_behind = come.first().is_none_or(|first| first.start >= end);
        if !(self.takes_out || leave.is_empty() && is_behind) {
            let Self { aggregate, is_distinct, exprs, fields, .. } = self;
            self.accumulator = accumulator(aggregate, *is_distinct, exprs, fields, false)?;
            leave.clear();
            come.clone_from(&ranges);
        }
        for range in come {
            self.accumulator.update_batch(&rows(arguments, condition, &range)?)?;
        }
        for range in leave {
            self.accumulator.retract_batch(&rows(arguments, condition, &range)?)?;
        }
        self.added = ranges;
        self.accumulator.evaluate()
    }
}

fn accumulator(
    aggregate: &AggregateUDF,
    is_distinct: bool,
    exprs: &[Arc<dyn PhysicalExpr>],
    fields: &[FieldRef],
    is_sliding: bool,
) -> Result<Box<dyn Accumulator>> {
    let schema = Schema::new(fields.to_vec());
    let args = AccumulatorArgs {
        return_field: aggregate.return_field(fields)?,
        schema: &schema,
        ignore_nulls: false,
        order_bys: &[],
        is_reversed: false,
        name: aggregate.name(),
        is_distinct,
        exprs,
        expr_fields: fields,
    };
    match is_sliding {
        true => aggregate.create_sliding_accumulator(args),
        false => aggregate.accumulator(args),
    }
}

/// The arguments of the rows of a range that fulfil the condition.
fn rows(
    arguments: &[ArrayRef],
    condition: &BooleanArray,
    range: &Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let slice = |of: &ArrayRef| of.slice(range.start, range.len());
    let condition = condition.slice(range.start, range.len());
    if condition.true_count() == condition.len() {
        return Ok(arguments.iter().map(slice).collect());
    }
    arguments.iter().map(|of| Ok(filter(&slice(of), &condition)?)).collect()
}
