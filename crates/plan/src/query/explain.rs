//! The results of EXPLAIN, DESCRIBE and SHOW TABLES, which run no task.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use snowmelt_execute::sql_semantics::sql_name;

use crate::Result;
use crate::tables::without_query;

/// Returns both halves of the plan, a row for each line of text: the half, and the line.
pub(crate) fn plan(worker: &str, driver: &str) -> Result<RecordBatch> {
    let halves = [("driver", driver), ("workers", worker)];
    let lines = halves.iter().flat_map(|(half, text)| text.lines().map(move |line| (*half, line)));
    let (halves, lines): (Vec<&str>, Vec<&str>) = lines.unzip();
    Ok(RecordBatch::try_from_iter([
        ("runs_on", Arc::new(StringArray::from(halves)) as ArrayRef),
        ("plan", Arc::new(StringArray::from(lines)) as ArrayRef),
    ])?)
}

/// Returns the tables that were named beside the statement, a row for each.
pub(crate) fn tables(given: &BTreeMap<String, String>) -> Result<RecordBatch> {
    let names = StringArray::from_iter_values(given.keys());
    let locations = StringArray::from_iter_values(given.values().map(|of| without_query(of)));
    Ok(RecordBatch::try_from_iter([
        ("name", Arc::new(names) as ArrayRef),
        ("location", Arc::new(locations) as ArrayRef),
    ])?)
}

/// The columns of a table or query with their types, one row per column.
pub(crate) fn columns(schema: &Schema) -> Result<RecordBatch> {
    let fields = || schema.fields().iter();
    let names = StringArray::from_iter_values(fields().map(|field| field.name()));
    let types = StringArray::from_iter_values(fields().map(|field| sql_name(field.data_type())));
    let nullable: BooleanArray = fields().map(|field| Some(field.is_nullable())).collect();
    Ok(RecordBatch::try_from_iter([
        ("column_name", Arc::new(names) as ArrayRef),
        ("column_type", Arc::new(types) as ArrayRef),
        ("nullable", Arc::new(nullable) as ArrayRef),
    ])?)
}
