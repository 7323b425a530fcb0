//! Functions of a list that other databases have as aggregates of several values: `max(x, 2)` is
//! `list_extremes` of `array_agg(x)` (`plan/equivalents/lists.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, partition, take};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use super::functions::{Sorted, as_list, element};
use crate::sql_functions::column_function::{Plain, wrong};

pub(crate) fn all() -> Vec<Plain> {
    vec![
        Plain::new("list_extremes", (3, 3), some_of_list, extremes),
        Plain::new("list_head", (2, 2), some_of_list, head),
        Plain::new("list_entropy", (1, 1), entropy_type, |columns, _| entropies(&columns[0])),
    ]
}

fn entropy_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    element(types, constants).map(|_| DataType::Float64)
}

/// The type of some elements of the first argument, whose number is the second one.
fn some_of_list(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = element(types, constants)?;
    match types.get(1) {
        Some(of) if of.is_integer() => {
            Ok(DataType::List(Arc::new(Field::new_list_field(item, true))))
        }
        _ => plan_err!("the number of values to keep is a whole number above 0"),
    }
}

/// The smallest elements of each list, or the largest ones, in order and without nulls.
fn extremes(columns: &[ArrayRef], to: &DataType) -> Result<ArrayRef> {
    let largest = columns[2].as_boolean();
    let largest = !largest.is_empty() && largest.value(0);
    let sorted = Sorted::of(&columns[0], largest)?;
    let elements = Arc::clone(&sorted.elements);
    first(&sorted.rows, &elements, &columns[1], to)
}

/// The first elements of each list.
fn head(columns: &[ArrayRef], to: &DataType) -> Result<ArrayRef> {
    let list = as_list(&columns[0])?;
    let offsets = list.value_offsets();
    let places = |row: usize| match list.is_null(row) {
        true => Vec::new(),
        // Offsets are not negative.
        false => (offsets[row] as u32..offsets[row + 1] as u32).collect(),
    };
    let rows: Vec<Vec<u32>> = (0..list.len()).map(places).collect();
    first(&rows, list.values(), &columns[1], to)
}

/// Lists of the first places of each row. Null where a row has none.
fn first(
    rows: &[Vec<u32>],
    elements: &ArrayRef,
    counts: &ArrayRef,
    to: &DataType,
) -> Result<ArrayRef> {
    let DataType::List(item) = to else { return plan_err!("the values are a list") };
    let counts = cast(counts, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(rows.len());
    let mut there = Vec::with_capacity(rows.len());
    for (row, count) in rows.iter().zip(counts) {
        let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        let Some(count) = count else {
            let message = "the number of values to keep is null, or not above 0".to_owned();
            return Err(wrong(message, "write a whole number, as in max(x, 3)"));
        };
        let length = row.len().min(count);
        places.extend_from_slice(&row[..length]);
        lengths.push(length);
        there.push(length > 0);
    }
    let values = take(elements, &UInt32Array::from(places), None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = Some(NullBuffer::from(there));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// The entropy of the elements of each list, in bits.
fn entropies(column: &ArrayRef) -> Result<ArrayRef> {
    let sorted = Sorted::of(column, false)?;
    let list = as_list(column)?;
    let mut found = Vec::with_capacity(sorted.rows.len());
    for (index, row) in sorted.rows.iter().enumerate() {
        if list.is_null(index) {
            found.push(None);
            continue;
        }
        let count = row.len() as f64;
        let mut entropy = 0.0;
        if !row.is_empty() {
            let values = take(&sorted.elements, &UInt32Array::from(row.clone()), None)?;
            for range in partition(&[values])?.ranges() {
                let part = range.len() as f64 / count;
                entropy -= part * part.log2();
            }
        }
        // Of one value only, it is not -0.
        found.push(Some(entropy.max(0.0)));
    }
    Ok(Arc::new(Float64Array::from(found)))
}
