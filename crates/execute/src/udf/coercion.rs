//! The SQL types that a UDF's argument accepts without a CAST.
//!
//! Only conversions that preserve the value are implicit: wider numbers, other layouts of the same
//! strings. A number is not converted to text, because a query with the wrong column would then
//! give a result instead of an error.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;

use super::float_arguments::rounds;
use crate::sql_semantics::sql_name;

const OPEN: &str = "⟦";
const CLOSE: &str = "⟧";

/// The types to convert a call's arguments to, or an error with the expected and the given types.
pub(super) fn coerce(name: &str, takes: &[DataType], got: &[DataType]) -> Result<Vec<DataType>> {
    let fit =
        takes.len() == got.len() && takes.iter().zip(got).all(|(into, from)| fits(into, from));
    if fit {
        // Numbers that a CAST could round stay as they are until the call looks at them.
        let kept = |(into, from): (&DataType, &DataType)| {
            if rounds(into, from) { from.clone() } else { into.clone() }
        };
        return Ok(takes.iter().zip(got).map(kept).collect());
    }
    let many = takes.len();
    let few = got.len();
    let takes = list(takes);
    let got = list(got);
    if many != few {
        return plan_err!(
            "{OPEN}`{name}` takes {many} arguments ({takes}), but the query gives {few} ({got}){CLOSE}"
        );
    }
    plan_err!("{OPEN}`{name}` takes ({takes}), but the query gives ({got}){CLOSE}")
}

/// Extracts the text of `coerce`'s error from DataFusion's message.
pub fn refused_call(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(OPEN)?;
    rest.split_once(CLOSE).map(|(text, _)| text)
}

fn list(types: &[DataType]) -> String {
    types.iter().map(sql_name).collect::<Vec<_>>().join(", ")
}

fn fits(into: &DataType, from: &DataType) -> bool {
    use DataType::*;
    if into == from || matches!(from, Null) {
        return true;
    }
    match (into, from) {
        (_, Dictionary(_, value)) => fits(into, value),
        _ if into.is_string() => from.is_string(),
        (Binary | LargeBinary | BinaryView, from) => {
            matches!(from, Binary | LargeBinary | BinaryView)
        }
        _ if into.is_integer() && from.is_integer() => wider_integer(into, from),
        _ if into.is_floating() => from.is_numeric() && !(from.is_floating() && wider(from, into)),
        _ if is_decimal(into) && from.is_integer() => true,
        _ if is_decimal(into) && is_decimal(from) => wider_decimal(into, from),
        (Timestamp(_, zone), Timestamp(_, from)) => zone.is_some() == from.is_some(),
        (Timestamp(_, None) | Date64, Date32) => true,
        (List(into) | LargeList(into), List(from) | LargeList(from) | FixedSizeList(from, _)) => {
            fits(into.data_type(), from.data_type())
        }
        (Struct(into), Struct(from)) => {
            into.len() == from.len() && into.iter().zip(from).all(same_field)
        }
        _ => false,
    }
}

fn same_field((into, from): (&FieldRef, &FieldRef)) -> bool {
    into.name() == from.name() && fits(into.data_type(), from.data_type())
}

fn wider(a: &DataType, b: &DataType) -> bool {
    a.primitive_width() > b.primitive_width()
}

fn wider_integer(into: &DataType, from: &DataType) -> bool {
    match (into.is_signed_integer(), from.is_signed_integer()) {
        (true, true) | (false, false) => !wider(from, into),
        (true, false) => wider(into, from),
        (false, true) => false,
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    precision_and_scale(data_type).is_some()
}

fn precision_and_scale(data_type: &DataType) -> Option<(i16, i16)> {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some((i16::from(*precision), i16::from(*scale)))
        }
        _ => None,
    }
}

/// True if there are enough digits both before and after the point.
fn wider_decimal(into: &DataType, from: &DataType) -> bool {
    match (precision_and_scale(into), precision_and_scale(from)) {
        (Some((precision, scale)), Some((from_precision, from_scale))) => {
            scale >= from_scale && precision - scale >= from_precision - from_scale
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType::*;

    use super::*;

    #[test]
    fn conversions_that_preserve_the_value_are_accepted() {
        for (into, from) in [
            (Utf8, Utf8View),
            (Int64, Int32),
            (Int64, UInt32),
            (Float64, Int64),
            (Float64, Decimal128(15, 2)),
            (Decimal128(20, 4), Decimal128(15, 2)),
            (Utf8, Null),
            (Utf8, Dictionary(Box::new(Int32), Box::new(Utf8))),
            (Timestamp(arrow::datatypes::TimeUnit::Microsecond, None), Date32),
        ] {
            assert!(fits(&into, &from), "{into} from {from}");
        }
    }

    #[test]
    fn conversions_that_may_change_the_value_are_refused() {
        for (into, from) in [
            (Utf8, Int64),
            (Int64, Utf8),
            (Int32, Int64),
            (Int64, UInt64),
            (Int64, Float64),
            (Float32, Float64),
            (Decimal128(10, 2), Decimal128(15, 2)),
            (Boolean, Int64),
            (Date32, Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)),
        ] {
            assert!(!fits(&into, &from), "{into} from {from}");
        }
    }

    #[test]
    fn the_error_names_expected_and_given_types() {
        let error = coerce("score", &[Utf8], &[Int64]).unwrap_err().to_string();
        let wrapped = format!("wrapped: {error}, and more");
        let text = refused_call(&wrapped).unwrap();
        assert_eq!(text, "`score` takes (VARCHAR), but the query gives (BIGINT)");
        assert!(coerce("score", &[Utf8], &[]).is_err());
    }
}
