//! The names of a table's files: as a column beside its own, and as the table that `glob` is.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::datasource::ViewTable;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use object_store::ObjectMeta;
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::scan::paths::shown;
use snowmelt_files::has_glob;
use snowmelt_types::{Code, ErrorReport, Report};

use super::hive::FolderColumns;
use super::table_files::display_name;
use crate::spec::LocalFiles;
use crate::tables::locations::locate_all;
use crate::{Error, Result};

/// The column of `glob`, as in DuckDB.
const COLUMN: &str = "file";

/// The columns of a table's folders, and that of its files' names if it is wanted.
pub(crate) fn columns_beside<'a>(
    metas: impl Iterator<Item = &'a ObjectMeta> + Clone,
    schema: &Schema,
    url: &ObjectStoreUrl,
    filename: Option<&str>,
) -> Result<FolderColumns> {
    let mut columns = FolderColumns::find(metas.clone().map(|meta| &meta.location), schema);
    let Some(filename) = filename else { return Ok(columns) };
    let names = metas.map(|meta| shown(url.as_str(), &meta.location)).collect();
    if columns.add_names(filename, names, schema) {
        return Ok(columns);
    }
    let message = format!("the files have a column `{filename}` already");
    let report = ErrorReport::new(Code::OPTION, message)
        .hint("give the column of their names another name: filename => 'file'");
    Err(Error::File(Box::new(report)))
}

/// The table of the names of all files of some locations. A glob may have none.
pub(crate) async fn table(
    locations: &[String],
    files: &Arc<dyn LocalFiles>,
    s3: &S3Settings,
) -> Result<Arc<dyn TableProvider>> {
    let found = locate_all(locations, files, s3).await;
    let names: Vec<Vec<Expr>> = match found {
        Ok(located) => {
            let name = |meta: &ObjectMeta| vec![lit(display_name(&located, meta))];
            located.files.iter().map(name).collect()
        }
        Err(error) if is_empty_glob(locations, &error) => Vec::new(),
        Err(error) => return Err(error),
    };
    let (plan, value) = match names.is_empty() {
        true => (LogicalPlanBuilder::empty(false), lit("")),
        false => (LogicalPlanBuilder::values(names)?, col("column1")),
    };
    let plan = plan.project(vec![value.alias(COLUMN)])?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

fn is_empty_glob(locations: &[String], error: &Error) -> bool {
    let code = error.report().code;
    let is_empty = code == Code::TABLE_MISSING.code || code == Code::TABLE_EMPTY.code;
    is_empty && matches!(locations, [one] if has_glob(one))
}
