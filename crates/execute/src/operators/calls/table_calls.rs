//! Calls of table functions, for as many rows at a time as one call answers.
//!
//! The list of a row may be a thousand times longer than the row. So a projection that computes one
//! gives a batch for each answer, which has a bound, and not one for each batch of its input.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use crate::operators::{Batches, Execution};
use crate::udf::RemoteUdf;

/// The name of the column with the lists of an answer.
const LIST: &str = "__list";

/// The execution for a projection that calls one table function; `None` for other nodes.
pub(in crate::operators) fn execution_for(
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn Execution>>> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let mut calls: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    for projected in projection.expr() {
        projected.expr.apply(|part| {
            if function(part).is_some() && !calls.contains(part) {
                calls.push(Arc::clone(part));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let [call] = calls.as_slice() else { return Ok(None) };
    let Some((called, remote)) = function(call) else { return Ok(None) };
    let input = projection.input().schema();
    let place = input.fields().len();
    let list = Field::new(LIST, remote.result_type().clone(), true);
    let fields = input.fields().iter().cloned().chain([Arc::new(list)]);
    let columns = projection.expr().iter().map(|one| with_column(&one.expr, call, place));
    Ok(Some(Arc::new(TableCalls(Arc::new(CallProjection {
        function: Arc::new(called.fun().clone()),
        args: called.args().to_vec(),
        columns: columns.collect::<Result<_>>()?,
        with_list: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        schema: node.schema(),
    })))))
}

/// The call of a table function.
fn function(part: &Arc<dyn PhysicalExpr>) -> Option<(&ScalarFunctionExpr, &RemoteUdf)> {
    let call = part.downcast_ref::<ScalarFunctionExpr>()?;
    Some((call, RemoteUdf::inside(call.fun()).filter(|remote| remote.is_table())?))
}

/// An expression that reads the list as a column, instead of the call.
fn with_column(
    expression: &Arc<dyn PhysicalExpr>,
    call: &Arc<dyn PhysicalExpr>,
    place: usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = Arc::clone(expression).transform_down(|part| match &part == call {
        true => {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(LIST, place));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        }
        false => Ok(Transformed::no(part)),
    });
    replaced.data()
}

#[derive(Debug)]
struct TableCalls(Arc<CallProjection>);

/// The call and the projection that are computed for each part of a batch.
#[derive(Debug)]
struct CallProjection {
    function: Arc<ScalarUDF>,
    args: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns of the projection, over the columns of the input and the list.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    with_list: SchemaRef,
    schema: SchemaRef,
}

/// A batch of the input, its arguments, and how many of its rows are answered.
struct Batch {
    rows: RecordBatch,
    args: RecordBatch,
    done: usize,
}

impl Execution for TableCalls {
    fn run(
        &self,
        input: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let state = (input, Arc::clone(&self.0), None::<Batch>, metrics);
        let answered = stream::try_unfold(state, |(mut input, parts, batch, metrics)| async move {
            let mut batch = match batch {
                Some(batch) => batch,
                None => {
                    let Some(rows) = next(&mut input).await? else {
                        return Ok::<_, DataFusionError>(None);
                    };
                    Batch { args: parts.args(&rows)?, rows, done: 0 }
                }
            };
            let timer = metrics.elapsed_compute().timer();
            let part = parts.answer(&mut batch)?;
            timer.done();
            metrics.record_output(part.num_rows());
            let rest = (batch.done < batch.rows.num_rows()).then_some(batch);
            Ok(Some((part, (input, parts, rest, metrics))))
        });
        Ok(answered.boxed())
    }
}

/// The next batch that has rows.
async fn next(input: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
    while let Some(batch) = input.next().await.transpose()? {
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

impl CallProjection {
    fn remote(&self) -> Result<&RemoteUdf> {
        let no_function = || DataFusionError::Internal("a table function is not remote".to_owned());
        RemoteUdf::inside(&self.function).ok_or_else(no_function)
    }

    fn args(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let args = self.args.iter().map(|arg| arg.evaluate(batch)?.into_array(rows));
        self.remote()?.arguments(args.collect::<Result<_>>()?, rows)
    }

    /// The projection of the rows that the next call answers.
    fn answer(&self, batch: &mut Batch) -> Result<RecordBatch> {
        let list = self.remote()?.call_part(&batch.args, batch.done)?;
        let rows = list.len();
        let part = batch.rows.slice(batch.done, rows);
        batch.done += rows;
        let columns = part.columns().iter().cloned().chain([list]).collect();
        let input = RecordBatch::try_new_with_options(
            Arc::clone(&self.with_list),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )?;
        let columns = self.columns.iter().map(|one| one.evaluate(&input)?.into_array(rows));
        let columns = columns.collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
