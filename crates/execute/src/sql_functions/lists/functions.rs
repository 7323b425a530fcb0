//! Functions of a list that other databases have as aggregates: `list_mode` of `array_agg(x)` is
//! `mode(x)` (`plan/equivalents/lists.rs`). Nulls are left out.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, MapArray,
    StructArray, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, cast, partition, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};

pub(crate) fn all() -> Vec<Plain> {
    vec![
        Plain::new("list_mode", (1, 1), element, |columns, _| modes(&columns[0])),
        Plain::new("list_quantile_disc", (2, 3), quantile_type, |columns, _| quantiles(columns)),
        Plain::new("list_product_of", (1, 1), number, |columns, _| {
            numbers(&columns[0], |values| Some(values.iter().product()))
        }),
        Plain::new("list_skewness", (1, 1), number, |columns, _| numbers(&columns[0], skewness)),
        Plain::new("list_kurtosis", (1, 1), number, |columns, _| numbers(&columns[0], kurtosis)),
        Plain::new("list_mad", (1, 1), number, |columns, _| numbers(&columns[0], deviation)),
        Plain::new("list_histogram", (1, 1), histogram_type, |columns, to| {
            histograms(&columns[0], to)
        }),
    ]
}

fn number(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    element(types, constants).map(|_| DataType::Float64)
}

/// The type of the elements of the first argument.
pub(crate) fn element(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types.first() {
        Some(DataType::List(item) | DataType::LargeList(item)) => Ok(item.data_type().clone()),
        Some(DataType::FixedSizeList(item, _)) => Ok(item.data_type().clone()),
        Some(DataType::Null) => Ok(DataType::Null),
        _ => plan_err!("this function takes a list"),
    }
}

/// Returns the type of quantiles: an element, or a list of elements for a list of parts.
fn quantile_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = element(types, constants)?;
    match types.get(1) {
        Some(DataType::List(_) | DataType::FixedSizeList(..)) => {
            Ok(DataType::List(Arc::new(Field::new_list_field(item, true))))
        }
        Some(of) if of.is_numeric() => Ok(item),
        _ => plan_err!("a quantile takes a number between 0 and 1"),
    }
}

/// A column of lists, with the sorted elements of each row that are not null.
pub(crate) struct Sorted {
    pub(super) elements: ArrayRef,
    /// Places of the elements of each row in the column's values, in sorted order.
    pub(super) rows: Vec<Vec<u32>>,
}

impl Sorted {
    pub(crate) fn of(column: &ArrayRef, descending: bool) -> Result<Self> {
        let list = as_list(column)?;
        let elements = Arc::clone(list.values());
        // A null inside of a list is larger than all values, so nulls are first in descending order.
        let options = SortOptions { descending, nulls_first: descending };
        let mut rows = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            if list.is_null(row) || list.value_type().is_null() {
                rows.push(Vec::new());
                continue;
            }
            let values = list.value(row);
            let begin = u32::try_from(list.value_offsets()[row]).unwrap_or_default();
            let order = sort_to_indices(&values, Some(options), None)?;
            let nulls = values.logical_null_count();
            let before = if descending { nulls } else { 0 };
            let there = order.values().iter().skip(before).take(values.len() - nulls);
            rows.push(there.map(|place| begin + place).collect());
        }
        Ok(Self { elements, rows })
    }
}

pub(crate) fn as_list(column: &ArrayRef) -> Result<ListArray> {
    let list = match column.data_type() {
        DataType::List(_) => Arc::clone(column),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            cast(column, &DataType::List(Arc::clone(item)))?
        }
        _ => {
            let item = Arc::new(Field::new_list_field(DataType::Null, true));
            cast(column, &DataType::List(item))?
        }
    };
    Ok(list.as_list::<i32>().clone())
}

/// Returns the most frequent element of each list, and the smallest one if several are.
fn modes(column: &ArrayRef) -> Result<ArrayRef> {
    if column.data_type().is_null() {
        return Ok(Arc::clone(column));
    }
    let sorted = Sorted::of(column, false)?;
    let mut found = Vec::with_capacity(sorted.rows.len());
    for row in sorted.rows {
        if row.is_empty() {
            found.push(None);
            continue;
        }
        let values = take(&sorted.elements, &UInt32Array::from(row.clone()), None)?;
        let mut most = 0..0;
        for range in partition(&[values])?.ranges() {
            if range.len() > most.len() {
                most = range;
            }
        }
        found.push(row.get(most.start).copied());
    }
    Ok(take(&sorted.elements, &UInt32Array::from(found), None)?)
}

/// Returns the type of a histogram: values, each with its number of occurrences.
fn histogram_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = element(types, constants)?;
    let entries = vec![Field::new("key", item, false), Field::new("value", DataType::Int64, true)];
    let entries = Field::new("entries", DataType::Struct(entries.into()), false);
    Ok(DataType::Map(Arc::new(entries), false))
}

fn histograms(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let DataType::Map(entries, _) = to else { return plan_err!("a histogram is a map") };
    let DataType::Struct(fields) = entries.data_type() else {
        return plan_err!("a map has entries");
    };
    let sorted = Sorted::of(column, false)?;
    let mut keys = vec![];
    let mut counts = vec![];
    let mut lengths = vec![];
    let mut there = vec![];
    for row in sorted.rows {
        there.push(!row.is_empty());
        let before = keys.len();
        if !row.is_empty() {
            let values = take(&sorted.elements, &UInt32Array::from(row.clone()), None)?;
            for range in partition(&[values])?.ranges() {
                keys.push(row[range.start]);
                counts.push(i64::try_from(range.len()).unwrap_or(i64::MAX));
            }
        }
        lengths.push(keys.len() - before);
    }
    let keys = take(&sorted.elements, &UInt32Array::from(keys), None)?;
    let counts: ArrayRef = Arc::new(Int64Array::from(counts));
    let pairs = StructArray::try_new(fields.clone(), vec![keys, counts], None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = Some(NullBuffer::from(there));
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, false)?))
}

/// Returns the quantile of each list: the first element with at most the given part of the list
/// before it.
fn quantiles(columns: &[ArrayRef]) -> Result<ArrayRef> {
    if columns[0].data_type().is_null() {
        return Ok(Arc::clone(&columns[0]));
    }
    let descending = columns.get(2).is_some_and(|column| {
        column
            .as_boolean_opt()
            .is_some_and(|column: &BooleanArray| column.iter().next().flatten().unwrap_or_default())
    });
    let sorted = Sorted::of(&columns[0], descending)?;
    let parts = &columns[1];
    if parts.data_type().is_numeric() {
        let parts = cast(parts, &DataType::Float64)?;
        let parts = parts.as_primitive::<Float64Type>().iter();
        let found: Vec<Option<u32>> =
            parts.zip(&sorted.rows).map(|(part, row)| at(row, part)).collect::<Result<_>>()?;
        return Ok(take(&sorted.elements, &UInt32Array::from(found), None)?);
    }
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let parts = cast(parts, &DataType::List(item))?;
    let parts = parts.as_list::<i32>();
    let mut found = Vec::new();
    let mut lengths = Vec::new();
    let mut there = Vec::new();
    for (index, row) in sorted.rows.iter().enumerate() {
        there.push(parts.is_valid(index) && !row.is_empty());
        let before = found.len();
        if there[index] {
            for part in parts.value(index).as_primitive::<Float64Type>() {
                found.push(at(row, part)?);
            }
        }
        lengths.push(found.len() - before);
    }
    let elements = take(&sorted.elements, &UInt32Array::from(found), None)?;
    let item = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(item, offsets, elements, Some(NullBuffer::from(there)))?))
}

/// The place of a quantile in sorted elements.
fn at(row: &[u32], part: Option<f64>) -> Result<Option<u32>> {
    let Some(part) = part else { return Ok(None) };
    if !(0.0..=1.0).contains(&part) {
        let message = format!("{part} is no part of all values");
        return Err(wrong(message, "a quantile takes a number between 0 and 1"));
    }
    // Not larger than the number of elements.
    let place = (part * row.len() as f64).ceil() as usize;
    Ok(row.get(place.saturating_sub(1)).copied())
}

fn numbers(column: &ArrayRef, of: impl Fn(&[f64]) -> Option<f64>) -> Result<ArrayRef> {
    let list = as_list(column)?;
    let row = |row: usize| -> Result<Option<f64>> {
        if list.is_null(row) {
            return Ok(None);
        }
        let values = cast(&list.value(row), &DataType::Float64)?;
        let values: Vec<f64> = values.as_primitive::<Float64Type>().iter().flatten().collect();
        Ok(if values.is_empty() { None } else { of(&values) })
    };
    Ok(Arc::new((0..list.len()).map(row).collect::<Result<Float64Array>>()?))
}

/// The mean of a power of the differences from the mean.
fn moment(values: &[f64], power: i32) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / count
}

/// The skewness of a sample, as in DuckDB. Null for fewer than three values, or without spread.
fn skewness(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let variance = moment(values, 2);
    (values.len() > 2 && variance > 0.0).then(|| {
        (count * (count - 1.0)).sqrt() / (count - 2.0) * moment(values, 3) / variance.powf(1.5)
    })
}

/// The excess kurtosis of a sample, as in DuckDB. Null for fewer than four values, or without
/// spread.
fn kurtosis(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let variance = moment(values, 2);
    (values.len() > 3 && variance > 0.0).then(|| {
        let ratio = moment(values, 4) / (variance * variance);
        (count - 1.0) * ((count + 1.0) * ratio - 3.0 * (count - 1.0))
            / ((count - 2.0) * (count - 3.0))
    })
}

/// The median of the distances from the median.
fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values.to_vec())?;
    median(values.iter().map(|value| (value - middle).abs()).collect())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    match values.len() % 2 {
        0 => Some(values[values.len() / 2 - 1].midpoint(*upper)),
        _ => Some(*upper),
    }
}
