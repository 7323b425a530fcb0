//! The leaf of a stage's plan that reads what another stage wrote.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};

use super::decoder::batches;
use super::{Facts, Inputs, runs};

/// Reads the output of a stage. Partition `i` reads the partitions `partitions[i]` of the outputs
/// of all tasks of that stage.
#[derive(Clone, Debug)]
pub struct ExchangeReadExec {
    stage: u32,
    schema: SchemaRef,
    partitions: Vec<Vec<u32>>,
    facts: Facts,
    /// True if a partition is a range of sort keys: its rows are read from the sorted output of
    /// each task, and merged by the first order of the facts.
    by_range: bool,
    // What the stage was cut from: known to the planner only, for estimates.
    origin: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ExchangeReadExec {
    /// Creates a leaf that reads partition by partition.
    ///
    /// # Errors
    /// The facts contradict the schema.
    pub fn new(
        stage: u32,
        schema: SchemaRef,
        partitioning: Partitioning,
        facts: Facts,
    ) -> Result<Self> {
        let partitions =
            (0..partitioning.partition_count() as u32).map(|partition| vec![partition]).collect();
        Self::with(stage, schema, partitioning, facts, partitions)
    }

    /// Reads sorted outputs in a number of ranges of their keys, and merges them by the first order
    /// of the facts. The keys of each range are decided when the outputs are written.
    ///
    /// # Errors
    /// The facts contradict the schema, or have no order.
    pub fn by_range(stage: u32, schema: SchemaRef, ranges: usize, facts: Facts) -> Result<Self> {
        if facts.orderings.is_empty() {
            return Err(DataFusionError::Internal("ranges of keys need an order".to_owned()));
        }
        let ranges = Partitioning::UnknownPartitioning(ranges);
        Ok(Self { by_range: true, ..Self::new(stage, schema, ranges, facts)? })
    }

    fn with(
        stage: u32,
        schema: SchemaRef,
        partitioning: Partitioning,
        facts: Facts,
        partitions: Vec<Vec<u32>>,
    ) -> Result<Self> {
        let properties = PlanProperties::new(
            facts.properties(Arc::clone(&schema))?,
            partitioning,
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties);
        let metrics = ExecutionPlanMetricsSet::new();
        let origin = None;
        let by_range = false;
        Ok(Self { stage, schema, partitions, facts, by_range, origin, properties, metrics })
    }

    /// Adds the operator that makes the rows that are read: its statistics are those of these rows.
    pub fn with_origin(self, origin: &Arc<dyn ExecutionPlan>) -> Self {
        Self { origin: Some(Arc::clone(origin)), ..self }
    }

    /// Returns the number of the stage whose output is read.
    pub fn stage(&self) -> u32 {
        self.stage
    }

    /// Returns the operator that makes the rows that are read, where it is known.
    pub fn origin(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        self.origin.as_ref()
    }

    /// True if the partitions are ranges of sort keys.
    pub fn is_by_range(&self) -> bool {
        self.by_range
    }

    /// Returns the facts about the rows that are read.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Replaces all partitions by one. It reads `partitions` one after another or, if they are
    /// ranges, which are then next to each other, as one range.
    pub fn merged(&self, partitions: &[u32]) -> Result<Self> {
        if self.by_range {
            let one = Self::by_range(self.stage, self.schema(), 1, self.facts.clone())?;
            return Ok(Self { partitions: vec![partitions.to_vec()], ..one });
        }
        let partitioning = match &self.properties.partitioning {
            Partitioning::Hash(keys, _) => Partitioning::Hash(keys.clone(), 1),
            _ => Partitioning::UnknownPartitioning(1),
        };
        let facts = match partitions.len() {
            0 | 1 => self.facts.clone(),
            _ => self.facts.clone().mixed(),
        };
        let schema = Arc::clone(&self.schema);
        let partitions = vec![partitions.to_vec()];
        Self::with(self.stage, schema, partitioning, facts, partitions)
    }
}

impl DisplayAs for ExchangeReadExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.properties.partitioning.partition_count();
        match self.facts.orderings.first().filter(|_| self.by_range) {
            Some(order) => {
                write!(f, "ExchangeRead: stage={}, sort: ranges of {ranges}, [{order}]", self.stage)
            }
            None => {
                write!(f, "ExchangeRead: stage={}, {}", self.stage, self.properties.partitioning)
            }
        }
    }
}

impl ExecutionPlan for ExchangeReadExec {
    fn name(&self) -> &'static str {
        "ExchangeRead"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    crate::leaf_methods!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let inputs = context.session_config().get_extension::<Inputs>().ok_or_else(|| {
            DataFusionError::Internal("a task was granted no output of another stage".to_owned())
        })?;
        if let Some(order) = self.facts.orderings.first().filter(|_| self.by_range) {
            let schema = &self.schema;
            let parts = inputs.runs(self.stage, &self.partitions[partition], schema);
            let consumer = MemoryConsumer::new(format!("ExchangeRead[{partition}]"));
            let reservation = consumer.register(context.memory_pool());
            let batch_rows = context.session_config().batch_size();
            let metrics = BaselineMetrics::new(&self.metrics, partition);
            return runs::merged(parts, order, schema, reservation, batch_rows, metrics);
        }
        let (schema, metrics) =
            (Arc::clone(&self.schema), BaselineMetrics::new(&self.metrics, partition));
        if let Some(streams) = inputs.streams(self.stage) {
            return Ok(batches(streams.read(Arc::clone(&schema))?, schema, metrics));
        }
        let reader = inputs.read(self.stage, &self.partitions[partition], Arc::clone(&schema));
        Ok(batches(reader, schema, metrics))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match &self.origin {
            Some(origin) if args.partition().is_none() => {
                StatisticsContext::new().compute(origin.as_ref(), args)
            }
            _ => Ok(Arc::new(Statistics::new_unknown(&self.schema))),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
