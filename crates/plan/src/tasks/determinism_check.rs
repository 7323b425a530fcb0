//! Compares the rows of a stage's tasks with the rows that they give when they run again, on the
//! same files and on inputs that may have been made again themselves.
//!
//! A task that is run again because its output was lost gives its rows to readers that begin
//! afterwards, while others have read the rows of the first run. That is right only if both runs
//! put the same rows into the same partitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use snowmelt_execute::exchange::{Exchange, ExchangeReadExec};
use snowmelt_execute::tree::{count, file_scan};

use super::stage_tasks::reads_by_range;
use crate::operators::is_nondeterministic;
use crate::stages::Stage;

/// Aggregates whose result does not depend on the order of their input, unless they add up floating
/// point numbers.
const IN_ANY_ORDER: [&str; 7] = ["avg", "bool_and", "bool_or", "count", "max", "min", "sum"];

/// How the rows of a task that is run again compare with those of its first run. A later variant
/// promises less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repeat {
    /// Rows that are the same, in the same order.
    Exactly,
    /// Rows that are the same in each partition, perhaps in another order.
    SameRows,
    /// Rows that may be others: the plan has random values, calls a function of the user, or
    /// depends on an order that may be another one.
    Differently,
}

/// Returns, for each stage, how the rows of its tasks compare if they and all tasks before them are
/// run again.
pub fn repeats(stages: &[Stage]) -> Vec<Repeat> {
    let mut found: Vec<Repeat> = Vec::with_capacity(stages.len());
    let by_range: BTreeSet<u32> = stages.iter().filter_map(reads_by_range).collect();
    for (index, stage) in stages.iter().enumerate() {
        let inputs = stage.reads.iter().filter_map(|read| found.get(*read as usize)).max();
        let mut traits = of_plan(&stage.plan);
        // Rows of a stream come in the order in which their tasks make them.
        traits.mixes |= stage.reads.iter().any(|read| is_streamed(&stages[*read as usize]));
        let own = combine(traits, inputs.copied().unwrap_or(Repeat::Exactly));
        // A range may begin at any of several equal rows: in another order it has others of them.
        found.push(match own {
            Repeat::SameRows if by_range.contains(&(index as u32)) => Repeat::Differently,
            own => own,
        });
    }
    found
}

fn is_streamed(stage: &Stage) -> bool {
    stage.exchange().is_some_and(Exchange::is_streamed)
}

/// Properties of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traits {
    /// True if a value may be another one each time.
    volatile: bool,
    /// True if the plan reads partitions at the same time: the order in which they are mixed is
    /// left to chance.
    mixes: bool,
    /// True if the plan's rows depend on the order of its input.
    ordered: bool,
}

fn combine(own: Traits, inputs: Repeat) -> Repeat {
    match (own, inputs) {
        (Traits { volatile: true, .. }, _) | (_, Repeat::Differently) => Repeat::Differently,
        (Traits { mixes: false, .. }, Repeat::Exactly) => Repeat::Exactly,
        (Traits { ordered: true, .. }, _) => Repeat::Differently,
        (_, _) => Repeat::SameRows,
    }
}

fn of_plan(node: &Arc<dyn ExecutionPlan>) -> Traits {
    let own = Traits {
        volatile: is_nondeterministic(node),
        mixes: mixes(node),
        ordered: !takes_any_order(node),
    };
    node.children().into_iter().map(of_plan).fold(own, |sum, child| Traits {
        volatile: sum.volatile || child.volatile,
        mixes: sum.mixes || child.mixes,
        ordered: sum.ordered || child.ordered,
    })
}

/// True if a worker runs several inputs of the operator at the same time.
fn mixes(node: &Arc<dyn ExecutionPlan>) -> bool {
    let several = || node.children().into_iter().any(|child| count(child) > 1);
    node.is::<UnionExec>()
        || node.is::<InterleaveExec>()
        || node.is::<CoalescePartitionsExec>() && several()
        // Its files are not read one after another: each keeps its order.
        || file_scan(node).is_some_and(|scan| !scan.output_ordering.is_empty())
}

/// True if an operator is known to give the same rows, in some order, whatever the order of its
/// input. Any other operator counts as depending on the order.
fn takes_any_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    if node.fetch().is_some() {
        return false;
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.limit_options().is_none() && aggregates_any_order(aggregate);
    }
    if let Some(split) = node.downcast_ref::<RepartitionExec>() {
        return matches!(split.partitioning(), Partitioning::Hash(..));
    }
    node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<DataSourceExec>()
        || node.is::<EmptyExec>()
        || node.is::<ExchangeReadExec>()
        || node.is::<FilterExec>()
        || node.is::<HashJoinExec>()
        || node.is::<InterleaveExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<PlaceholderRowExec>()
        || node.is::<ProjectionExec>()
        || node.is::<SortExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
}

/// True if the results of an aggregation do not depend on the order of its input. Sums of floating
/// point numbers do, because they are rounded at each step.
fn aggregates_any_order(aggregate: &AggregateExec) -> bool {
    aggregate.aggr_expr().iter().all(|function| {
        let name = function.fun().name();
        let float = matches!(
            function.field().data_type(),
            DataType::Float16 | DataType::Float32 | DataType::Float64
        );
        let compares = name == "min" || name == "max";
        // The check of a subquery that is used as a value: there is one row, or an error.
        let known = IN_ANY_ORDER.contains(&name) || name.ends_with("single_row");
        known && (!float || compares)
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::expressions::{col, lit};
    use datafusion::physical_plan::limit::LocalLimitExec;

    use super::*;

    fn scan(partitions: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        MemorySourceConfig::try_new_exec(&vec![vec![]; partitions], schema, None).unwrap()
    }

    fn filter(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(FilterExec::try_new(lit(true), input).unwrap())
    }

    fn split(input: Arc<dyn ExecutionPlan>, by_key: bool) -> Arc<dyn ExecutionPlan> {
        let by = match by_key {
            true => Partitioning::Hash(vec![col("a", &input.schema()).unwrap()], 3),
            false => Partitioning::RoundRobinBatch(3),
        };
        Arc::new(RepartitionExec::try_new(input, by).unwrap())
    }

    fn repeat(plan: &Arc<dyn ExecutionPlan>) -> Repeat {
        combine(of_plan(plan), Repeat::Exactly)
    }

    #[test]
    fn one_stream_of_deterministic_operators_repeats_exactly() {
        let plan = split(filter(scan(1)), true);
        assert_eq!(repeat(&plan), Repeat::Exactly);
        // Even if it depends on an order: that is the same each time.
        let limited: Arc<dyn ExecutionPlan> = Arc::new(LocalLimitExec::new(scan(1), 5));
        assert_eq!(repeat(&limited), Repeat::Exactly);
        assert_eq!(combine(of_plan(&limited), Repeat::SameRows), Repeat::Differently);
    }

    #[test]
    fn mixed_partitions_have_the_same_rows_in_some_order() {
        let mixed: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(scan(2)));
        assert_eq!(repeat(&split(filter(Arc::clone(&mixed)), true)), Repeat::SameRows);
        // Rows in turn, and the first rows, are others in another order.
        assert_eq!(repeat(&split(Arc::clone(&mixed), false)), Repeat::Differently);
        let limited: Arc<dyn ExecutionPlan> = Arc::new(LocalLimitExec::new(mixed, 5));
        assert_eq!(repeat(&limited), Repeat::Differently);
        let one: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(scan(1)));
        assert_eq!(repeat(&one), Repeat::Exactly);
    }

    #[test]
    fn an_interleaving_mixes_its_inputs() {
        let inputs = || vec![split(scan(1), true), split(scan(1), true)];
        let both: Arc<dyn ExecutionPlan> = Arc::new(InterleaveExec::try_new(inputs()).unwrap());
        assert_eq!(repeat(&both), Repeat::SameRows);
        let limited: Arc<dyn ExecutionPlan> = Arc::new(LocalLimitExec::new(both, 5));
        assert_eq!(repeat(&limited), Repeat::Differently);
    }

    #[test]
    fn what_reads_something_else_the_second_time_is_something_else() {
        assert_eq!(combine(Traits::default(), Repeat::Differently), Repeat::Differently);
        assert_eq!(combine(Traits::default(), Repeat::SameRows), Repeat::SameRows);
        let random = Traits { volatile: true, ..Traits::default() };
        assert_eq!(combine(random, Repeat::Exactly), Repeat::Differently);
    }
}
