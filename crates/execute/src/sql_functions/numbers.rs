//! `even` and `bar`, as in DuckDB.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::plan_err;
use datafusion::error::Result;

use super::column_function::{Plain, wrong};

/// The characters of a bar without a `width`.
const WIDTH: f64 = 80.0;
const MAX_WIDTH: f64 = 1000.0;

/// The left parts of a character, by eighths.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const FULL: char = '█';

pub(super) fn all() -> Vec<Plain> {
    vec![
        Plain::new(
            "even",
            (1, 1),
            |types, _| of_numbers(types, DataType::Float64),
            |columns, _| {
                let numbers = cast(&columns[0], &DataType::Float64)?;
                let even: Float64Array = numbers.as_primitive::<Float64Type>().unary(even);
                Ok(Arc::new(even))
            },
        ),
        Plain::new(
            "bar",
            (3, 4),
            |types, _| of_numbers(types, DataType::Utf8),
            |columns, _| bars(columns),
        ),
    ]
}

fn of_numbers(types: &[DataType], returned: DataType) -> Result<DataType> {
    match types.iter().all(|of| of.is_numeric() || of.is_null()) {
        true => Ok(returned),
        false => plan_err!("this function takes numbers"),
    }
}

/// The next even number, away from zero.
fn even(number: f64) -> f64 {
    let whole = number.abs().ceil();
    let even = if whole % 2.0 == 0.0 { whole } else { whole + 1.0 };
    // Infinity has no remainder.
    if whole.is_infinite() { number } else { even.copysign(number) }
}

fn bars(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let columns = columns.iter().map(|column| cast(column, &DataType::Float64));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = columns.first().map_or(0, |column| column.len());
    let bar = |row: usize| {
        let value = |column: &ArrayRef| {
            let column = column.as_primitive::<Float64Type>();
            arrow::array::Array::is_valid(column, row).then(|| column.value(row))
        };
        match columns.iter().map(value).collect::<Option<Vec<f64>>>().as_deref() {
            Some([number, least, most]) => bar(*number, *least, *most, WIDTH).map(Some),
            Some([number, least, most, width]) => bar(*number, *least, *most, *width).map(Some),
            _ => Ok(None),
        }
    };
    Ok(Arc::new((0..rows).map(bar).collect::<Result<StringArray>>()?))
}

/// A bar of `width` characters that is full at `most`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_WIDTH")]
fn bar(number: f64, least: f64, most: f64, width: f64) -> Result<String> {
    if !(1.0..=MAX_WIDTH).contains(&width) {
        let message = format!("a bar cannot have {width} characters");
        return Err(wrong(message, "its width is from 1 to 1000"));
    }
    let is_unknown = number.is_nan() || least.is_nan() || most.is_nan();
    let filled = match is_unknown || number <= least {
        true => 0.0,
        false if number >= most => width,
        false => width * (number - least) / (most - least),
    };
    if !filled.is_finite() {
        let message = format!("there is no bar between {least} and {most}");
        return Err(wrong(message, "its bounds are finite"));
    }
    let eighths = (filled * 8.0) as usize;
    let mut bar: String = std::iter::repeat_n(FULL, eighths / 8).collect();
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    let empty = (width as usize).saturating_sub(eighths.div_ceil(8));
    bar.extend(std::iter::repeat_n(' ', empty));
    Ok(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are DuckDB's.
    #[test]
    fn numbers_are_rounded_to_even_ones() {
        for (number, expected) in [
            (2.1, 4.0),
            (-2.1, -4.0),
            (3.0, 4.0),
            (-1.5, -2.0),
            (0.0, 0.0),
            (4.0, 4.0),
            (-3.0, -4.0),
        ] {
            assert_eq!(even(number), expected, "{number}");
        }
        assert_eq!(even(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert!(even(f64::NAN).is_nan());
    }

    #[test]
    fn bars_have_eighths_of_characters() {
        for (number, least, most, width, expected) in [
            (5.0, 0.0, 10.0, 10.0, "█████     "),
            (3.3, 0.0, 10.0, 4.0, "█▎  "),
            (7.99, 0.0, 10.0, 4.0, "███▏"),
            (1.0, 0.0, 10.0, 4.5, "▍   "),
            (11.0, 0.0, 10.0, 4.0, "████"),
            (-1.0, 0.0, 10.0, 4.0, "    "),
            (f64::INFINITY, 0.0, 10.0, 4.0, "████"),
            (f64::NAN, 0.0, 10.0, 4.0, "    "),
            (5.0, 10.0, 0.0, 4.0, "    "),
        ] {
            assert_eq!(bar(number, least, most, width).unwrap(), expected, "{number}");
        }
        for width in [0.0, -1.0, 1001.0, f64::NAN] {
            assert!(bar(5.0, 0.0, 10.0, width).is_err());
        }
    }
}
