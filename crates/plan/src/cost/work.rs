//! Processor time of the operators of a stage, from estimated numbers of rows.
//!
//! Each class of work has a cost for each row, value or byte: fitted to the processor seconds of the
//! queries of TPC-H at scale factor 1 with two workers, by least squares of the relative errors, with
//! the numbers of rows that are estimated (`bench/costs.py`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use snowmelt_execute::exchange::ExchangeReadExec;
use snowmelt_execute::tree::{address, file_scan, is_partition_wise};

use crate::estimate::{Size, size};

/// A class of work that an operator does for each row, value or byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// A value of fixed length that a scan decodes.
    ScanValue,
    /// A text that a scan decodes.
    ScanText,
    /// A row of a filter.
    FilterRow,
    /// A computed column of a row.
    ProjectValue,
    /// A row of the build side of a hash join.
    BuildRow,
    /// A row of the probe side of a hash join.
    ProbeRow,
    /// A value of a row that a join gives.
    JoinedValue,
    /// A row that is grouped.
    GroupRow,
    /// A group.
    Group,
    /// An aggregate of a row.
    AggregateValue,
    /// A row and level of a sort.
    SortStep,
    /// A row of a window.
    WindowRow,
    /// A byte that is written to an exchange.
    WriteByte,
    /// A byte that is read from an exchange.
    ReadByte,
    /// A row of another operator, or of a sort of which only the first rows are needed.
    OtherRow,
}

impl Class {
    /// Returns the processor nanoseconds of one such row, value or byte.
    fn nanos(self) -> f64 {
        match self {
            Self::ScanValue => 6.4,
            Self::ScanText => 9.0,
            Self::FilterRow => 1.2,
            Self::ProjectValue => 1.4,
            Self::BuildRow => 39.0,
            Self::ProbeRow => 3.0,
            Self::JoinedValue => 6.0,
            Self::GroupRow => 12.0,
            Self::Group => 15.0,
            Self::AggregateValue => 3.3,
            Self::SortStep => 11.4,
            Self::WindowRow => 80.0,
            Self::WriteByte => 0.78,
            Self::ReadByte => 0.36,
            Self::OtherRow => 0.6,
        }
    }
}

/// Estimates the rows and the work of plans.
#[derive(Default)]
pub(super) struct Work {
    /// Sizes by the address of a node, which the plan keeps in use.
    known: RefCell<HashMap<usize, Size>>,
}

impl Work {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn size(&self, node: &Arc<dyn ExecutionPlan>) -> Size {
        let known = self.known.borrow().get(&address(node)).copied();
        known.unwrap_or_else(|| {
            let found = size(node);
            self.known.borrow_mut().insert(address(node), found);
            found
        })
    }

    /// Rows that an operator gives in all partitions.
    pub(super) fn rows(&self, node: &Arc<dyn ExecutionPlan>) -> f64 {
        self.size(node).rows
    }

    /// Returns the bytes of an operator's rows in an exchange.
    pub(super) fn bytes(&self, node: &Arc<dyn ExecutionPlan>) -> f64 {
        self.size(node).bytes
    }

    /// Returns the processor seconds of a stage's plan, summed over its `tasks`.
    pub(super) fn seconds(&self, node: &Arc<dyn ExecutionPlan>, tasks: f64) -> f64 {
        let mut seconds = 0.0;
        self.each(node, tasks, 1.0, &mut |class, amount| seconds += class.nanos() * amount / 1e9);
        seconds
    }

    /// Calls `found` with the work of each operator of a plan, times the number of its runs.
    fn each(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        tasks: f64,
        times: f64,
        found: &mut dyn FnMut(Class, f64),
    ) {
        for child in node.children() {
            // Every task reads an input that is not divided like its reader.
            let of_child = if is_partition_wise(node, child) || node.is::<RepartitionExec>() {
                1.0
            } else {
                tasks.min(node.output_partitioning().partition_count() as f64)
            };
            self.each(child, tasks, times * of_child, found);
        }
        self.own(node, &mut |class, amount| found(class, amount * times));
    }

    /// The work of one operator.
    fn own(&self, node: &Arc<dyn ExecutionPlan>, found: &mut dyn FnMut(Class, f64)) {
        let children = node.children();
        let rows_in = children.first().map_or(0.0, |child| self.rows(child));
        if file_scan(node).is_some() {
            let (values, texts) = values_and_texts(&node.schema());
            found(Class::ScanValue, self.rows(node) * values);
            found(Class::ScanText, self.rows(node) * texts);
        } else if node.is::<ExchangeReadExec>() {
            found(Class::ReadByte, self.bytes(node));
        } else if node.is::<RepartitionExec>() {
            found(Class::WriteByte, self.bytes(node));
        } else if node.is::<FilterExec>() {
            found(Class::FilterRow, rows_in);
        } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let computed = projection.expr().iter();
            let computed = computed.filter(|computed| !computed.expr.children().is_empty()).count();
            found(Class::ProjectValue, rows_in * computed as f64);
        } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            found(Class::AggregateValue, rows_in * aggregate.aggr_expr().len() as f64);
            if !aggregate.group_expr().is_empty() {
                found(Class::GroupRow, rows_in);
                found(Class::Group, self.rows(node));
            }
        } else if node.is::<SortExec>() && node.fetch().is_none() {
            let rows = rows_in.max(2.0);
            found(Class::SortStep, rows * rows.log2());
        } else if node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>() {
            found(Class::WindowRow, rows_in);
        } else if !self.join(node, found) {
            found(Class::OtherRow, rows_in);
        }
    }

    /// The work of a join; false for another operator.
    fn join(&self, node: &Arc<dyn ExecutionPlan>, found: &mut dyn FnMut(Class, f64)) -> bool {
        let children = node.children();
        let [left, right] = children.as_slice() else { return false };
        let left = self.rows(left);
        let right = self.rows(right);
        if node.is::<HashJoinExec>() || node.is::<SortMergeJoinExec>() {
            found(Class::BuildRow, left);
            found(Class::ProbeRow, right);
            found(Class::JoinedValue, self.rows(node) * node.schema().fields().len() as f64);
            return true;
        }
        let pairs = node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
        if pairs {
            found(Class::OtherRow, left * right);
        }
        pairs
    }
}

/// The number of columns of fixed length, and of others.
fn values_and_texts(schema: &Schema) -> (f64, f64) {
    let fixed = schema.fields().iter().filter(|field| {
        field.data_type().primitive_width().is_some() || field.data_type().is_null()
    });
    let fixed = fixed.count();
    (fixed as f64, (schema.fields().len() - fixed) as f64)
}
