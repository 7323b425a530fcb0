//! Finds the row groups of a file that can have rows which pass a filter, by their statistics. The
//! planner, the cost model and the reader ask the same question and get the same answer.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::FileRange;
use datafusion::datasource::physical_plan::ParquetFileMetrics;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccessPlanFilter};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::file::metadata::ParquetMetaData;

/// A filter, as far as statistics can contradict it.
#[derive(Clone, Debug)]
pub struct Pruning {
    schema: SchemaRef,
    predicate: Option<Arc<PruningPredicate>>,
    /// True if there is a filter, although statistics may not be able to contradict it.
    is_filtered: bool,
    /// True if the predicate has all of the filter.
    is_whole: bool,
}

/// The row groups that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftGroups {
    /// Indexes of the row groups, in order.
    pub groups: Vec<usize>,
    /// For each row group of `groups`, whether the filter surely passes all of its rows.
    pub is_whole: Vec<bool>,
}

impl Pruning {
    /// Creates the pruning of a filter. `schema` has the columns of the files. Conditions on
    /// columns of folders, which are behind them, contradict nothing here.
    pub fn new(filter: Option<Arc<dyn PhysicalExpr>>, schema: &SchemaRef) -> Self {
        let columns = schema.fields().len();
        let in_files = |part: &&Arc<dyn PhysicalExpr>| {
            collect_columns(part).iter().all(|column| column.index() < columns)
        };
        let build = |filter| {
            PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema)).build(filter)
        };
        let all = filter.as_ref().map_or_else(Vec::new, |filter| split_conjunction(filter));
        let of_files: Vec<_> = all.iter().copied().filter(in_files).cloned().collect();
        // Only if nothing is left out, all rows of a group can be known to pass.
        let is_whole = of_files.len() == all.len();
        let predicate = if of_files.is_empty() { None } else { build(conjunction(of_files)) };
        Self { schema: Arc::clone(schema), predicate, is_filtered: filter.is_some(), is_whole }
    }

    /// The columns that the filter compares with constants.
    pub fn literal_columns(&self) -> Vec<String> {
        self.predicate.as_ref().map(|predicate| predicate.literal_columns()).unwrap_or_default()
    }

    /// The row groups of a file, of those that begin in `range`.
    pub fn row_groups(&self, range: Option<&FileRange>, footer: &ParquetMetaData) -> LeftGroups {
        let all = ParquetAccessPlan::new_all(footer.num_row_groups());
        let mut left = RowGroupAccessPlanFilter::new(all);
        if let Some(range) = range {
            left.prune_by_range(footer.row_groups(), range);
        }
        if let Some(predicate) = &self.predicate {
            let metrics = ParquetFileMetrics::new(0, "", &ExecutionPlanMetricsSet::new());
            let columns = footer.file_metadata().schema_descr();
            let groups = footer.row_groups();
            left.prune_by_statistics(&self.schema, columns, groups, predicate, &metrics);
        }
        let groups: Vec<usize> = left.row_group_indexes().collect();
        let whole = left.is_fully_matched();
        let passes = |group: &usize| !self.is_filtered || (self.is_whole && whole[*group]);
        let is_whole = groups.iter().map(passes).collect();
        LeftGroups { groups, is_whole }
    }
}
