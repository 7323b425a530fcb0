//! Filters that call functions of the user: conditions without calls first, then the others in the
//! order of what they cost for each row that they drop.
//!
//! Calls cost far more than anything else in a filter, and how much is only known once they are
//! made. So the conditions of a filter, and of filters and projections below it, become one
//! operator. It measures the time and the rows of each condition with calls, and begins with the one
//! whose time for a row, divided by the share of rows that it drops, is the least. Each condition sees
//! only rows that passed those before it, and a column that a projection computes is computed when it
//! is needed: for the rows that are left.
//!
//! Conditions joined by AND may be evaluated in any order, so the rows are the same.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use futures::stream;

use super::condition_order::MeasuredRows;
use super::conditions::Conditions;
use crate::tree::{visit_expressions, with_children};
use crate::udf;

/// Replaces the filters with calls for which an order is to be chosen.
pub(in crate::operators) fn order_calls(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_down(|node| {
        Ok(match CheapestFirstExec::of(&node)? {
            Some(replaced) => Transformed::yes(Arc::new(replaced)),
            None => Transformed::no(node),
        })
    })
    .data()
}

/// True if a filter is replaced when it runs, for EXPLAIN.
pub(crate) fn orders_calls(node: &Arc<dyn ExecutionPlan>) -> bool {
    CheapestFirstExec::of(node).is_ok_and(|found| found.is_some())
}

/// Filters and projections as one operator, in place of the uppermost filter.
///
/// The properties are those of that filter.
#[derive(Debug)]
struct CheapestFirstExec {
    original: Arc<dyn ExecutionPlan>,
    /// The number of filters and projections.
    parts: usize,
    conditions: Arc<Conditions>,
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl CheapestFirstExec {
    /// Creates the operator in place of a filter. `None` if the node is not a filter, or if there
    /// is no order to choose.
    fn of(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        if !is_filter(node) {
            return Ok(None);
        }
        let mut parts = vec![node];
        let mut input = node.children()[0];
        while is_filter(input) || input.is::<ProjectionExec>() {
            parts.push(input);
            input = input.children()[0];
        }
        let calls_none = |part: &&Arc<dyn ExecutionPlan>| {
            udf::called_by(part).is_ok_and(|called| called.is_empty())
        };
        if parts.iter().all(calls_none) {
            return Ok(None);
        }
        let Some(conditions) = Conditions::of(&parts, input)? else { return Ok(None) };
        Ok(Some(Self {
            original: Arc::clone(node),
            parts: parts.len(),
            conditions: Arc::new(conditions),
            input: Arc::clone(input),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// A filter without a limit.
fn is_filter(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<FilterExec>() && node.fetch().is_none()
}

/// Rebuilds the uppermost `parts` filters and projections from `node` on over another input.
fn over(
    node: &Arc<dyn ExecutionPlan>,
    parts: usize,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let child = match parts {
        0 | 1 => input,
        more => over(node.children()[0], more - 1, input)?,
    };
    with_children(node, vec![child])
}

impl DisplayAs for CheapestFirstExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.conditions)
    }
}

impl ExecutionPlan for CheapestFirstExec {
    fn name(&self) -> &str {
        "CheapestFirstExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        visit_expressions(self.conditions.expressions(), visit)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("{} has one input", self.name());
        };
        Ok(Arc::new(Self {
            original: over(&self.original, self.parts, Arc::clone(&input))?,
            parts: self.parts,
            conditions: Arc::clone(&self.conditions),
            input,
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    crate::children_by_replacement!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size();
        let input = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let conditions = Arc::clone(&self.conditions);
        let rows = MeasuredRows::new(input, conditions, self.schema(), batch_rows, metrics);
        let batches = stream::try_unfold(rows, |mut rows| async move {
            Ok(rows.next().await?.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
