//! Operators that need less processor time than those of DataFusion in whose place they run.
//!
//! A plan is planned and sent as DataFusion made it. Just before it runs, the execution of some
//! operators is replaced.
//!
//! Invariant: `ReplacedExec` looks like the original operator in the plan: name, text, schema and
//! order are the same, and so are the rows. A partial aggregation may give several states of the
//! same group, as DataFusion's does when it saves nothing. Filters that call functions are one
//! operator with a name of its own, which EXPLAIN announces.
//!
//! | member | owns |
//! |---|---|
//! | `replaced_exec` | an operator that looks like another one, and computes its rows otherwise |
//! | `sorts` | sorts, joins by sorting and NOT IN |
//! | `groups` | partial aggregations |
//! | `whole_windows`, `row_number` | window functions |
//! | `filters` | filters that hash joins make while they run |
//! | `calls` | fewer calls of the user's functions, and several at the same time |
//! | `read_ahead` | inputs that are read before they are asked for |

mod calls;
mod filters;
mod groups;
mod read_ahead;
mod replaced_exec;
mod row_number;
mod sorts;
mod whole_windows;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::stream::BoxStream;

pub(crate) use calls::calls_together::calls_together;
pub(crate) use calls::cheapest_first::orders_calls;
pub(crate) use filters::apply_dynamic_filters;
pub(crate) use read_ahead::{decode_on_second_thread, read_ahead_of_calls};
use replaced_exec::{ReplacedExec, Replacement};
pub(crate) use sorts::sort_merge::with_sort_merge_joins;
pub use sorts::sort_merge::{can_sort_merge, may_spill, spills_sooner};

/// The output of an operator.
type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Replaces the execution of the operators that have a faster one.
pub fn with_faster_operators(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    calls::cheapest_first::order_calls(plan)?.transform_up(replace).data()
}

fn replace(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let mut run = sorts::sort::execution_for(&node)?;
    let others = [
        row_number::execution_for,
        whole_windows::execution_for,
        calls::table_calls::execution_for,
        calls::calls_together::execution_for,
    ];
    for execution_for in others {
        run = match run {
            Some(run) => Some(run),
            None => execution_for(&node)?,
        };
    }
    let Some(run) = run else {
        let grouped = groups::faster(&node);
        return Ok(grouped.map_or_else(|| Transformed::no(node), Transformed::yes));
    };
    let replacement = ReplacedExecution { run, metrics: ExecutionPlanMetricsSet::new() };
    Ok(Transformed::yes(Arc::new(ReplacedExec { original: node, replacement })))
}

/// The execution of an operator with one input.
trait Execution: fmt::Debug + Send + Sync {
    /// Runs one partition over its input.
    fn run(
        &self,
        input: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches>;
}

/// The replacement of an operator with one input.
#[derive(Debug)]
struct ReplacedExecution {
    run: Arc<dyn Execution>,
    metrics: ExecutionPlanMetricsSet,
}

impl Replacement for ReplacedExecution {
    fn batches(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches> {
        let input = original.children()[0].execute(partition, Arc::clone(&context))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        self.run.run(input, &context, metrics)
    }

    fn metrics(&self, _: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        replace(original).data()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use datafusion::execution::context::{SessionConfig, SessionContext};
    use datafusion::physical_plan::collect;

    use super::*;

    /// Unordered rows with nulls and repeated values; only `id` is unique.
    fn batches() -> Vec<RecordBatch> {
        let batch = |start: i64| {
            let mixed = |row: i64, of: i64| (row * 7919 + 13) % of;
            let some = |row: i64, of: i64| Some(mixed(row, of)).filter(|value| value % 5 != 2);
            let rows = || start..start + 100;
            let a: Int64Array = rows().map(|row| some(row, 7)).collect();
            let b: StringArray =
                rows().map(|row| some(row, 11).map(|n| "long text ".repeat(n as usize))).collect();
            let c: Float64Array = rows().map(|row| some(row, 3).map(|n| n as f64 - 1.0)).collect();
            let id: Int64Array = rows().map(|row| mixed(row, 10_007)).collect();
            let columns: [(&str, ArrayRef); 4] =
                [("a", Arc::new(a)), ("b", Arc::new(b)), ("c", Arc::new(c)), ("id", Arc::new(id))];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
        };
        (0..30).map(|number| batch(number * 100)).collect()
    }

    /// Plans a query, runs it with and without the replacements, and compares the rows; returns the
    /// number of replaced operators.
    async fn check(sql: &str) -> usize {
        let config = SessionConfig::new().with_target_partitions(1).with_batch_size(64);
        let session = SessionContext::new_with_config(config);
        let batches = batches();
        let table = datafusion::datasource::MemTable::try_new(batches[0].schema(), vec![batches]);
        session.register_table("t", Arc::new(table.unwrap())).unwrap();
        // More rows than the largest limit below, with the rows that a sort for it keeps.
        let many = "create view many as select t.a, t.b, t.c, t.id + 20000 * u.id as id
                    from t, (select id from t where id < 300 order by id limit 40) u";
        session.sql(many).await.unwrap().collect().await.unwrap();
        // Two plans: one that has run keeps the bounds of its dynamic filters.
        let plan = async || session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let ours = with_faster_operators(plan().await).unwrap();
        let plan = plan().await;
        let run = async |plan: &Arc<dyn ExecutionPlan>| {
            let batches = collect(Arc::clone(plan), session.task_ctx()).await.unwrap();
            concat_batches(&plan.schema(), &batches).unwrap()
        };
        assert_eq!(run(&ours).await, run(&plan).await, "{sql}");
        count(&ours)
    }

    fn count(plan: &Arc<dyn ExecutionPlan>) -> usize {
        let own = usize::from(plan.is::<ReplacedExec<ReplacedExecution>>());
        own + plan.children().into_iter().map(count).sum::<usize>()
    }

    #[tokio::test]
    async fn replaced_sorts_give_the_same_rows() {
        for (sql, faster) in [
            ("select * from t order by a, id", 1),
            ("select * from t order by a desc nulls last, b, id", 1),
            ("select * from t order by b desc, a nulls first, c desc, id", 1),
            ("select id, c from t order by c, b nulls first, id desc", 1),
            ("select * from t where id < 0 order by a, id", 1),
            ("select * from t order by id", 0),
            ("select * from t order by a, id limit 3", 0),
            ("select * from many order by a, id limit 20000", 1),
            ("select * from many order by b desc, id limit 20000 offset 30000", 1),
            ("select * from many order by id limit 20000", 1),
        ] {
            assert_eq!(check(sql).await, faster, "{sql}");
        }
    }

    #[tokio::test]
    async fn replaced_row_numbers_are_the_same() {
        let number = |over: &str| format!("select id, row_number() over ({over}) n from t");
        for (sql, faster) in [
            (number("partition by a order by id"), 2),
            (number("partition by b, c order by id desc"), 2),
            (number("partition by id"), 1),
            (number("order by id"), 1),
            ("select id, rank() over (partition by a order by id) n from t".to_owned(), 1),
        ] {
            assert_eq!(check(&sql).await, faster, "{sql}");
        }
    }
}
