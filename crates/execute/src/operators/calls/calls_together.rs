//! Projections that call several functions of the user: they compute at the same time.
//!
//! DataFusion evaluates one expression after the other, so a projection of three functions would
//! wait three times for an instance, while the two others are idle. Here a batch of arguments is
//! sent to each function before the first result is awaited: one round trip for all, which takes as
//! long as the slowest function. Calls in arguments of others come first.
//!
//! Only calls that each row needs are made in this way. Calls behind CASE, AND, OR and COALESCE
//! wait for the conditions that decide about them.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, NegativeExpr,
    NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use crate::operators::{Batches, Execution};
use crate::udf::{RemoteUdf, call_together};

type Expr = Arc<dyn PhysicalExpr>;

/// True if a projection makes calls at the same time when it runs, for EXPLAIN.
pub(crate) fn calls_together(node: &Arc<dyn ExecutionPlan>) -> bool {
    CallsTogether::of(node).is_ok_and(|found| found.is_some())
}

/// The execution for a projection that calls several functions; `None` for other nodes.
pub(in crate::operators) fn execution_for(
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn Execution>>> {
    Ok(CallsTogether::of(node)?.map(|found| Arc::new(found) as _))
}

#[derive(Clone, Debug)]
struct CallsTogether {
    /// Calls that are made at the same time, after those of the rounds before. Their results are
    /// columns behind those of the input.
    rounds: Vec<Vec<Expr>>,
    /// Columns of the output, in terms of the input and of these results.
    columns: Vec<Expr>,
    /// The input with the results.
    extended: SchemaRef,
    output: SchemaRef,
}

impl CallsTogether {
    /// `None` if the node is no projection, or if no two functions can compute at the same time.
    fn of(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
        let mut columns: Vec<Expr> =
            projection.expr().iter().map(|projected| Arc::clone(&projected.expr)).collect();
        // The rows of table functions are taken in parts (`table_calls`).
        if columns.iter().any(|column| exists(column, RemoteUdf::is_table)) {
            return Ok(None);
        }
        let mut extended = projection.input().schema();
        let mut rounds: Vec<Vec<Expr>> = Vec::new();
        loop {
            let mut calls = Vec::new();
            columns.iter().for_each(|column| find(column, &mut calls));
            if functions(&calls) < 2 {
                break;
            }
            let first = extended.fields().len();
            extended = with_results(&extended, &calls)?;
            let replaced = columns.into_iter().map(|column| with_columns(column, &calls, first));
            columns = replaced.collect::<Result<_>>()?;
            rounds.push(calls);
        }
        let output = projection.schema();
        Ok((!rounds.is_empty()).then_some(Self { rounds, columns, extended, output }))
    }

    fn project(&self, input: &RecordBatch) -> Result<RecordBatch> {
        let rows = input.num_rows();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let mut arrays = input.columns().to_vec();
        for round in &self.rounds {
            let fields = self.extended.fields()[..arrays.len()].to_vec();
            let schema = Arc::new(Schema::new(fields));
            let batch = RecordBatch::try_new_with_options(schema, arrays.clone(), &options)?;
            let arguments = round.iter().map(|call| of_call(call, &batch));
            arrays.extend(call_together(&arguments.collect::<Result<Vec<_>>>()?)?);
        }
        let schema = Arc::clone(&self.extended);
        let all = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        let column = |expr: &Expr| expr.evaluate(&all)?.into_array(rows);
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?)
    }
}

impl Execution for CallsTogether {
    fn run(
        &self,
        input: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let state = (input, self.clone(), metrics);
        let projected = stream::try_unfold(state, |(mut input, calls, metrics)| async move {
            let Some(batch) = input.next().await.transpose()? else {
                return Ok::<_, DataFusionError>(None);
            };
            let timer = metrics.elapsed_compute().timer();
            let batch = calls.project(&batch)?;
            timer.done();
            metrics.record_output(batch.num_rows());
            Ok(Some((batch, (input, calls, metrics))))
        });
        Ok(projected.boxed())
    }
}

/// Finds the innermost calls that each row needs, each once.
fn find(expr: &Expr, calls: &mut Vec<Expr>) {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let is_remote = RemoteUdf::inside(call.fun()).is_some();
        // One without arguments gives another value wherever it is written.
        let is_innermost = !call.args().is_empty() && !call.args().iter().any(calls_any);
        if is_remote && is_innermost && !calls.contains(expr) {
            calls.push(Arc::clone(expr));
        }
        if !call.fun().short_circuits() {
            call.args().iter().for_each(|argument| find(argument, calls));
        }
    } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        find(binary.left(), calls);
        if !matches!(binary.op(), Operator::And | Operator::Or) {
            find(binary.right(), calls);
        }
    } else if let Some(list) = expr.downcast_ref::<InListExpr>() {
        find(list.expr(), calls);
    } else if evaluates_inputs(expr) {
        expr.children().into_iter().for_each(|child| find(child, calls));
    }
}

/// True for expressions that evaluate what they consist of for all rows.
fn evaluates_inputs(expr: &Expr) -> bool {
    expr.is::<CastExpr>()
        || expr.is::<TryCastExpr>()
        || expr.is::<NotExpr>()
        || expr.is::<NegativeExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<LikeExpr>()
}

fn calls_any(expr: &Expr) -> bool {
    exists(expr, |_| true)
}

/// True if an expression calls a function of the user for which `is_such` is true.
fn exists(expr: &Expr, is_such: impl Fn(&RemoteUdf) -> bool) -> bool {
    expr.exists(|part| Ok(remote(part).is_some_and(&is_such))).unwrap_or(true)
}

fn remote(expr: &Expr) -> Option<&RemoteUdf> {
    RemoteUdf::inside(expr.downcast_ref::<ScalarFunctionExpr>()?.fun())
}

/// Returns the number of different functions that are called.
fn functions(calls: &[Expr]) -> usize {
    let mut names: Vec<&str> = calls
        .iter()
        .filter_map(|call| Some(remote(call)?.wire_signature().name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn with_results(schema: &Schema, calls: &[Expr]) -> Result<SchemaRef> {
    let mut fields = schema.fields().to_vec();
    for call in calls {
        fields.push(call.return_field(schema)?);
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The expression with the column of its result instead of each call.
fn with_columns(expr: Expr, calls: &[Expr], first: usize) -> Result<Expr> {
    expr.transform_down(|part| {
        Ok(match calls.iter().position(|call| call == &part) {
            Some(place) => {
                let column = Column::new(&part.to_string(), first + place);
                Transformed::new(Arc::new(column) as Expr, true, TreeNodeRecursion::Jump)
            }
            None => Transformed::no(part),
        })
    })
    .data()
}

/// The function of a call, and a batch of its arguments.
fn of_call<'c>(call: &'c Expr, input: &RecordBatch) -> Result<(&'c RemoteUdf, RecordBatch)> {
    let (Some(function), Some(remote)) = (call.downcast_ref::<ScalarFunctionExpr>(), remote(call))
    else {
        return datafusion::common::internal_err!("{call} calls no function of the user");
    };
    let rows = input.num_rows();
    let arguments = function.args().iter().map(|argument| argument.evaluate(input));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let arrays: Vec<ArrayRef> =
        arguments.into_iter().map(|value| value.into_array(rows)).collect::<Result<_>>()?;
    Ok((remote, remote.arguments(arrays, rows)?))
}
