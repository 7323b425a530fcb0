//! The columns of the answer as clients receive them.
//!
//! Inside a query strings are views, which many readers of Arrow do not support yet.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::Result;
use crate::tables::TableInfo;

/// The schema of the answer. An expression without a name is named by its text, in which columns
/// have no table: `sum(x)`, not `sum(s3://bucket/prefix/*.parquet.x)`.
pub fn output_schema(schema: &Schema, tables: &[TableInfo]) -> SchemaRef {
    let short = |field: &FieldRef| without_tables(field.name(), tables);
    let names: Vec<String> = schema.fields().iter().map(short).collect();
    let distinct: HashSet<&String> = names.iter().collect();
    let unique = distinct.len() == names.len();
    let named = schema.fields().iter().zip(&names);
    let fields =
        named.map(|(field, name)| output_field(field, if unique { name } else { field.name() }));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn output_field(field: &FieldRef, name: &str) -> Field {
    let plain = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    };
    field.as_ref().clone().with_name(name).with_data_type(plain)
}

/// Removes tables from names inside of expressions: the name of a selected column has no table.
fn without_tables(name: &str, tables: &[TableInfo]) -> String {
    let mut text = name.to_owned();
    for table in tables {
        for before in ["(", " "] {
            text = text.replace(&format!("{before}{}.", table.name), before);
        }
    }
    text
}

/// Converts a batch to the schema of the answer.
pub fn output_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let plain = batch.columns().iter().zip(schema.fields());
    let columns = plain.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect();
        let tables =
            [TableInfo { name: "t/*.parquet".to_owned(), files: 1, row_groups: 1, version: 0 }];
        let shown = output_schema(&Schema::new(fields), &tables);
        assert!(shown.fields().iter().all(|field| field.data_type() == &DataType::Utf8));
        shown.fields().iter().map(|field| field.name().clone()).collect()
    }

    #[test]
    fn names_of_expressions_omit_tables() {
        let found = names(&["a", "sum(t/*.parquet.x)", "f(t/*.parquet.x, t/*.parquet.y)"]);
        assert_eq!(found, ["a", "sum(x)", "f(x, y)"]);
    }

    #[test]
    fn names_keep_their_tables_if_they_would_collide() {
        assert_eq!(names(&["sum(x)", "sum(t/*.parquet.x)"])[1], "sum(t/*.parquet.x)");
    }
}
