//! `list_sum` and `list_count`: of the elements of a list that are not null.
//!
//! DataFusion's sum of integers is a double. Here it has the type of the aggregate: integers are
//! exact, and a sum that does not fit ends the query.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, ListArray, UInt64Array};
use arrow::compute::{cast, sum, sum_checked};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, Float64Type,
};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};

use super::functions::{as_list, element};
use crate::sql_functions::column_function::{Plain, wrong};
use crate::sql_semantics::sql_name;

pub(crate) fn all() -> Vec<Plain> {
    let sum = |name| Plain::new(name, (1, 1), sum_type, |columns, to| sums(&columns[0], to));
    vec![
        sum("array_sum"),
        sum("list_sum"),
        Plain::new("list_count", (1, 1), count_type, |columns, _| counts(&columns[0])),
    ]
}

fn count_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    element(types, constants).map(|_| DataType::Int64)
}

fn sum_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    match element(types, constants)? {
        item if item.is_unsigned_integer() => Ok(DataType::UInt64),
        item if item.is_integer() || item.is_null() => Ok(DataType::Int64),
        item if item.is_floating() => Ok(DataType::Float64),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => {
            Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale))
        }
        _ => plan_err!("a sum takes a list of numbers"),
    }
}

fn counts(column: &ArrayRef) -> Result<ArrayRef> {
    let list = as_list(column)?;
    let of_row = |row: usize| {
        let values = list.is_valid(row).then(|| list.value(row))?;
        i64::try_from(values.len() - values.logical_null_count()).ok()
    };
    Ok(Arc::new((0..list.len()).map(of_row).collect::<Int64Array>()))
}

fn sums(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let list = as_list(column)?;
    if to.is_floating() {
        let values = cast(list.values(), to)?;
        let values = values.as_primitive::<Float64Type>();
        let of_row = |(begin, length)| sum(&values.slice(begin, length));
        let all = ranges(&list).map(|range| range.and_then(of_row));
        return Ok(Arc::new(all.collect::<arrow::array::Float64Array>()));
    }
    let scale = if let DataType::Decimal128(_, scale) = to { *scale } else { 0 };
    let exact = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
    let values = cast(list.values(), &exact)?;
    let values = values.as_primitive::<Decimal128Type>();
    let of_row = |range: Option<(usize, usize)>| -> Result<Option<i128>> {
        let Some((begin, length)) = range else { return Ok(None) };
        let total = sum_checked(&values.slice(begin, length)).map_err(|_| overflow(to))?;
        let fits = |total: i128| {
            Decimal128Type::validate_decimal_precision(total, DECIMAL128_MAX_PRECISION, scale)
                .map_err(|_| overflow(to))
        };
        total.map_or(Ok(()), fits)?;
        Ok(total)
    };
    let totals = ranges(&list).map(of_row).collect::<Result<Vec<Option<i128>>>>()?;
    Ok(match to {
        DataType::Int64 => Arc::new(narrow::<i64>(&totals, to)?.collect::<Int64Array>()),
        DataType::UInt64 => Arc::new(narrow::<u64>(&totals, to)?.collect::<UInt64Array>()),
        _ => {
            let totals = Decimal128Array::from(totals);
            Arc::new(totals.with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale)?)
        }
    })
}

/// Returns the range of the elements of each list in the column's values; `None` for a null.
fn ranges(list: &ListArray) -> impl Iterator<Item = Option<(usize, usize)>> + '_ {
    (0..list.len()).map(|row| {
        let begin = usize::try_from(list.value_offsets()[row]).ok()?;
        let length = usize::try_from(list.value_length(row)).ok()?;
        list.is_valid(row).then_some((begin, length))
    })
}

fn narrow<T: TryFrom<i128>>(
    totals: &[Option<i128>],
    to: &DataType,
) -> Result<impl Iterator<Item = Option<T>>> {
    let one = |total: &Option<i128>| match total {
        Some(total) => T::try_from(*total).map(Some).map_err(|_| overflow(to)),
        None => Ok(None),
    };
    Ok(totals.iter().map(one).collect::<Result<Vec<_>>>()?.into_iter())
}

fn overflow(to: &DataType) -> DataFusionError {
    let message = format!("the sum of a list does not fit {}", sql_name(to));
    wrong(message, "compute in a wider type: list_sum(l::decimal(38, 0)[])")
}
