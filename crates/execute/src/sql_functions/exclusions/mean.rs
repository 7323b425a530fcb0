//! The average of a window that is written as two frames: their sum by their count, of the type that
//! `avg` has.

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::Plain;
use crate::sql_semantics::averages;

/// The name of the function. Its third argument is an average of no rows.
pub const MEAN: &str = "mean_of_parts";

pub(crate) fn all() -> [Plain; 1] {
    [Plain::new(MEAN, (3, 3), returned, |columns, to| means(&columns[0], &columns[1], to))]
}

fn returned(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [_, _, of] if of.is_decimal() || of.is_floating() => Ok(of.clone()),
        _ => plan_err!("an average with EXCLUDE is one of numbers"),
    }
}

fn means(sums: &ArrayRef, counts: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if to.is_decimal() {
        return averages(&cast(counts, &DataType::UInt64)?, sums, to);
    }
    let sums = cast(sums, &DataType::Float64)?;
    let counts = cast(counts, &DataType::Int64)?;
    let pairs = sums.as_primitive::<Float64Type>().iter().zip(counts.as_primitive::<Int64Type>());
    #[expect(clippy::cast_precision_loss, reason = "a double has 53 bits")]
    let mean = |(sum, count): (Option<f64>, Option<i64>)| {
        let count = count.filter(|count| *count > 0)?;
        Some(sum? / count as f64)
    };
    let means: Float64Array = pairs.map(mean).collect();
    Ok(cast(&means, to)?)
}
