//! The place of a row in samples that can be repeated: a number that only depends on its values.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use super::column_function::Plain;

pub(super) fn all() -> Vec<Plain> {
    // A row has any number of columns.
    vec![Plain::new("sample_place", (1, usize::MAX), number, |columns, _| places(columns))]
}

fn number(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        // All rows would have the same place.
        [_] => plan_err!(
            "a sample that can be repeated needs a table whose columns are known before the query"
        ),
        [seed, ..] if seed.is_integer() => Ok(DataType::Float64),
        _ => plan_err!("the seed of a sample is a whole number"),
    }
}

/// Computes a number from 0 to 1 for each row, from the seed and the values of the row.
fn places(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let [seeds, values @ ..] = columns else { return plan_err!("a sample has a seed") };
    let mut hashes = vec![0_u64; seeds.len()];
    create_hashes(values, &RandomState::default(), &mut hashes)?;
    let seeds = cast(seeds, &DataType::Int64)?;
    let seeds = seeds.as_primitive::<Int64Type>().values();
    let places = hashes.into_iter().zip(seeds).map(|(hash, seed)| place(hash, *seed));
    Ok(Arc::new(places.collect::<Float64Array>()))
}

/// The place of a row between 0 and 1, from the hash of its values.
fn place(hash: u64, seed: i64) -> f64 {
    let mixed = mixed(hash ^ mixed(seed.cast_unsigned()));
    // As many bits as a double has.
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Distributes the bits of a number evenly (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
