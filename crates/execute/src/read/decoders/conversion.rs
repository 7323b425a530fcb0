//! Turns texts of a CSV file into values, where they are not written as the decoder reads them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringViewArray, StringViewBuilder};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Field, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use arrow::error::ArrowError;

use crate::read::dialect::day_form::Moment;
use crate::read::reports::shortened;
use crate::read::{Dialect, Notation};
use crate::sql_semantics::sql_name;

/// True if the values of a column are decoded as texts first. `index` is its index in the file.
pub(crate) fn is_converted(field: &Field, index: usize, dialect: &Dialect) -> bool {
    dialect.notation_of(index).concerns(field.data_type())
        || matches!(field.data_type(), DataType::Date32 | DataType::Timestamp(..))
            && dialect.day_forms.contains_key(&index)
}

/// A column in the type that is wanted.
pub(crate) fn converted(
    column: &ArrayRef,
    field: &Field,
    index: usize,
    dialect: &Dialect,
) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let texts = column.as_string_view();
    let wrong = |value: &str| {
        let name = field.name();
        let kind = sql_name(field.data_type());
        let value = shortened(value);
        ArrowError::CsvError(format!("column `{name}` is {kind}, and `{value}` is not"))
    };
    let form = dialect.day_forms.get(&index).copied();
    let notation = dialect.notation_of(index);
    let moment = |value: &str| notation.moment(value, form);
    match field.data_type() {
        DataType::Date32 => {
            let days =
                |moment: Moment| (!moment.1).then(|| Date32Type::from_naive_date(moment.0.date()));
            each::<Date32Type>(texts, |value| moment(value).and_then(days), wrong)
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = |moment: Moment| moment.0.and_utc().timestamp_micros();
            let array =
                each::<TimestampMicrosecondType>(texts, |text| moment(text).map(micros), wrong);
            in_zone(array?, zone)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let nanos = |moment: Moment| moment.0.and_utc().timestamp_nanos_opt();
            let found = |value: &str| moment(value).and_then(nanos);
            in_zone(each::<TimestampNanosecondType>(texts, found, wrong)?, zone)
        }
        number => numbers(texts, number, notation, wrong),
    }
}

/// A column in the type that is wanted, with nulls for texts that are not values of it.
pub(crate) fn converted_or_null(
    column: &ArrayRef,
    field: &Field,
    index: usize,
    dialect: &Dialect,
) -> Result<ArrayRef, ArrowError> {
    let texts = column.as_string_view();
    let form = dialect.day_forms.get(&index).copied();
    let notation = dialect.notation_of(index);
    let is_value: &dyn Fn(&str) -> bool = match field.data_type() {
        DataType::Boolean => {
            &|text| text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
        }
        DataType::Date32 if is_converted(field, index, dialect) => {
            &|text| notation.moment(text, form).is_some_and(|(_, clock)| !clock)
        }
        DataType::Timestamp(..) if is_converted(field, index, dialect) => {
            &|text| notation.moment(text, form).is_some()
        }
        number if number.is_numeric() => {
            &|text| notation.plain(text).is_some_and(|plain| !plain.trim().is_empty())
        }
        _ => &|_| true,
    };
    let values = texts.iter().map(|text| text.filter(|text| is_value(text)));
    let values: ArrayRef = Arc::new(values.collect::<StringViewArray>());
    if is_converted(field, index, dialect) && !field.data_type().is_numeric() {
        return converted(&values, field, index, dialect);
    }
    let plain = |text: &str| match field.data_type().is_numeric() {
        true => notation.plain(text).map_or_else(String::new, Into::into),
        false => text.to_owned(),
    };
    let values: ArrayRef = match notation.has_plain_numbers() {
        true => values,
        false => {
            let texts = values.as_string_view().iter().map(|text| text.map(plain));
            Arc::new(texts.collect::<StringViewArray>())
        }
    };
    cast_with_options(&values, field.data_type(), &CastOptions::default())
}

fn each<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    value: impl Fn(&str) -> Option<T::Native>,
    wrong: impl Fn(&str) -> ArrowError,
) -> Result<ArrayRef, ArrowError> {
    let one = |text: Option<&str>| match text {
        Some(text) => value(text).map(Some).ok_or_else(|| wrong(text)),
        None => Ok(None),
    };
    let values: PrimitiveArray<T> = texts.iter().map(one).collect::<Result<_, _>>()?;
    Ok(Arc::new(values))
}

/// Timestamps of UTC in the zone of their type.
fn in_zone(array: ArrayRef, zone: &Option<Arc<str>>) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return Ok(array) };
    let data_type = DataType::Timestamp(*unit, zone.clone());
    let data = array.to_data().into_builder().data_type(data_type).build()?;
    Ok(arrow::array::make_array(data))
}

fn numbers(
    texts: &StringViewArray,
    data_type: &DataType,
    notation: &Notation,
    wrong: impl Fn(&str) -> ArrowError,
) -> Result<ArrayRef, ArrowError> {
    let mut plain = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        let read = |text| notation.plain(text).filter(|plain| !plain.trim().is_empty());
        let value = text.map(|text| read(text).ok_or_else(|| wrong(text)));
        plain.append_option(value.transpose()?);
    }
    let plain: ArrayRef = Arc::new(plain.finish());
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    let values = cast_with_options(&plain, data_type, &safe)?;
    let lost = (0..texts.len()).find(|row| values.is_null(*row) && texts.is_valid(*row));
    match lost {
        Some(row) => Err(wrong(texts.value(row))),
        None => Ok(values),
    }
}
