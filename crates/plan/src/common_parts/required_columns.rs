//! The columns and rows that the readers of a part need.

use std::collections::{BTreeSet, HashMap};

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::find::SharedPart;
use super::table::SharedTable;

/// The columns and rows of a part that are needed.
#[derive(Debug, Default)]
pub(crate) struct Need {
    columns: BTreeSet<usize>,
    /// The conditions of each reader; `None` for one that reads all rows.
    rows: Vec<Option<Expr>>,
}

impl Need {
    pub(crate) fn add(&mut self, more: Self) {
        self.columns.extend(more.columns);
        self.rows.extend(more.rows);
    }

    /// Returns how often the part is read.
    pub(crate) fn readers(&self) -> usize {
        self.rows.len()
    }

    /// True if a reader needs some of the rows only.
    pub(crate) fn is_of_some_rows(&self) -> bool {
        self.rows.iter().any(Option::is_some)
    }

    /// The columns, ascending.
    pub(crate) fn columns(&self) -> Vec<usize> {
        // Rows without columns have no batch.
        if self.columns.is_empty() { vec![0] } else { self.columns.iter().copied().collect() }
    }

    /// Returns the part with the needed columns, and at least the needed rows.
    pub(crate) fn of(&self, part: &SharedPart) -> Result<LogicalPlan> {
        let schema = part.body.schema();
        let mut plan = LogicalPlanBuilder::from(part.body.clone());
        let conditions: Option<Vec<Expr>> = self.rows.iter().cloned().collect();
        if let Some(condition) = conditions.and_then(disjunction) {
            let own = |column: &Column| -> Result<Expr> {
                let index = part.table.index_of(&column.name)?;
                Ok(Expr::Column(Column::from(schema.qualified_field(index))))
            };
            let of_part = condition.transform(|expr| match &expr {
                Expr::Column(column) => Ok(Transformed::yes(own(column)?)),
                _ => Ok(Transformed::no(expr)),
            });
            plan = plan.filter(of_part.data()?)?;
        }
        let columns = self.columns().into_iter();
        let column = |index| Expr::Column(Column::from(schema.qualified_field(index)));
        plan.project(columns.map(column))?.build()
    }
}

/// Returns the columns and rows that an optimised plan needs of each part, by the name of the
/// part's table.
pub(crate) fn needs(plan: &LogicalPlan) -> Result<HashMap<String, Need>> {
    let mut found: HashMap<String, Need> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(TreeNodeRecursion::Continue) };
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if let Some(table) = provider.downcast_ref::<SharedTable>() {
            let columns = match &scan.projection {
                Some(columns) => columns.iter().copied().collect(),
                None => (0..scan.source.schema().fields().len()).collect(),
            };
            let rows = vec![conjunction(scan.filters.iter().cloned())];
            found.entry(table.name.clone()).or_default().add(Need { columns, rows });
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
