//! `damerau_levenshtein(a, b)`: the fewest insertions, deletions, substitutions and swaps of
//! neighbouring characters that make one text of the other.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};

/// The most pairs of characters of two texts, for each of which a number is kept in memory.
const MAX_PAIRS: usize = 4 << 20;

pub(crate) fn all() -> Vec<Plain> {
    vec![Plain::new("damerau_levenshtein", (2, 2), returned, |columns, _| distances(columns))]
}

fn returned(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types.iter().all(|of| of.is_string() || of.is_null()) {
        true => Ok(DataType::Int64),
        false => plan_err!("`damerau_levenshtein` takes two texts"),
    }
}

fn distances(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let left = cast(&columns[0], &DataType::Utf8)?;
    let right = cast(&columns[1], &DataType::Utf8)?;
    let pairs = left.as_string::<i32>().iter().zip(right.as_string::<i32>());
    let distances = pairs.map(|pair| match pair {
        (Some(left), Some(right)) => distance(left, right).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(distances.collect::<Result<Int64Array>>()?))
}

fn distance(left: &str, right: &str) -> Result<i64> {
    if left.len().saturating_mul(right.len()) > MAX_PAIRS {
        let message =
            format!("texts of {} and {} bytes are too long to compare", left.len(), right.len());
        return Err(wrong(message, "compare the first characters: left(text, 1000)"));
    }
    Ok(i64::try_from(strsim::damerau_levenshtein(left, right)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_one_step() {
        for (left, right, expected) in
            [("ca", "abc", 2), ("ab", "ba", 1), ("kitten", "sitting", 3), ("", "é", 1)]
        {
            assert_eq!(distance(left, right).unwrap(), expected);
        }
        assert!(distance(&"a".repeat(10_000), &"b".repeat(10_000)).is_err());
    }
}
