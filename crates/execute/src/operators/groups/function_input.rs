//! The input of an aggregate function: its arguments and its filter.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The aggregation that an operator is.
pub(super) fn aggregation(node: &Arc<dyn ExecutionPlan>) -> Result<&AggregateExec> {
    let aggregation = node.downcast_ref::<AggregateExec>();
    aggregation.ok_or_else(|| DataFusionError::Internal("not an aggregation".to_owned()))
}

/// The expressions of one function.
pub(super) struct FunctionInput {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

/// The values of the expressions for the rows of a batch.
pub(super) struct FunctionValues {
    pub(super) arguments: Vec<ArrayRef>,
    filter: Option<ArrayRef>,
}

impl FunctionInput {
    /// Returns the inputs of all functions of an aggregation, in their order.
    pub(super) fn all(of: &AggregateExec) -> Vec<Self> {
        let mut all = Vec::with_capacity(of.aggr_expr().len());
        for (function, filter) in of.aggr_expr().iter().zip(of.filter_expr()) {
            all.push(Self { arguments: function.expressions(), filter: filter.clone() });
        }
        all
    }

    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<FunctionValues> {
        let arguments = evaluate_expressions_to_arrays(&self.arguments, batch)?;
        let filter = match &self.filter {
            Some(filter) => Some(filter.evaluate(batch)?.into_array(batch.num_rows())?),
            None => None,
        };
        Ok(FunctionValues { arguments, filter })
    }
}

impl FunctionValues {
    /// The rows that the function counts. `None` for all.
    pub(super) fn filter(&self) -> Option<&BooleanArray> {
        self.filter.as_ref().map(|filter| filter.as_boolean())
    }
}
