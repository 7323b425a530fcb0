//! Processor time of the operators of a stage, from estimated numbers of rows.
//!
//! Each class of operators has a cost for each row or byte: fitted to the processor seconds of the
//! queries of TPC-H at scale factor 1 with two workers, by least squares of the relative errors. With
//! the numbers of rows that were counted, 14 of 20 queries are within 20 % (`bench/costs.py`). Before
//! a query runs the numbers of rows are DataFusion's estimates from the statistics of the files:
//! they are the larger part of the error.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ColumnStatistics;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::exchange::ExchangeReadExec;
use crate::plan::{file_scan, is_partition_wise};

/// Nanoseconds for each value of a column that a scan decodes.
const SCAN_VALUE: f64 = 5.4;
/// Nanoseconds for each row and predicate of a filter.
const FILTER_ROW: f64 = 3.0;
/// Nanoseconds for each row and computed column.
const PROJECT_VALUE: f64 = 4.7;
/// Nanoseconds for each row of the build side of a hash join.
const BUILD_ROW: f64 = 130.0;
/// Nanoseconds for each row of its probe side.
const PROBE_ROW: f64 = 10.0;
/// Nanoseconds for each row that is grouped.
const GROUP_ROW: f64 = 64.0;
/// Nanoseconds for each row and aggregate.
const AGGREGATE_VALUE: f64 = 11.0;
/// Nanoseconds for each row and level of a sort.
const SORT_STEP: f64 = 15.0;
/// Nanoseconds for each row of a window.
const WINDOW_ROW: f64 = 80.0;
/// Nanoseconds for each byte that is written to an exchange.
const WRITE_BYTE: f64 = 2.6;
/// Nanoseconds for each byte that is read from an exchange.
const READ_BYTE: f64 = 1.2;
/// Nanoseconds for each row of other operators.
const OTHER_ROW: f64 = 2.0;

/// Values of a column of which nothing is known, such as a text that rows are grouped by.
const UNKNOWN_VALUES: f64 = 100.0;

/// Rows of an input of which nothing is known.
const UNKNOWN_ROWS: f64 = 1000.0;

/// Estimates the rows and the work of plans.
pub(super) struct Work {
    statistics: StatisticsContext,
}

impl Work {
    pub(super) fn new() -> Self {
        Self { statistics: StatisticsContext::new() }
    }

    /// Rows that an operator gives in all partitions.
    pub(super) fn rows(&self, node: &Arc<dyn ExecutionPlan>) -> f64 {
        if let Some(origin) = node.downcast_ref::<ExchangeReadExec>().and_then(|it| it.origin()) {
            return self.rows(origin);
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return self.groups(aggregate);
        }
        let children = node.children();
        if passes_rows(node) && children.len() == 1 {
            return self.rows(children[0]);
        }
        let known = self.statistics.compute(node.as_ref(), &StatisticsArgs::new()).ok();
        let rows = known.and_then(|known| known.num_rows.get_value().copied());
        let below = || node.children().into_iter().map(|child| self.rows(child));
        rows.map_or_else(|| below().reduce(f64::max).unwrap_or(UNKNOWN_ROWS), |rows| rows as f64)
    }

    /// Groups of an aggregation: where nothing is known of the values of a column, DataFusion takes
    /// each row for a group of its own.
    fn groups(&self, aggregate: &AggregateExec) -> f64 {
        let input = self.rows(aggregate.input());
        let known = self.statistics.compute(aggregate.input().as_ref(), &StatisticsArgs::new());
        let values = aggregate.group_expr().expr().iter().map(|(key, _)| {
            let column = key.downcast_ref::<Column>()?;
            let columns = &known.as_ref().ok()?.column_statistics;
            distinct(columns.get(column.index())?)
        });
        let groups = values.map(|values| values.unwrap_or(UNKNOWN_VALUES)).product::<f64>();
        groups.min(input).max(1.0)
    }

    /// Bytes of these rows in an exchange.
    pub(super) fn bytes(&self, node: &Arc<dyn ExecutionPlan>) -> f64 {
        self.rows(node) * row_bytes(&node.schema())
    }

    /// Processor seconds of a stage's plan with so many tasks.
    pub(super) fn seconds(&self, node: &Arc<dyn ExecutionPlan>, tasks: f64) -> f64 {
        let inputs = node.children().into_iter().map(|child| {
            // Every task reads an input that is not divided like its reader.
            let times = if is_partition_wise(node, child) || node.is::<RepartitionExec>() {
                1.0
            } else {
                tasks.min(node.output_partitioning().partition_count() as f64)
            };
            self.seconds(child, tasks) * times
        });
        inputs.sum::<f64>() + self.own_nanos(node) / 1e9
    }

    fn own_nanos(&self, node: &Arc<dyn ExecutionPlan>) -> f64 {
        let children = node.children();
        let rows_in = || children.first().map_or(0.0, |child| self.rows(child));
        if file_scan(node).is_some() {
            return self.rows(node) * node.schema().fields().len() as f64 * SCAN_VALUE;
        }
        if node.is::<ExchangeReadExec>() {
            return self.bytes(node) * READ_BYTE;
        }
        if node.is::<RepartitionExec>() {
            return self.bytes(node) * WRITE_BYTE;
        }
        if node.is::<FilterExec>() {
            return rows_in() * FILTER_ROW;
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let computed = projection.expr().iter();
            let computed = computed.filter(|it| !it.expr.children().is_empty()).count();
            return rows_in() * computed as f64 * PROJECT_VALUE;
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            let each = AGGREGATE_VALUE * aggregate.aggr_expr().len() as f64;
            let grouped = if aggregate.group_expr().is_empty() { 0.0 } else { GROUP_ROW };
            return rows_in() * (each + grouped);
        }
        if node.is::<SortExec>() {
            let rows = rows_in().max(2.0);
            return rows * rows.log2() * SORT_STEP;
        }
        if node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>() {
            return rows_in() * WINDOW_ROW;
        }
        self.join_nanos(node).unwrap_or_else(|| rows_in() * OTHER_ROW)
    }

    fn join_nanos(&self, node: &Arc<dyn ExecutionPlan>) -> Option<f64> {
        let children = node.children();
        let (left, right) = (children.first()?, children.get(1)?);
        let (left, right) = (self.rows(left), self.rows(right));
        if node.is::<HashJoinExec>() || node.is::<SortMergeJoinExec>() {
            return Some(left * BUILD_ROW + right * PROBE_ROW + self.rows(node) * OTHER_ROW);
        }
        let pairs = node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
        pairs.then_some(left * right * OTHER_ROW)
    }
}

/// True for operators that give the rows of their input.
fn passes_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_sort = node.is::<SortExec>() || node.is::<SortPreservingMergeExec>();
    node.is::<RepartitionExec>()
        || node.is::<ProjectionExec>()
        || node.is::<CoalescePartitionsExec>()
        || (is_sort && node.fetch().is_none())
}

/// The number of values of a column, from what is known of it.
fn distinct(column: &ColumnStatistics) -> Option<f64> {
    if let Some(count) = column.distinct_count.get_value() {
        return Some(*count as f64);
    }
    let (least, most) = (column.min_value.get_value()?, column.max_value.get_value()?);
    // Only of whole numbers and dates.
    least.distance(most).map(|distance| distance as f64 + 1.0)
}

/// Bytes of a row in an exchange. The length of a text is unknown and taken to be that of a short
/// one, which is stored in its view.
fn row_bytes(schema: &Schema) -> f64 {
    let of = |kind: &DataType| match kind {
        DataType::Boolean => 0.125,
        kind => kind.primitive_width().map_or(16.0, |width| width as f64),
    };
    schema.fields().iter().map(|field| of(field.data_type())).sum()
}
