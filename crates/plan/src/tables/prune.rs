//! Leaves out files and row groups whose statistics contradict the filters of a query, before they
//! are divided between tasks: no worker is started for them (Lambada 5.3).
//!
//! Invariant: a row group is only left out if none of its rows can pass the filters, which the plan
//! still applies to all rows that are read.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::pruning::PrunableStatistics;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::file::metadata::ParquetMetaData;
use snowmelt_execute::scan::Pruning;
use snowmelt_execute::udf::RemoteUdf;

/// Number of row groups that planning has left out of a scan; stored with the first part of the
/// scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftOut(pub(crate) u64);

/// Row groups that planning has left out of the scan that a part belongs to; 0 for all parts but one.
pub fn left_out(part: &PartitionedFile) -> u64 {
    part.extension::<LeftOut>().map_or(0, |left_out| left_out.0)
}

/// The filters of a scan, as far as statistics can contradict them.
pub(crate) struct Filters {
    /// The filters over the columns of files and of folders, which pass or drop whole files.
    files: Option<Arc<PruningPredicate>>,
    row_groups: Pruning,
    schema: TableSchema,
}

impl Filters {
    /// Creates the filters. Filters that cannot be used are left out: the plan applies them anyway.
    pub(crate) fn new(state: &dyn Session, filters: &[Expr], schema: &TableSchema) -> Self {
        let usable: Vec<Expr> =
            filters.iter().filter(|filter| !calls_udf(filter)).cloned().collect();
        let in_files = |filter: &&Expr| {
            let columns = schema.file_schema();
            filter.column_refs().iter().all(|column| columns.index_of(&column.name).is_ok())
        };
        let of_files = usable.iter().filter(in_files).cloned().collect();
        let build = |filter| {
            let columns = Arc::clone(schema.table_schema());
            PruningPredicateBuilder::new().with_file_schema(columns).build(filter)
        };
        Self {
            files: physical(state, usable, schema).and_then(build),
            row_groups: Pruning::new(physical(state, of_files, schema), schema.file_schema()),
            schema: schema.clone(),
        }
    }

    /// Returns whether some rows may pass, for each file.
    pub(crate) fn files(&self, statistics: Vec<Arc<Statistics>>) -> Vec<bool> {
        let all = vec![true; statistics.len()];
        let Some(predicate) = &self.files else { return all };
        let columns = Arc::clone(self.schema.table_schema());
        predicate.prune(&PrunableStatistics::new(statistics, columns)).unwrap_or(all)
    }

    /// Returns the row groups of a file of which some rows may pass. `as_table` is true if the
    /// columns of the file have the types of the table: statistics of other types are not compared.
    pub(crate) fn row_groups(&self, footer: &ParquetMetaData, as_table: bool) -> Vec<usize> {
        match as_table {
            true => self.row_groups.row_groups(None, footer).groups,
            false => (0..footer.num_row_groups()).collect(),
        }
    }
}

fn physical(
    state: &dyn Session,
    filters: Vec<Expr>,
    schema: &TableSchema,
) -> Option<Arc<dyn PhysicalExpr>> {
    let columns = DFSchema::try_from(Arc::clone(schema.table_schema())).ok()?;
    state.create_physical_expr(conjunction(filters)?, &columns).ok()
}

/// True for filters that call functions of the user, which run nowhere yet.
fn calls_udf(filter: &Expr) -> bool {
    let mut calls = false;
    let visited = filter.apply(|node| {
        calls |= matches!(node, Expr::ScalarFunction(it) if RemoteUdf::inside(&it.func).is_some());
        Ok(if calls { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    calls || visited.is_err()
}
