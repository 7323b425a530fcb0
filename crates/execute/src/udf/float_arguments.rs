//! Numbers on their way into a parameter that is a float.
//!
//! Invariant: a number arrives as it is, or the query fails: a CAST of DataFusion would round it. A
//! decimal is kept if the float has all of its digits, so 0.1 is, and 2^53 + 1 is not.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float32Array, Float64Array, GenericListArray, OffsetSizeTrait,
    RecordBatch, RecordBatchOptions, StructArray,
};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::distinct;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, FieldRef, Fields, Schema,
    SchemaRef,
};
use arrow::util::display::array_value_to_string;
use datafusion::error::{DataFusionError, Result as DfResult};
use snowmelt_types::{Code, ErrorReport};

use crate::sql_semantics::{cast_strictly, sql_name};

/// Decimals with fewer digits are in every double, and so is the division that makes one of them.
const DIGITS_OF_DOUBLE: u32 = 15;
const MAX_EXACT_SCALE: i8 = 22;

/// Whether a conversion may round, so that each value is looked at.
pub(super) fn rounds(into: &DataType, from: &DataType) -> bool {
    use DataType::*;
    match (into, from) {
        (_, Dictionary(_, value)) => rounds(into, value),
        (Float16 | Float32 | Float64, from) => {
            from.is_decimal() || from.is_integer() && bits(from) > mantissa(into)
        }
        (List(into) | LargeList(into), List(from) | LargeList(from) | FixedSizeList(from, _)) => {
            rounds(into.data_type(), from.data_type())
        }
        (Struct(into), Struct(from)) => {
            into.iter().zip(from).any(|(into, from)| rounds(into.data_type(), from.data_type()))
        }
        _ => false,
    }
}

/// The bits of an integer without its sign.
fn bits(integer: &DataType) -> usize {
    let width = integer.primitive_width().map_or(0, |bytes| bytes * 8);
    width - usize::from(integer.is_signed_integer())
}

/// The bits of the integers that a float has without a gap.
fn mantissa(float: &DataType) -> usize {
    match float {
        DataType::Float16 => 11,
        DataType::Float32 => 24,
        _ => 53,
    }
}

/// The schema of parameters with the types of the columns that a call has.
pub(super) fn given(declared: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let mut types = columns.iter().map(|column| column.data_type());
    if declared.fields().iter().zip(columns).all(|(f, column)| f.data_type() == column.data_type())
    {
        return Arc::clone(declared);
    }
    let of_call = |field: &FieldRef| match types.next() {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type.clone())),
        None => Arc::clone(field),
    };
    Arc::new(Schema::new(declared.fields().iter().map(of_call).collect::<Fields>()))
}

/// The rows of a call in the declared types.
pub(super) fn converted(
    function: &str,
    rows: RecordBatch,
    declared: &SchemaRef,
) -> DfResult<RecordBatch> {
    if Arc::ptr_eq(rows.schema_ref(), declared) {
        return Ok(rows);
    }
    let columns = rows.columns().iter().zip(declared.fields()).map(|(column, field)| {
        let name = field.name();
        Parameter { function, name }.convert(column, field.data_type())
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = columns.collect::<DfResult<_>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(declared), columns, &options)?)
}

/// A parameter of a function, for errors.
struct Parameter<'a> {
    function: &'a str,
    name: &'a str,
}

impl Parameter<'_> {
    fn convert(&self, column: &ArrayRef, into: &DataType) -> DfResult<ArrayRef> {
        use DataType::*;
        let from = column.data_type();
        if !rounds(into, from) {
            return Ok(cast_strictly(column, into)?);
        }
        match (into, from) {
            (_, Dictionary(_, value)) => self.convert(&cast(column, value)?, into),
            (List(field), _) => self.convert_list::<i32>(column, field),
            (LargeList(field), _) => self.convert_list::<i64>(column, field),
            (Struct(fields), _) => {
                let given = column.as_struct();
                let columns = given.columns().iter().zip(fields);
                let columns =
                    columns.map(|(column, field)| self.convert(column, field.data_type()));
                let columns = columns.collect::<DfResult<_>>()?;
                let nulls = given.nulls().cloned();
                Ok(Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?))
            }
            (Float64 | Float32, from) if from.is_decimal() => self.convert_decimals(column, into),
            (_, from) if from.is_decimal() => {
                self.there_and_back(&self.convert_decimals(column, &Float32)?, into)
            }
            _ => self.there_and_back(column, into),
        }
    }

    fn convert_list<O: OffsetSizeTrait>(
        &self,
        column: &ArrayRef,
        field: &FieldRef,
    ) -> DfResult<ArrayRef> {
        let (DataType::List(inner)
        | DataType::LargeList(inner)
        | DataType::FixedSizeList(inner, _)) = column.data_type()
        else {
            return datafusion::common::internal_err!("a list is made of {}", column.data_type());
        };
        let before = Arc::new(field.as_ref().clone().with_data_type(inner.data_type().clone()));
        let list = cast_strictly(column, &(GenericListArray::<O>::DATA_TYPE_CONSTRUCTOR)(before))?;
        let list = list.as_list::<O>();
        let values = self.convert(list.values(), field.data_type())?;
        let offsets = list.offsets().clone();
        let nulls = list.nulls().cloned();
        Ok(Arc::new(GenericListArray::try_new(Arc::clone(field), offsets, values, nulls)?))
    }

    /// Converts numbers that come back as they were.
    fn there_and_back(&self, column: &ArrayRef, into: &DataType) -> DfResult<ArrayRef> {
        let made = cast_strictly(column, into)?;
        // What is out of range is null here.
        let back = cast(&made, column.data_type())?;
        let changed = distinct(&back, column)?;
        match changed.iter().position(|is_changed| is_changed == Some(true)) {
            None => Ok(made),
            Some(row) => Err(self.lost(&array_value_to_string(column, row)?, into)),
        }
    }

    fn convert_decimals(&self, column: &ArrayRef, into: &DataType) -> DfResult<ArrayRef> {
        let scale = match column.data_type() {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale,
            other => return datafusion::common::internal_err!("{other} is no decimal"),
        };
        let wide = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        let decimals = cast_strictly(column, &wide)?;
        let decimals = decimals.as_primitive::<Decimal128Type>().iter();
        let text = |value| Decimal128Type::format_decimal(value, DECIMAL128_MAX_PRECISION, scale);
        if into == &DataType::Float64 {
            let double = |value| double(value, scale).ok_or_else(|| self.lost(&text(value), into));
            let made = decimals.map(|value| value.map(double).transpose());
            return Ok(Arc::new(made.collect::<DfResult<Float64Array>>()?));
        }
        let real =
            |value| nearest::<f32>(value, scale).ok_or_else(|| self.lost(&text(value), into));
        let made = decimals.map(|value| value.map(real).transpose());
        Ok(Arc::new(made.collect::<DfResult<Float32Array>>()?))
    }

    fn lost(&self, number: &str, into: &DataType) -> DataFusionError {
        let (Self { function, name }, into) = (self, sql_name(into));
        let message = format!("`{function}` takes `{name}` as {into}, which has no exact {number}");
        let report = ErrorReport::new(Code::SQL_VALUE, message).hint(format!(
            "round it with CAST(x AS {into}), or declare the parameter as int or Decimal"
        ));
        DataFusionError::External(Box::new(report))
    }
}

/// The double that has all digits of a decimal.
fn double(value: i128, scale: i8) -> Option<f64> {
    let is_short = value.unsigned_abs() < 10_u128.pow(DIGITS_OF_DOUBLE);
    if is_short && (0..=MAX_EXACT_SCALE).contains(&scale) {
        return Some(value as f64 / 10_f64.powi(i32::from(scale)));
    }
    nearest(value, scale)
}

fn nearest<F: FromStr + Display + Copy + Into<f64>>(value: i128, scale: i8) -> Option<F> {
    let text = Decimal128Type::format_decimal(value, DECIMAL128_MAX_PRECISION, scale);
    let digits = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    let found: F = digits.parse().ok()?;
    (found.to_string() == digits || is_whole(found.into(), value, scale)).then_some(found)
}

/// Whether a float is exactly the whole number that a decimal is: it is shown with fewer digits.
fn is_whole(found: f64, value: i128, scale: i8) -> bool {
    let unit = u32::try_from(scale).ok().and_then(|scale| 10_i128.checked_pow(scale));
    unit.is_some_and(|unit| value % unit == 0 && found as i128 == value / unit)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, Int64Array, ListArray, UInt64Array};
    use arrow::datatypes::{Field, Float64Type, Int64Type};

    use super::*;

    const LIMIT: i64 = 1 << 53;

    fn convert(column: impl Array + 'static, into: &DataType) -> Result<ArrayRef, String> {
        let column = Arc::new(column) as ArrayRef;
        assert!(rounds(into, column.data_type()));
        let parameter = Parameter { function: "f", name: "x" };
        parameter.convert(&column, into).map_err(|error| error.to_string())
    }

    fn decimals(values: &[i128], scale: i8) -> Decimal128Array {
        Decimal128Array::from(values.to_vec()).with_precision_and_scale(38, scale).unwrap()
    }

    #[test]
    fn integers_that_a_float_has_are_kept_and_others_refused() {
        let kept =
            Int64Array::from(vec![Some(LIMIT), None, Some(-LIMIT), Some(1 << 62), Some(i64::MIN)]);
        let made = convert(kept.clone(), &DataType::Float64).unwrap();
        let doubles: Vec<_> = made.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(doubles, kept.iter().map(|n| n.map(|n| n as f64)).collect::<Vec<_>>());
        for lost in [LIMIT + 1, -LIMIT - 1, i64::MAX] {
            let why = convert(Int64Array::from(vec![1, lost]), &DataType::Float64).unwrap_err();
            assert!(why.contains(&format!("`x` as DOUBLE, which has no exact {lost}")), "{why}");
        }
        assert!(convert(UInt64Array::from(vec![u64::MAX]), &DataType::Float64).is_err());
        assert!(convert(Int32Array::from(vec![1 << 24]), &DataType::Float32).is_ok());
        assert!(convert(Int32Array::from(vec![(1 << 24) + 1]), &DataType::Float32).is_err());
        assert!(!rounds(&DataType::Float64, &DataType::Int32));
        assert!(!rounds(&DataType::Float32, &DataType::UInt16));
    }

    #[test]
    fn decimals_are_kept_with_all_of_their_digits() {
        let tenth_of_quintillion = 10_i128.pow(19);
        for (value, scale, double) in [
            (1_i128, 1, 0.1),
            (-1234, 2, -12.34),
            (1001 * tenth_of_quintillion, 20, 100.1),
            (i128::from(LIMIT), 0, LIMIT as f64),
            (1 << 60, 0, (1_i64 << 60) as f64),
            (0, 30, 0.0),
            (1, 25, 1e-25),
            (10_i128.pow(37), 0, 1e37),
        ] {
            let made = convert(decimals(&[value], scale), &DataType::Float64).unwrap();
            assert_eq!(made.as_primitive::<Float64Type>().value(0), double, "{value} {scale}");
        }
        for (value, scale) in [
            (i128::from(LIMIT) + 1, 0),
            (i128::from(LIMIT) * 100 + 101, 2),
            (12_345_678_901_234_567_891, 10),
            (10_i128.pow(37) + 1, 0),
        ] {
            let why = convert(decimals(&[value], scale), &DataType::Float64).unwrap_err();
            assert!(why.contains("has no exact"), "{why}");
        }
        assert!(convert(decimals(&[1234567], 3), &DataType::Float32).is_ok());
        assert!(convert(decimals(&[123456789], 3), &DataType::Float32).is_err());
    }

    #[test]
    fn numbers_in_lists_and_structs_are_looked_at_too() {
        let list = |values: Vec<i64>| {
            ListArray::from_iter_primitive::<Int64Type, _, _>([
                None,
                Some(values.into_iter().map(Some).collect::<Vec<_>>()),
            ])
        };
        let doubles = |name: &str| Arc::new(Field::new(name, DataType::Float64, true));
        let into = DataType::List(doubles("item"));
        assert_eq!(convert(list(vec![1, 2]), &into).unwrap().data_type(), &into);
        assert!(convert(list(vec![1, LIMIT + 1]), &into).is_err());
        let pair = |value: i64| {
            let column = Arc::new(Int64Array::from(vec![value])) as ArrayRef;
            StructArray::from(vec![(Arc::new(Field::new("n", DataType::Int64, true)), column)])
        };
        let into = DataType::Struct(Fields::from(vec![doubles("n")]));
        assert_eq!(convert(pair(7), &into).unwrap().data_type(), &into);
        assert!(convert(pair(LIMIT + 1), &into).is_err());
    }
}
