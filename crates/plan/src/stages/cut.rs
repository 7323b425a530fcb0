//! Cuts a plan into stages for workers and the part of the driver (Lambada 3.2 and 4.4).
//!
//! A stage is the largest part of a plan in which partition `i` depends only on partition `i` of
//! each input, so that each task can run some of the partitions. It is cut where that is not so:
//!
//! - at a repartitioning: the stage below writes its rows split by their keys;
//! - below a merge of partitions: the stage below writes its partitions as they are;
//! - below the build side of a join: the stage below writes, and every task above reads all of it.
//!
//! An exchange of several levels (Lambada 4.4.2) is several stages, of which all but the first only
//! split rows again. The stage above reads with an [`ExchangeReadExec`]. What is above the last merge
//! runs in the driver, over a [`ResultExec`] for each stage whose results it reads. Of a large sort,
//! another stage merges ranges of keys ([`sorts`](crate::estimate::sorts)).
//!
//! An operator that the codec would change runs in the driver, and so does everything above it.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use snowmelt_execute::codec;
use snowmelt_execute::exchange::{
    Exchange, ExchangeReadExec, Facts, Level, StageMedium, levels, objects_at, output_split,
};
use snowmelt_execute::tree::{count, file_scan, is_partition_wise, with_children};
use snowmelt_wire::ExchangeOptions;

use super::cut_points::{CutPoints, PlanPart};
use super::worker_operators::Sendable;
use crate::estimate::small_inputs;
use crate::estimate::sorts::large_merge;
use crate::operators::SharedExec;
use crate::results::{ResultExec, ResultQueue};
use crate::{Error, Result};

/// A plan in stages.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The workers' programs. A stage reads only stages before it.
    pub stages: Vec<Stage>,
    /// The driver's plan, with a leaf (`ResultExec`) for each stage whose results it reads.
    pub driver: Arc<dyn ExecutionPlan>,
}

/// A stage: the program of its tasks, and where their batches go.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The plan of the stage. If the output is split by keys, the root is the repartitioning.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The encoded plan, which is sent to the workers.
    pub bytes: Bytes,
    /// Numbers of the stages that this one reads.
    pub reads: Vec<u32>,
    /// The destination of the batches of its tasks.
    pub output: StageOutput,
}

/// The destination of the batches of a stage.
#[derive(Clone, Debug)]
pub enum StageOutput {
    /// To the driver.
    Results(Arc<ResultQueue>),
    /// To the tasks of another stage.
    Exchange(Exchange),
}

impl Stage {
    /// The part of the plan whose partitions the tasks run.
    pub fn body(&self) -> &Arc<dyn ExecutionPlan> {
        match output_split(&self.plan) {
            Some(split) if matches!(self.output, StageOutput::Exchange(_)) => split.input(),
            _ => &self.plan,
        }
    }

    /// The queue of a stage whose results the driver reads.
    pub fn queue(&self) -> Option<&Arc<ResultQueue>> {
        match &self.output {
            StageOutput::Results(queue) => Some(queue),
            StageOutput::Exchange(_) => None,
        }
    }

    /// Returns how the stage's output is exchanged, if other tasks read it.
    pub fn exchange(&self) -> Option<&Exchange> {
        match &self.output {
            StageOutput::Exchange(exchange) => Some(exchange),
            StageOutput::Results(_) => None,
        }
    }
}

/// How the rows of a query are exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchanges<'q> {
    pub(crate) options: &'q ExchangeOptions,
    /// The query's folder in the locations of the options.
    pub(crate) folder: &'q str,
    /// Bytes from which on a sort is merged in ranges.
    pub(crate) range_bytes: u64,
}

impl Exchanges<'_> {
    /// The exchange below stage number `stage`, at a level.
    fn of(&self, stage: u32, level: Level) -> StageOutput {
        let medium = match self.options.by_objects() {
            true => StageMedium::Objects(objects_at(self.options, self.folder, stage)),
            false => StageMedium::Files,
        };
        StageOutput::Exchange(Exchange { medium, level, not_streamed: None })
    }

    /// Returns the levels of an exchange to the partitions of `partitioning`.
    fn levels(&self, partitioning: &Partitioning) -> Vec<Level> {
        match partitioning {
            Partitioning::Hash(_, partitions) if self.options.by_objects() => {
                levels(*partitions as u32, self.options.levels)
            }
            _ => vec![Level::ONLY],
        }
    }
}

/// Cuts an optimised plan. Each plan of a stage still gets the filters that joins and sorts pass
/// to scans while they run: such a filter cannot cross to another stage.
pub(crate) fn cut(
    plan: Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
    exchanges: Exchanges<'_>,
    finish: &dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Cut> {
    let sendable = Sendable::of(&plan, config)?;
    let stages = Vec::new();
    let cut = CutPoints::default();
    let mut cutter = Cutter { config, exchanges, finish, sendable, stages, cut };
    let driver = cutter.driver_part(&plan, Parent { again: false, merges: true })?;
    let driver = finish(driver)?;
    Ok(Cut { stages: cutter.stages, driver })
}

/// Properties of the driver's operator above a node.
#[derive(Clone, Copy)]
struct Parent {
    /// True if the driver runs the operator several times.
    again: bool,
    /// True if the operator merges all partitions, whatever they are.
    merges: bool,
}

struct Cutter<'c> {
    config: &'c SessionConfig,
    exchanges: Exchanges<'c>,
    finish: &'c dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    sendable: Sendable,
    stages: Vec<Stage>,
    // Where stages were cut: a plan may use a node twice, or have two equal ones.
    cut: CutPoints,
}

impl Cutter<'_> {
    /// The part of the driver.
    fn driver_part(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        parent: Parent,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sent = self.sendable.is(node);
        if let Some(shared) = node.downcast_ref::<SharedExec>() {
            return match sent {
                true => self.result_stage(node, parent),
                false => self.driver_part(shared.part(), parent),
            };
        }
        if sent && !self.merges_only(node) {
            return self.result_stage(node, parent);
        }
        if let Some(merge) = large_merge(node, self.exchanges.range_bytes)?
            && self.sendable.is(merge.input())
            // An object that is not combined is named by a partition, and a range has another number.
            && (self.exchanges.options.combining || !self.exchanges.options.by_objects())
        {
            return self.ranges(merge, parent);
        }
        let below = Parent {
            again: parent.again || node.is::<RecursiveQueryExec>(),
            merges: node.is::<CoalescePartitionsExec>() || node.is::<SortPreservingMergeExec>(),
        };
        let children = node.children().into_iter();
        let children = children.map(|child| self.driver_part(child, below));
        Ok(with_children(node, children.collect::<Result<_>>()?)?)
    }

    /// True if a node has one partition and reads nothing but merged partitions: no work that is
    /// worth a worker.
    fn merges_only(&self, node: &Arc<dyn ExecutionPlan>) -> bool {
        let children = node.children();
        count(node) == 1
            && file_scan(node).is_none()
            && !node.is::<RepartitionExec>()
            // `NOT IN` collects all of a side, which a worker can put into scratch.
            && !node.downcast_ref::<HashJoinExec>().is_some_and(|join| join.null_aware)
            && children.into_iter().all(|child| count(child) > 1 || self.merges_only(child))
    }

    fn result_stage(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        parent: Parent,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.worker_part(node)?;
        let queue = Arc::new(ResultQueue::new(parent.again));
        let stage = self.stages.len();
        let plan = self.add(plan, StageOutput::Results(Arc::clone(&queue)))?;
        let results: Arc<dyn ExecutionPlan> = Arc::new(ResultExec::new(stage, &plan, queue));
        let partitioning = plan.output_partitioning();
        if parent.merges || !matches!(partitioning, Partitioning::Hash(_, 2..)) {
            return Ok(results);
        }
        // A task posts its partitions as one: the driver divides the rows by their keys again.
        let divided = RepartitionExec::try_new(results, partitioning.clone())?;
        Ok(Arc::new(match plan.output_ordering() {
            Some(_) => divided.with_preserve_order(),
            None => divided,
        }))
    }

    /// Adds a stage that sorts, and one that merges ranges of its rows. Returns the leaf that reads
    /// the ranges in order.
    fn ranges(
        &mut self,
        merge: &SortPreservingMergeExec,
        parent: Parent,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sorted = self.worker_part(merge.input())?;
        let below = self.stages.len() as u32;
        let sorted = self.add(sorted, self.exchanges.of(below, Level::ONLY))?;
        let facts = Facts::of_partitions(sorted.equivalence_properties()).mixed();
        let facts = facts.sorted(merge.expr().clone());
        let ranges = self.config.target_partitions().max(1);
        let read = ExchangeReadExec::by_range(below, sorted.schema(), ranges, facts)?;
        let queue = Arc::new(ResultQueue::new(parent.again));
        let stage = self.stages.len();
        let read = Arc::new(read.with_origin(merge.input()));
        let plan = self.add(read, StageOutput::Results(Arc::clone(&queue)))?;
        let results = Arc::new(ResultExec::in_order(stage, &plan, queue));
        Ok(match merge.fetch() {
            Some(fetch) => Arc::new(GlobalLimitExec::new(results, 0, Some(fetch))),
            None => results,
        })
    }

    /// The part of a worker: each input that is not of the same stage is replaced by a leaf.
    fn worker_part(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(exchange) = node.downcast_ref::<RepartitionExec>() {
            return self.repartition(node, exchange);
        }
        if let Some(shared) = node.downcast_ref::<SharedExec>() {
            return self.as_it_is(shared.part());
        }
        let children: Vec<_> = node.children().into_iter().cloned().collect();
        let mut replaced = Vec::with_capacity(children.len());
        for child in &children {
            let part = if node.is::<UnionExec>() || is_partition_wise(node, child) {
                self.worker_part(child)?
            } else if count(child) == 1 {
                self.build_side(child)?
            } else {
                self.as_it_is(child)?
            };
            replaced.push(part);
        }
        Ok(with_children(node, replaced)?)
    }

    /// The stage below a repartitioning, and the leaf that reads its output.
    fn repartition(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        exchange: &RepartitionExec,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let part = PlanPart::of(node);
        if let Some(leaf) = self.cut.leaf(&part) {
            return Ok(leaf);
        }
        let partitioning = exchange.partitioning().clone();
        let mut input = self.worker_part(exchange.input())?;
        let mut stage = 0;
        for level in self.exchanges.levels(&partitioning) {
            let written = RepartitionExec::try_new(input, partitioning.clone())?;
            stage = self.stages.len() as u32;
            let output = self.exchanges.of(stage, level);
            let written = self.add(Arc::new(written), output)?;
            input = Self::cells(stage, &written, &partitioning, level)?;
        }
        let facts = Facts::of_partitions(node.equivalence_properties());
        let facts = match count(exchange.input()) {
            1 => facts.divided(),
            _ => facts.mixed(),
        };
        let read = ExchangeReadExec::new(stage, node.schema(), partitioning, facts)?;
        let mut leaf: Arc<dyn ExecutionPlan> = Arc::new(read.with_origin(node));
        // A partition comes from several tasks: its order is lost.
        if let Some(ordering) = node.output_ordering() {
            let sort = SortExec::new(ordering.clone(), leaf).with_preserve_partitioning(true);
            leaf = Arc::new(sort);
        }
        self.cut.add(part, &leaf);
        Ok(leaf)
    }

    /// The leaf that reads the cells of a level, for the stage of the next one.
    fn cells(
        stage: u32,
        written: &Arc<dyn ExecutionPlan>,
        partitioning: &Partitioning,
        level: Level,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let cells = level.cells(partitioning.partition_count() as u32) as usize;
        let facts = Facts::of_partitions(written.equivalence_properties()).mixed();
        let cells = Partitioning::UnknownPartitioning(cells);
        Ok(Arc::new(ExchangeReadExec::new(stage, written.schema(), cells, facts)?))
    }

    /// An input of one partition that every task reads whole.
    fn build_side(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        // A task reads a small table itself sooner than the output of another task.
        if small_inputs::is_small(node) {
            return Ok(Arc::clone(node));
        }
        let is_merge = node.is::<CoalescePartitionsExec>() || node.is::<SortPreservingMergeExec>();
        match is_merge && count(node.children()[0]) > 1 {
            true => self.worker_part(node),
            false => self.as_it_is(node),
        }
    }

    /// A stage that writes its partitions as they are, and the leaf that reads them.
    fn as_it_is(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        // To leave out columns is not worth a stage.
        let projected = node.downcast_ref::<ProjectionExec>().map_or(node, ProjectionExec::input);
        if node.is::<RepartitionExec>() || projected.is::<SharedExec>() {
            return self.worker_part(node);
        }
        let part = PlanPart::of(node);
        if let Some(leaf) = self.cut.leaf(&part) {
            return Ok(leaf);
        }
        let plan = self.worker_part(node)?;
        let stage = self.stages.len() as u32;
        let plan = self.add(plan, self.exchanges.of(stage, Level::ONLY))?;
        let facts = Facts::of_partitions(plan.equivalence_properties());
        let partitioning = Partitioning::UnknownPartitioning(count(&plan));
        let read = ExchangeReadExec::new(stage, plan.schema(), partitioning, facts)?;
        let leaf: Arc<dyn ExecutionPlan> = Arc::new(read.with_origin(node));
        self.cut.add(part, &leaf);
        Ok(leaf)
    }

    fn add(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        output: StageOutput,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = (self.finish)(plan)?;
        let bytes = codec::encode(&plan, self.config).map_err(|why| Error::ScanChanged { why })?;
        let mut reads = Vec::new();
        stages_read(&plan, &mut reads);
        self.stages.push(Stage { plan: Arc::clone(&plan), bytes, reads, output });
        Ok(plan)
    }
}

fn stages_read(node: &Arc<dyn ExecutionPlan>, found: &mut Vec<u32>) {
    if let Some(read) = node.downcast_ref::<ExchangeReadExec>()
        && !found.contains(&read.stage())
    {
        found.push(read.stage());
    }
    node.children().into_iter().for_each(|child| stages_read(child, found));
}
