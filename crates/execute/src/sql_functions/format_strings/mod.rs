//! `printf('%5.2f', x)`, and `format`: with PostgreSQL's `%s`, `%I` and `%L`, or DuckDB's `{:.2f}`.

mod spec;
mod value;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};

use super::column_function::{Plain, wrong};
use crate::sql_semantics::text_of;
use spec::{FormatPart, of_braces, of_postgres, of_printf};
use value::{FormatArgument, written};

const MAX_ARGUMENTS: usize = 1000;

pub(super) fn all() -> Vec<Plain> {
    vec![
        Plain::new("printf", (1, MAX_ARGUMENTS), returns, |columns, _| {
            texts(columns, &|format| (of_printf(format), false))
        }),
        Plain::new("format", (1, MAX_ARGUMENTS), returns, |columns, _| {
            texts(columns, &|format| match of_postgres(format) {
                Some(parts) => (parts, true),
                None => (of_braces(format), false),
            })
        }),
    ]
}

fn returns(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let is_known = |of: &DataType| of.is_string() || of.is_null();
    match types.first().is_some_and(is_known) && !types.iter().any(DataType::is_nested) {
        true => Ok(DataType::Utf8),
        false => plan_err!("a format is a text, and its values are numbers, texts and times"),
    }
}

/// The values of an argument.
struct Values {
    text: StringArray,
    whole: Option<ArrayRef>,
    double: Option<Float64Array>,
}

impl Values {
    fn of(column: &ArrayRef) -> Result<Self> {
        let of = column.data_type();
        let exact = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
        let whole = of.is_integer().then(|| cast(column, &exact)).transpose()?;
        let double = of.is_numeric().then(|| cast(column, &DataType::Float64)).transpose()?;
        Ok(Self {
            text: text_of(column)?.as_string::<i32>().clone(),
            whole,
            double: double.map(|double| double.as_primitive::<Float64Type>().clone()),
        })
    }

    fn cell(&self, row: usize) -> FormatArgument<'_> {
        let is_there = self.text.is_valid(row);
        let whole =
            self.whole.as_ref().map(|whole| whole.as_primitive::<Decimal128Type>().value(row));
        FormatArgument {
            text: is_there.then(|| self.text.value(row)),
            whole: whole.filter(|_| is_there),
            double: self.double.as_ref().map(|double| double.value(row)).filter(|_| is_there),
        }
    }
}

/// Reads a format: its parts, and whether it writes nulls, too.
type FormatParser<'a> = &'a dyn Fn(&str) -> (std::result::Result<Vec<FormatPart>, String>, bool);

fn texts(columns: &[ArrayRef], read: FormatParser<'_>) -> Result<ArrayRef> {
    let [formats, values @ ..] = columns else { return plan_err!("a format is needed") };
    let formats = cast(formats, &DataType::Utf8)?;
    let formats = formats.as_string::<i32>();
    let values = values.iter().map(Values::of).collect::<Result<Vec<_>>>()?;
    let mut known: HashMap<&str, (Vec<FormatPart>, bool)> = HashMap::new();
    let mut of_row = |row: usize| -> Result<Option<String>> {
        if formats.is_null(row) {
            return Ok(None);
        }
        let format = formats.value(row);
        if !known.contains_key(format) {
            let (parts, writes_nulls) = read(format);
            let parts = parts.map_err(|why| no_format(format, &why))?;
            known.insert(format, (parts, writes_nulls));
        }
        let (parts, writes_nulls) = &known[format];
        if !writes_nulls && values.iter().any(|values| values.text.is_null(row)) {
            return Ok(None);
        }
        let mut text = String::new();
        for part in parts {
            match part {
                FormatPart::Text(plain) => text.push_str(plain),
                FormatPart::Value(place, spec) => {
                    let values = values.get(*place).ok_or_else(|| {
                        no_format(format, &format!("there is no value {}", place + 1))
                    })?;
                    let value = written(spec, values.cell(row));
                    text.push_str(&value.map_err(|why| no_format(format, &why))?);
                }
            }
        }
        Ok(Some(text))
    };
    Ok(Arc::new((0..formats.len()).map(&mut of_row).collect::<Result<StringArray>>()?))
}

fn no_format(format: &str, why: &str) -> DataFusionError {
    let message = format!("the format `{format}` cannot be used: {why}");
    wrong(message, "forms are those of printf, as %d, %5.2f and %s, or of format, as {} and {:.2f}")
}
