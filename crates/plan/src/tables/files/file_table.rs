//! DataFusion's view of a table of files, whatever their format.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

/// A table of files of one format.
pub(crate) trait FileTable: Debug + Send + Sync + 'static {
    /// The columns of the files, followed by those of their folders.
    fn schema(&self) -> &TableSchema;

    /// Returns how far a scan applies a filter.
    fn support(&self, filter: &Expr) -> TableProviderFilterPushDown;

    /// The scan of the files that rows which pass the filters can be in; the caller adds the
    /// projection and the limit.
    fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> DfResult<FileScanConfigBuilder>;
}

/// DataFusion's table provider for a table of files.
#[derive(Debug)]
pub(crate) struct FileTableProvider<T>(pub T);

#[async_trait]
impl<T: FileTable> TableProvider for FileTableProvider<T> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.0.schema().table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| self.0.support(filter)).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let config = self
            .0
            .scan(state, projection, filters)?
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
