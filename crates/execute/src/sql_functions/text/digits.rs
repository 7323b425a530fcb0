//! Bytes of texts, and digits of numbers and bytes: `hex`, `bin`, and `octet_length` of texts and bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};

pub(crate) fn all() -> Vec<Plain> {
    vec![
        Plain::new("hex", (1, 1), hex_type, |columns, _| hex(&columns[0])),
        Plain::new("bin", (1, 1), bin_type, |columns, _| {
            of_bits(&columns[0], |bits| format!("{bits:b}"))
        }),
        Plain::new("bytes_of_text", (1, 1), bytes_type, |columns, _| {
            Ok(cast(&columns[0], &DataType::Binary)?)
        }),
        Plain::new("text_of_bytes", (1, 1), decoded_type, |columns, _| decoded(&columns[0])),
        Plain::new("octet_length", (1, 1), octets_type, |columns, to| octets(&columns[0], to)),
    ]
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        other => other.is_string(),
    }
}

fn hex_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_integer() || of.is_null() || is_text(of) || is_bytes(of) => {
            Ok(DataType::Utf8)
        }
        _ => plan_err!("`hex` takes an integer, a text or bytes"),
    }
}

fn bin_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_integer() || of.is_null() => Ok(DataType::Utf8),
        _ => plan_err!("`bin` takes an integer"),
    }
}

fn octets_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [DataType::LargeUtf8 | DataType::LargeBinary] => Ok(DataType::Int64),
        [of] if is_text(of) || is_bytes(of) || of.is_null() => Ok(DataType::Int32),
        _ => plan_err!("`octet_length` takes a text or bytes"),
    }
}

fn bytes_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_null() || of.is_string() => Ok(DataType::Binary),
        _ => plan_err!("`encode` of one argument takes a text"),
    }
}

fn decoded_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_null() || is_bytes(of) => Ok(DataType::Utf8),
        _ => plan_err!("`decode` of one argument takes bytes"),
    }
}

/// Returns the texts that bytes are in UTF-8.
fn decoded(column: &ArrayRef) -> Result<ArrayRef> {
    let bytes = cast(column, &DataType::Binary)?;
    let text = |bytes: Option<&[u8]>| match bytes.map(std::str::from_utf8).transpose() {
        Ok(text) => Ok(text.map(str::to_owned)),
        Err(_) => {
            let message = "bytes are no text in UTF-8".to_owned();
            Err(wrong(message, "show them as digits: hex(x)"))
        }
    };
    let texts = bytes.as_binary::<i32>().iter().map(text);
    Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
}

fn octets(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let plain = match column.data_type() {
        DataType::Dictionary(..) | DataType::Null => cast(column, &DataType::Utf8)?,
        _ => Arc::clone(column),
    };
    Ok(cast(&length(&plain)?, to)?)
}

/// Returns the hexadecimal digits of a number, 16 of a negative one, or of the bytes of a text.
fn hex(column: &ArrayRef) -> Result<ArrayRef> {
    if column.data_type().is_integer() || column.data_type().is_null() {
        return of_bits(column, |bits| format!("{bits:X}"));
    }
    let bytes = match column.data_type() {
        DataType::Dictionary(..) => cast(&cast(column, &DataType::Utf8)?, &DataType::Binary)?,
        _ => cast(column, &DataType::Binary)?,
    };
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let bytes = bytes.as_binary::<i32>();
    Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(digits)).collect::<StringArray>()))
}

fn of_bits(column: &ArrayRef, digits: impl Fn(u64) -> String) -> Result<ArrayRef> {
    let texts: StringArray = match column.data_type() {
        DataType::UInt64 => {
            column.as_primitive::<UInt64Type>().iter().map(|bits| bits.map(&digits)).collect()
        }
        _ => {
            let signed = cast(column, &DataType::Int64)?;
            let signed = signed.as_primitive::<Int64Type>().iter();
            signed.map(|value| value.map(|value| digits(value.cast_unsigned()))).collect()
        }
    };
    Ok(Arc::new(texts))
}
