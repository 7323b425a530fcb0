//! Values written as JSON.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::json::writer::{EncoderOptions, make_encoder};
use datafusion::common::{DataFusionError, exec_err};
use datafusion::error::Result;
use snowmelt_wire::TextKeys;

use super::wrong;

fn options() -> EncoderOptions {
    EncoderOptions::default()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(TextKeys))
        .with_timestamp_format("%Y-%m-%d %H:%M:%S%.f".to_owned())
        .with_timestamp_tz_format("%Y-%m-%d %H:%M:%S%.f%:z".to_owned())
}

/// The JSON of each value; a null stays null.
pub(super) fn values(column: &ArrayRef) -> Result<ArrayRef> {
    let texts = texts(column)?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn texts(column: &ArrayRef) -> Result<Vec<Option<String>>> {
    if column.data_type().is_null() {
        return Ok(vec![None; column.len()]);
    }
    let field: FieldRef = Arc::new(Field::new("", column.data_type().clone(), true));
    let options = options();
    let mut encoder = make_encoder(&field, column.as_ref(), &options)?;
    let row = |row: usize| {
        if encoder.is_null(row) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        encoder.encode(row, &mut bytes);
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| DataFusionError::Execution("a value has no JSON".to_owned()))
    };
    (0..column.len()).map(row).collect()
}

/// An array of the values of each row.
pub(super) fn arrays(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let rows = columns.first().map_or(1, |column| column.len());
    let all: Vec<Vec<Option<String>>> = columns.iter().map(texts).collect::<Result<_>>()?;
    let null = "null".to_owned();
    let array = |row: usize| {
        let values: Vec<&str> =
            all.iter().map(|column| column[row].as_ref().unwrap_or(&null).as_str()).collect();
        Some(format!("[{}]", values.join(",")))
    };
    Ok(Arc::new((0..rows).map(array).collect::<StringArray>()))
}

/// An object of the names and values of each row, which take turns.
pub(super) fn objects(columns: &[ArrayRef]) -> Result<ArrayRef> {
    if columns.len() % 2 == 1 {
        return exec_err!("`json_object` takes pairs of a name and a value");
    }
    let rows = columns.first().map_or(1, |column| column.len());
    let mut objects = vec![String::from("{"); rows];
    for pair in columns.chunks_exact(2) {
        let names = cast(&pair[0], &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let values = texts(&pair[1])?;
        for (row, object) in objects.iter_mut().enumerate() {
            if names.is_null(row) {
                let message = "the name of a member of JSON is null".to_owned();
                return Err(wrong(message, "replace it: coalesce(name, '')"));
            }
            if object.len() > 1 {
                object.push(',');
            }
            let name = serde_json::Value::from(names.value(row));
            object.push_str(&format!("{name}:{}", values[row].as_deref().unwrap_or("null")));
        }
    }
    let closed = objects.into_iter().map(|object| Some(object + "}"));
    Ok(Arc::new(closed.collect::<StringArray>()))
}
