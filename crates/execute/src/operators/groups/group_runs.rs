//! Partial aggregation of rows whose groups are next to each other.
//!
//! Tables are often written in the order of a key: all lines of an order, all events of a minute.
//! Then a group of the key is a run of rows, and its partial state needs no hash table: the state of
//! each run is passed on. The final aggregation merges runs of the same group.
//!
//! The first rows decide: if their runs are few, and hardly any two are of the same group. If later
//! rows have short runs, they are grouped by DataFusion's hash table, as all others are.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{partition, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::metrics::{BaselineMetrics, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, SendableRecordBatchStream};
use futures::{StreamExt, TryStreamExt, stream};

use super::by_hash::{ByHash, GroupMetrics};
use super::function_input::{FunctionInput, aggregation};
use crate::operators::Batches;
use crate::operators::replaced_exec::{ReplacedExec, Replacement};

/// Number of first rows that decide whether the rows of groups are next to each other.
const SAMPLED_ROWS: usize = 32 << 10;

/// The fewest rows of a batch that can end the passing on of runs.
const JUDGED_ROWS: usize = 1 << 10;

/// A partial aggregation that looks for runs; `None` for other nodes.
pub(in crate::operators) fn clustered(
    node: &Arc<dyn ExecutionPlan>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let groups = aggregate.group_expr();
    let is_plain = *aggregate.mode() == AggregateMode::Partial
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none()
        && !groups.has_grouping_set()
        && !groups.is_empty();
    let keys: Vec<_> = groups.expr().iter().map(|(key, _)| Arc::clone(key)).collect();
    let input = aggregate.input().schema();
    let is_key = |key: &Arc<dyn PhysicalExpr>| {
        key.is::<Column>() && key.data_type(&input).is_ok_and(|kind| !kind.is_nested())
    };
    if !is_plain || !keys.iter().all(is_key) || !aggregate.aggr_expr().iter().all(has_small_state) {
        return None;
    }
    let replacement = Clustered { keys, metrics: Arc::default() };
    Some(Arc::new(ReplacedExec { original: Arc::clone(node), replacement }))
}

/// True if the state of a function is a few values. Larger states cost more for each run than for
/// each group.
pub(super) fn has_small_state(function: &Arc<AggregateFunctionExpr>) -> bool {
    let is_small = |kind: &DataType| {
        kind.is_primitive() || kind.is_string() || matches!(kind, DataType::Boolean)
    };
    !function.is_distinct()
        && function.order_bys().is_empty()
        && function.groups_accumulator_supported()
        && function
            .state_fields()
            .is_ok_and(|fields| fields.iter().all(|field| is_small(field.data_type())))
}

#[derive(Debug)]
struct Clustered {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    metrics: Arc<GroupMetrics>,
}

impl Replacement for Clustered {
    fn batches(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches> {
        let mut input = original.children()[0].execute(partition, Arc::clone(&context))?;
        let metrics = self.metrics.of(partition);
        let by_hash = ByHash::new(original, context, &self.metrics);
        let keys = self.keys.clone();
        let runs = Runs::new(original, keys, metrics)?;
        let chosen = async move {
            let mut first = Vec::new();
            while first.iter().map(RecordBatch::num_rows).sum::<usize>() < SAMPLED_ROWS {
                let Some(batch) = input.next().await.transpose()? else { break };
                first.push(batch);
            }
            let is_clustered = is_clustered(&runs.keys, &first)?;
            let all = stream::iter(first.into_iter().map(Ok)).chain(input).boxed();
            match is_clustered {
                true => Ok::<_, DataFusionError>(runs.over(all, by_hash)),
                false => Ok(by_hash.over(all)?.boxed()),
            }
        };
        Ok(stream::once(chosen).try_flatten().boxed())
    }

    fn metrics(&self, _: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
        Some(self.metrics.all())
    }

    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(clustered(&original).unwrap_or(original))
    }
}

/// True if half of the rows, or more, have the same key as the row before, and the same keys are
/// hardly ever apart from each other.
fn is_clustered(keys: &[Arc<dyn PhysicalExpr>], batches: &[RecordBatch]) -> Result<bool> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows < SAMPLED_ROWS {
        return Ok(false);
    }
    let mut begins = Vec::new();
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        let columns = evaluate_expressions_to_arrays(keys, batch)?;
        let starts = UInt32Array::from(starts(&columns)?);
        begins.push(taken(&columns, &starts)?);
    }
    let runs: usize = begins.iter().map(|columns| columns[0].len()).sum();
    if 2 * runs > rows {
        return Ok(false);
    }
    let fields = begins[0].iter().map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let mut distinct = HashSet::new();
    for columns in begins {
        distinct.extend(converter.convert_columns(&columns)?.iter().map(|row| row.owned()));
    }
    // A run may go on in the next batch.
    Ok(runs - batches.len().min(runs) <= distinct.len() + distinct.len() / 10)
}

fn taken(columns: &[ArrayRef], rows: &UInt32Array) -> Result<Vec<ArrayRef>> {
    columns.iter().map(|column| Ok(take(column, rows, None)?)).collect()
}

/// The first rows of all runs.
fn starts(columns: &[ArrayRef]) -> Result<Vec<u32>> {
    Ok(partition(columns)?.ranges().into_iter().map(|run| run.start as u32).collect())
}

/// Aggregates each run.
struct Runs {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    functions: Vec<GroupFunction>,
    schema: SchemaRef,
    metrics: BaselineMetrics,
}

struct GroupFunction {
    input: FunctionInput,
    states: Box<dyn GroupsAccumulator>,
}

impl Runs {
    fn new(
        original: &Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        metrics: BaselineMetrics,
    ) -> Result<Self> {
        let of = aggregation(original)?;
        let mut functions = Vec::with_capacity(of.aggr_expr().len());
        for (function, input) in of.aggr_expr().iter().zip(FunctionInput::all(of)) {
            functions.push(GroupFunction { input, states: function.create_groups_accumulator()? });
        }
        Ok(Self { keys, functions, schema: original.schema(), metrics })
    }

    /// The states of all batches, of runs as long as they are not short.
    fn over(self, batches: Batches, by_hash: ByHash) -> Batches {
        let state = GroupSource::Runs(Box::new((self, batches, by_hash)));
        let next = |source| async move {
            let mut source = source;
            if let GroupSource::Runs(of) = source {
                let (mut runs, mut batches, by_hash) = *of;
                let Some(batch) = batches.next().await.transpose()? else { return Ok(None) };
                if let Some(states) = runs.aggregate(&batch)? {
                    return Ok(Some((
                        states,
                        GroupSource::Runs(Box::new((runs, batches, by_hash))),
                    )));
                }
                let rest = stream::iter([Ok(batch)]).chain(batches).boxed();
                source = GroupSource::Hashed(by_hash.over(rest)?);
            }
            let GroupSource::Hashed(mut hashed) = source else { return Ok(None) };
            let states = hashed.next().await.transpose()?;
            Ok(states.map(|states| (states, GroupSource::Hashed(hashed))))
        };
        stream::try_unfold(state, next).boxed()
    }

    /// The states of the batch's runs; `None` if they are short.
    fn aggregate(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
        let timer = self.metrics.elapsed_compute().timer();
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(Some(RecordBatch::new_empty(Arc::clone(&self.schema))));
        }
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        let starts = starts(&keys)?;
        if rows >= JUDGED_ROWS && 4 * starts.len() > 3 * rows {
            return Ok(None);
        }
        let groups = groups(&starts, rows);
        let starts = UInt32Array::from(starts);
        let mut output = taken(&keys, &starts)?;
        for function in &mut self.functions {
            output.extend(function.states_of(batch, &groups, starts.len())?);
        }
        let states = RecordBatch::try_new(Arc::clone(&self.schema), output)?;
        timer.done();
        self.metrics.record_output(states.num_rows());
        Ok(Some(states))
    }
}

enum GroupSource {
    Runs(Box<(Runs, Batches, ByHash)>),
    Hashed(SendableRecordBatchStream),
}

/// The number of the run of each row.
fn groups(starts: &[u32], rows: usize) -> Vec<usize> {
    let mut groups = Vec::with_capacity(rows);
    for run in 0..starts.len() {
        let end = starts.get(run + 1).map_or(rows, |end| *end as usize);
        groups.resize(end, run);
    }
    groups
}

impl GroupFunction {
    fn states_of(
        &mut self,
        batch: &RecordBatch,
        groups: &[usize],
        count: usize,
    ) -> Result<Vec<ArrayRef>> {
        let values = self.input.evaluate(batch)?;
        self.states.update_batch(&values.arguments, groups, values.filter(), count)?;
        self.states.state(EmitTo::All)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
    use datafusion::datasource::MemTable;
    use datafusion::execution::context::{SessionConfig, SessionContext};
    use datafusion::physical_plan::collect;

    use super::*;

    const ROWS: i64 = 100_000;

    /// Two partitions of rows with this key for each number.
    fn table(key: impl Fn(i64) -> Option<i64>) -> MemTable {
        let batch = |start: i64| {
            let rows = || start..start + 2000;
            let keys: Int64Array = rows().map(&key).collect();
            let texts: StringViewArray =
                rows().map(|row| key(row).map(|key| format!("the key {key}"))).collect();
            let values: Int64Array =
                rows().map(|row| Some(row).filter(|row| row % 5 > 0)).collect();
            let columns: [(&str, ArrayRef); 3] =
                [("k", Arc::new(keys)), ("t", Arc::new(texts)), ("v", Arc::new(values))];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
        };
        let batches: Vec<_> = (0..ROWS).step_by(2000).map(batch).collect();
        let (first, second) = batches.split_at(batches.len() / 2);
        MemTable::try_new(first[0].schema(), vec![first.to_vec(), second.to_vec()]).unwrap()
    }

    /// Runs a query with and without the replacement and compares the rows. Gives the operators that
    /// look for runs, and how many of their partitions used hash tables.
    async fn check(sql: &str, key: impl Fn(i64) -> Option<i64>) -> (usize, usize) {
        let config = SessionConfig::new().with_target_partitions(2);
        let session = SessionContext::new_with_config(config);
        session.register_table("rows", Arc::new(table(key))).unwrap();
        let plan = async || session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let replaced = clustered(&node);
            Ok(replaced.map_or_else(|| Transformed::no(node), Transformed::yes))
        };
        let ours = plan().await.transform_up(replace).data().unwrap();
        let plan = plan().await;
        let run = async |plan: &Arc<dyn ExecutionPlan>| {
            let batches = collect(Arc::clone(plan), session.task_ctx()).await.unwrap();
            let shown = pretty_format_batches(&batches).unwrap().to_string();
            let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(run(&ours).await, run(&plan).await, "{sql}");
        used(&ours)
    }

    fn used(plan: &Arc<dyn ExecutionPlan>) -> (usize, usize) {
        let own = plan.downcast_ref::<ReplacedExec<Clustered>>();
        let own = own.map_or((0, 0), |own| (1, own.replacement.metrics.count()));
        plan.children().into_iter().map(used).fold(own, |a, b| (a.0 + b.0, a.1 + b.1))
    }

    const SUMS: &str =
        "select k, count(*), count(v), sum(v), min(t), max(v), avg(v) from rows group by k";

    #[tokio::test]
    async fn runs_are_not_hashed() {
        let runs = |row: i64| Some(row / 3).filter(|key| key % 50 > 0);
        assert_eq!(check(SUMS, runs).await, (1, 0));
        let filtered = "select t, k, sum(v) filter (where v % 2 = 0) from rows group by k, t";
        assert_eq!(check(filtered, runs).await, (1, 0));
        assert_eq!(check("select distinct t from rows", runs).await, (1, 0));
    }

    #[tokio::test]
    async fn groups_that_are_apart_are_hashed() {
        assert_eq!(check(SUMS, |row| Some(row * 7919 % 30_011)).await, (1, 2));
        // Runs, but of a few groups that come again and again.
        assert_eq!(check(SUMS, |row| Some(row / 3 % 10)).await, (1, 2));
    }

    #[tokio::test]
    async fn short_runs_after_long_ones_are_hashed() {
        let first = |row: i64| Some(if row % 50_000 < 40_000 { row / 4 } else { row * 7919 % 501 });
        assert_eq!(check(SUMS, first).await, (1, 2));
    }

    #[tokio::test]
    async fn states_that_are_not_small_are_left_alone() {
        let runs = |row: i64| Some(row / 3);
        let lists = "select k, array_agg(v order by v) from rows group by k";
        assert_eq!(check(lists, runs).await.0, 0);
        assert_eq!(check("select sum(v) from rows", runs).await.0, 0);
        assert_eq!(check("select k + 1, sum(v) from rows group by k + 1", runs).await.0, 0);
    }
}
