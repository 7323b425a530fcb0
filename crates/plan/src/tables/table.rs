//! DataFusion's table provider for Parquet files, and the tables that a statement names.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as DfResult;
use datafusion::execution::context::SessionContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::sql::resolve::resolve_table_references;
use snowmelt_execute::scan::S3Settings;
use snowmelt_files::Format;

use super::distinct;
use super::files::{
    FileTable, FileTableProvider, FolderColumns, TableFile, file_names, footers, table_files,
};
use super::formats::{self, CsvOptions, FilesTable, ReadOptions, SheetOptions};
pub(super) use super::info::{ReadBytes, TableInfo, version_of};
use super::locations::{Located, locate_all, looks_like_location, without_query};
use super::prune::{Filters, LeftOut};
use super::read_calls::{ReadCall, ReadCalls};
use super::split::{self, Unit};
use crate::Result;
use crate::spec::QuerySpec;
use crate::sql::Statement;
use crate::sql::errors::sql_error;

/// Registers every table that a statement names: by its name in `spec.tables`, by the location that
/// its FROM quotes, or by a call that reads one.
pub(crate) async fn register(
    session: &SessionContext,
    statement: &Statement,
    reads: &ReadCalls,
    spec: &QuerySpec,
    csv: &CsvOptions,
    s3: &S3Settings,
) -> Result<Vec<TableInfo>> {
    let (references, _common) = resolve_table_references(&statement.query, true)?;
    let mut infos = Vec::new();
    let mut columns = Vec::new();
    for reference in references {
        let name = reference.table();
        let call = reads.get(name);
        let written = call.map_or(name, |call| &call.function);
        let located = |error| sql_error::location_error(error, written, &spec.sql);
        let locations = match (call, location_of(name, statement, spec)) {
            (Some(call), _) => call.locations.clone(),
            (None, Some(location)) => vec![location.to_owned()],
            (None, None) => continue,
        };
        if call.is_some_and(|call| call.format.is_none()) {
            let names = file_names::table(&locations, &spec.files, s3).await.map_err(located)?;
            session.register_table(reference, names)?;
            continue;
        }
        // Boxed: the readers of all formats are large futures.
        let opened = Box::pin(open(name, &locations, call, spec, statement, csv, s3));
        let (table, info) = opened.await.map_err(located)?;
        infos.push(info);
        columns.extend_from_slice(table.schema().fields());
        session.register_table(reference, table)?;
    }
    if !infos.is_empty() {
        csv.check_columns(&Schema::new(columns))?;
    }
    Ok(infos)
}

/// Finds the files of some locations and reads their columns.
async fn open(
    name: &str,
    locations: &[String],
    call: Option<&ReadCall>,
    spec: &QuerySpec,
    statement: &Statement,
    csv: &CsvOptions,
    s3: &S3Settings,
) -> Result<(Arc<dyn TableProvider>, TableInfo)> {
    let located = locate_all(locations, &spec.files, s3).await?;
    let location = match locations {
        [one] => without_query(one).to_owned(),
        [first, ..] => format!("{}, …", without_query(first)),
        [] => String::new(),
    };
    let format = match call.and_then(|call| call.format) {
        Some(format) => formats::required(&located, format)?,
        None => formats::format_of(&located, &location)?,
    };
    let filename = call.and_then(|call| call.filename.as_deref());
    if format == Format::Parquet {
        let table = ParquetTable::open(located, &location, filename, spec.workers).await?;
        let info = table.info(name);
        return Ok((Arc::new(FileTableProvider(table)), info));
    }
    let early = formats::may_end_early(&statement.query);
    let sheet = SheetOptions::default();
    let options = ReadOptions {
        csv: call.map_or(csv, |call| &call.options),
        sheet: call.map_or(&sheet, |call| &call.sheet),
        worker_memory: spec.cost.worker_memory,
    };
    let workers = spec.workers;
    let opening = FilesTable::open(located, &location, format, options, filename, workers, early);
    let table = opening.await?;
    let info = table.info(name);
    Ok((Arc::new(FileTableProvider(table)), info))
}

/// The location of a table. A name in `spec.tables` takes precedence over an equal location.
fn location_of<'a>(name: &'a str, statement: &Statement, spec: &'a QuerySpec) -> Option<&'a str> {
    let folded = || spec.tables.iter().find(|(table, _)| table.eq_ignore_ascii_case(name));
    let mapped = spec.tables.get(name).or_else(|| folded().map(|(_, location)| location));
    match mapped {
        Some(location) => Some(location),
        None => (statement.quoted.contains(name) || looks_like_location(name)).then_some(name),
    }
}

#[derive(Debug)]
struct ParquetTable {
    /// The columns of the files, followed by those of their folders.
    schema: TableSchema,
    folder_columns: FolderColumns,
    url: ObjectStoreUrl,
    files: Vec<TableFile>,
    workers: usize,
}

impl ParquetTable {
    async fn open(
        located: Located,
        location: &str,
        filename: Option<&str>,
        workers: u32,
    ) -> Result<Self> {
        let footers = footers::footers(&located).await?;
        let (schema, files) = table_files::tabulate(&located, footers, location)?;
        let metas = files.iter().map(|file| &file.meta);
        let folder_columns = file_names::columns_beside(metas, &schema, &located.url, filename)?;
        let columns = folder_columns.columns.clone();
        let schema = TableSchema::builder(schema).with_table_partition_cols(columns).build();
        Ok(Self {
            schema,
            folder_columns,
            url: located.url,
            files,
            workers: workers.max(1) as usize,
        })
    }

    fn info(&self, name: &str) -> TableInfo {
        let row_groups = self.files.iter().map(|file| file.footer.metadata.num_row_groups()).sum();
        let version = version_of(self.files.iter().map(|file| &file.meta));
        TableInfo { name: name.to_owned(), files: self.files.len(), row_groups, version }
    }

    fn file_groups(&self, columns: &[usize], filters: &Filters) -> Vec<FileGroup> {
        let statistics = (0..self.files.len()).map(|file| self.statistics_of(file)).collect();
        let may_pass = filters.files(statistics);
        let mut all = Vec::new();
        let mut left_out = 0;
        for (index, file) in self.files.iter().enumerate() {
            let footer = &file.footer.metadata;
            let kept = match may_pass[index] {
                true => filters.row_groups(footer, file.as_table),
                false => Vec::new(),
            };
            let leaves = self.leaves(file, columns);
            let units = split::units(index, file.meta.size, footer, &leaves, &kept);
            left_out += split::outside(footer, &units);
            all.extend(units);
        }
        let mut left_out = Some(LeftOut(left_out));
        let mut part = |unit: &Unit| match left_out.take() {
            Some(left_out) => self.part(unit).with_extension(left_out),
            None => self.part(unit),
        };
        let mut group = |units: Vec<Unit>| FileGroup::new(units.iter().map(&mut part).collect());
        split::distribute(&all, self.workers).into_iter().map(&mut group).collect()
    }

    /// Maps columns of the table to columns of a file, which may have another order.
    fn leaves(&self, file: &TableFile, columns: &[usize]) -> Vec<usize> {
        let root = file.footer.metadata.file_metadata().schema_descr().root_schema();
        let position = |column: &usize| {
            let name = self.schema.table_schema().field(*column).name();
            root.get_fields().iter().position(|field| field.name() == name)
        };
        columns.iter().filter_map(position).collect()
    }

    fn part(&self, unit: &Unit) -> PartitionedFile {
        let file = &self.files[unit.file];
        let values = self.folder_columns.values.get(unit.file).cloned().unwrap_or_default();
        let mut part = PartitionedFile::new_from_meta(file.meta.clone())
            .with_range(unit.start, unit.end)
            .with_partition_values(values)
            .with_extension(ReadBytes(unit.bytes))
            .with_extension(file.footer.clone());
        part.statistics = Some(self.statistics_of(unit.file));
        part
    }

    fn statistics_of(&self, file: usize) -> Arc<Statistics> {
        let own = &self.files[file].statistics;
        match self.folder_columns.columns.is_empty() {
            true => Arc::clone(own),
            false => Arc::new(self.folder_columns.statistics(file, own)),
        }
    }

    fn statistics(&self) -> DfResult<Statistics> {
        let each: Vec<_> = (0..self.files.len()).map(|file| self.statistics_of(file)).collect();
        let schema = self.schema.table_schema();
        let mut merged = Statistics::try_merge_iter(each.iter().map(Arc::as_ref), schema)?;
        let footers = self.files.iter().map(|file| file.footer.metadata.as_ref());
        distinct::estimate(&mut merged, schema, footers);
        Ok(merged)
    }
}

impl FileTable for ParquetTable {
    fn schema(&self) -> &TableSchema {
        &self.schema
    }

    fn support(&self, _: &Expr) -> TableProviderFilterPushDown {
        // Statistics skip row groups; the filter itself stays in the plan.
        TableProviderFilterPushDown::Inexact
    }

    fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> DfResult<FileScanConfigBuilder> {
        let filters = Filters::new(state, filters, &self.schema);
        let all = (0..self.schema.table_schema().fields().len()).collect();
        let columns = projection.unwrap_or(&all);
        let mut options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        options.global.coerce_int96 = Some(table_files::INT96_OPTION.to_owned());
        let source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let config = FileScanConfigBuilder::new(self.url.clone(), Arc::new(source))
            .with_file_groups(self.file_groups(columns, &filters))
            .with_statistics(self.statistics()?);
        Ok(config)
    }
}
