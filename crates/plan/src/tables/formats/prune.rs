//! Leaves out files whose folders no filter of the query accepts.
//!
//! Text files have no statistics, so their folders are all that can tell.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;

use crate::tables::files::FolderColumns;

/// True if the filter can be evaluated with the columns of folders alone.
pub(super) fn is_of_folders(filter: &Expr, folders: &FolderColumns) -> bool {
    let is_folder = |name: &str| folders.columns.iter().any(|column| column.name() == name);
    let columns = filter.column_refs();
    // Functions of the user are volatile; they run only in workers.
    !columns.is_empty()
        && columns.iter().all(|column| is_folder(&column.name))
        && !filter.is_volatile()
}

/// Whether each file can have rows that the filters accept.
pub(super) fn kept(
    folders: &FolderColumns,
    filters: &[Expr],
    state: &dyn Session,
) -> DfResult<Vec<bool>> {
    let mut kept = vec![true; folders.values.len()];
    let filters: Vec<&Expr> =
        filters.iter().filter(|filter| is_of_folders(filter, folders)).collect();
    if filters.is_empty() || kept.is_empty() {
        return Ok(kept);
    }
    let values = |column| folders.values.iter().filter_map(move |file| file.get(column).cloned());
    let columns = (0..folders.columns.len()).map(|index| ScalarValue::iter_to_array(values(index)));
    let schema = Arc::new(Schema::new(folders.columns.clone()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect::<DfResult<_>>()?)?;
    let schema = DFSchema::try_from(schema)?;
    for filter in filters {
        let accepts = state.create_physical_expr(filter.clone(), &schema)?;
        let accepts = accepts.evaluate(&batch)?.into_array(batch.num_rows())?;
        let Some(accepts) = accepts.as_boolean_opt() else { continue };
        // Null accepts no row.
        let accepts = accepts.iter().map(|accepts| accepts == Some(true));
        kept.iter_mut().zip(accepts).for_each(|(kept, accepts)| *kept &= accepts);
    }
    Ok(kept)
}
