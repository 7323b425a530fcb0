//! The table that stands for a part of a plan.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::operators::SharedExec;

/// A table with the columns of a part. Its rows are known when the part is planned.
#[derive(Debug)]
pub(crate) struct SharedTable {
    pub(crate) name: String,
    schema: SchemaRef,
    rows: OnceLock<(Vec<usize>, Arc<dyn ExecutionPlan>)>,
}

impl SharedTable {
    pub(crate) fn new(number: usize, schema: &DFSchema) -> Self {
        let schema = Arc::new(schema.as_arrow().clone());
        Self { name: format!("shared part {number}"), schema, rows: OnceLock::new() }
    }

    /// The position of a column.
    pub(crate) fn index_of(&self, column: &str) -> Result<usize> {
        Ok(self.schema.index_of(column)?)
    }

    /// Sets the plan of the rows. It has `columns` of the table, ascending.
    ///
    /// # Errors
    /// The plan has other types.
    pub(crate) fn has(&self, columns: Vec<usize>, rows: Arc<dyn ExecutionPlan>) -> Result<()> {
        let declared = self.schema.project(&columns)?;
        if !is_same(&declared, &rows.schema()) {
            let message = format!("{} was planned with other types", self.name);
            return Err(DataFusionError::Internal(message));
        }
        _ = self.rows.set((columns, rows));
        Ok(())
    }
}

fn is_same(declared: &Schema, planned: &Schema) -> bool {
    let fields = declared.fields().iter().zip(planned.fields());
    declared.fields().len() == planned.fields().len()
        && fields.into_iter().all(|(declared, planned)| {
            declared.name() == planned.name()
                && declared.data_type() == planned.data_type()
                && declared.is_nullable() == planned.is_nullable()
        })
}

#[async_trait]
impl TableProvider for SharedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // The part may have the rows that other readers need.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let missing = || DataFusionError::Internal(format!("{} is not planned", self.name));
        let (columns, rows) = self.rows.get().ok_or_else(missing)?;
        let shared: Arc<dyn ExecutionPlan> = Arc::new(SharedExec::new(Arc::clone(rows)));
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let read = projection.unwrap_or(&all);
        if read == columns {
            return Ok(shared);
        }
        let projected = read.iter().map(|column| {
            let index = columns.binary_search(column).map_err(|_| missing())?;
            let alias = self.schema.field(*column).name().clone();
            let expr = Arc::new(Column::new(&alias, index));
            Ok(ProjectionExpr { expr, alias })
        });
        let projected = projected.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(projected, shared)?))
    }
}
