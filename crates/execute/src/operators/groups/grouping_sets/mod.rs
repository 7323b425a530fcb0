//! Partial aggregation by several grouping sets, each from the groups of a larger one.
//!
//! DataFusion adds each row to the groups of each set of a ROLLUP, a CUBE or GROUPING SETS: nine
//! times for a ROLLUP of eight columns. Here a row is added to the sets that no other one contains,
//! of a ROLLUP to that of all columns. The states of its groups are then merged into the groups of
//! another set, from that into the groups of a third, and so on.
//!
//! Invariant: a group that is emitted has been merged into the set that is derived from its own. Of a
//! set at most one is derived, so that emitting takes no more memory than twice that of the tables.
//! When memory is short, all groups are emitted, and the next rows begin new ones: the final
//! aggregation merges states of the same group.

mod group_table;
mod lattice;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::metrics::{BaselineMetrics, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use futures::{StreamExt, TryStreamExt, stream};

use super::by_hash::{ByHash, GroupMetrics};
use super::group_runs::has_small_state;
use crate::operators::Batches;
use crate::operators::replaced_exec::{ReplacedExec, Replacement};
use group_table::{RowExpressions, SetGroups};
use lattice::Lattice;

/// A partial aggregation that derives grouping sets from each other; `None` for other nodes, and
/// where no set contains another.
pub(super) fn derived(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let is_plain = *aggregate.mode() == AggregateMode::Partial
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none()
        && aggregate.aggr_expr().iter().all(is_merged_cheaply);
    let lattice = is_plain.then(|| Lattice::of(aggregate.group_expr())).flatten()?;
    let replacement = Derived { lattice: Arc::new(lattice), metrics: Arc::default() };
    Some(Arc::new(ReplacedExec { original: Arc::clone(node), replacement }))
}

/// Returns whether the state of a function stays as small when it is merged. That of `string_agg` has
/// all texts.
fn is_merged_cheaply(function: &Arc<AggregateFunctionExpr>) -> bool {
    let is_fixed = |kind: &DataType| kind.is_primitive() || *kind == DataType::Boolean;
    let keeps_one = matches!(function.fun().name(), "min" | "max");
    has_small_state(function)
        && (keeps_one
            || function
                .state_fields()
                .is_ok_and(|fields| fields.iter().all(|field| is_fixed(field.data_type()))))
}

#[derive(Debug)]
struct Derived {
    lattice: Arc<Lattice>,
    metrics: Arc<GroupMetrics>,
}

impl Replacement for Derived {
    fn batches(
        &self,
        original: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Batches> {
        let mut input = original.children()[0].execute(partition, Arc::clone(&context))?;
        let metrics = self.metrics.of(partition);
        let consumer = MemoryConsumer::new(format!("GroupedSets[{partition}]"));
        let reservation = consumer.with_can_spill(true).register(context.memory_pool());
        let batch_size = context.session_config().batch_size();
        let rows = RowExpressions::new(original, &self.lattice)?;
        let groups = SetGroups::new(original, Arc::clone(&self.lattice), batch_size)?;
        let by_hash = ByHash::new(original, context, &self.metrics);
        let chosen = async move {
            let first = loop {
                match input.next().await.transpose()? {
                    Some(batch) if batch.num_rows() == 0 => {}
                    first => break first,
                }
            };
            match first {
                Some(first) => {
                    let input = stream::iter([Ok(first)]).chain(input).fuse().boxed();
                    Ok::<_, DataFusionError>(
                        Aggregation { input, rows, groups, reservation, metrics }.states(),
                    )
                }
                // The set without columns has a group even where there is no row.
                None => Ok(by_hash.over(stream::empty().boxed())?.boxed()),
            }
        };
        Ok(stream::once(chosen).try_flatten().boxed())
    }

    fn metrics(&self, _: &Arc<dyn ExecutionPlan>) -> Option<MetricsSet> {
        Some(self.metrics.all())
    }

    fn over(&self, original: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(derived(&original).unwrap_or(original))
    }
}

/// The aggregation of one partition.
struct Aggregation {
    input: Batches,
    rows: RowExpressions,
    groups: SetGroups,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Aggregation {
    fn states(self) -> Batches {
        let next = |mut aggregation: Self| async move {
            let states = aggregation.next().await?;
            Ok(states.map(|states| (states, aggregation)))
        };
        stream::try_unfold(self, next).boxed()
    }

    /// Returns the next states. `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(states) = self.emitted()? {
                self.metrics.record_output(states.num_rows());
                return Ok(Some(states));
            }
            match self.input.next().await.transpose()? {
                Some(batch) => self.add(&batch)?,
                None if self.groups.is_empty() => return Ok(None),
                None => {
                    // What is below, such as the table of a join, frees its memory.
                    self.input = stream::empty().boxed();
                    self.groups.begin_output();
                }
            }
        }
    }

    fn emitted(&mut self) -> Result<Option<RecordBatch>> {
        if !self.groups.is_emitting() {
            return Ok(None);
        }
        let timer = self.metrics.elapsed_compute().timer();
        let states = self.groups.next_states()?;
        timer.done();
        // What is emitted is in memory already, and the tables that grow were reckoned with.
        self.reservation.resize(self.groups.size());
        Ok(states)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let timer = self.metrics.elapsed_compute().timer();
        self.rows.add_to(&mut self.groups, batch)?;
        timer.done();
        // While the groups of a set are emitted, the table of the next set grows.
        if self.reservation.try_resize(2 * self.groups.size()).is_err() {
            self.groups.begin_output();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
