//! The answer of EXPLAIN COST: a row for each stage, for the driver, and for all.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};

use super::estimate::{Estimate, PartEstimate};
use crate::Result;

/// A column with whole numbers.
type CountColumn = fn(&PartEstimate) -> u64;

const WHOLE: [(&str, CountColumn); 7] = [
    ("tasks", |part| part.tasks),
    ("reads", |part| part.requests.reads()),
    ("writes", |part| part.requests.exchange_writes),
    ("lists", |part| part.requests.lists),
    ("bytes_read", |part| part.bytes_read),
    ("bytes_exchanged", |part| part.bytes_exchanged),
    ("rows", |part| part.rows),
];

/// A column with amounts.
type AmountColumn = fn(&PartEstimate) -> f64;

const AMOUNTS: [(&str, AmountColumn); 4] = [
    ("cpu_seconds", |part| significant(part.cpu_seconds)),
    ("function_seconds", |part| significant(part.held_seconds)),
    ("usd_functions", |part| significant(part.cost.functions.total)),
    ("usd_machines", |part| significant(part.cost.machines.total)),
];

/// The rows of an estimate.
pub(crate) fn as_rows(estimate: &Estimate) -> Result<RecordBatch> {
    let stages = estimate.stages.iter().enumerate();
    let stages = stages.map(|(index, part)| (format!("stage {index}"), part));
    let others = [("driver", &estimate.driver), ("total", &estimate.total)];
    let others = others.map(|(name, part)| (name.to_owned(), part));
    let (names, parts): (Vec<String>, Vec<&PartEstimate>) = stages.chain(others).unzip();
    let mut columns = vec![("part", Arc::new(StringArray::from(names)) as ArrayRef)];
    for (name, value) in WHOLE {
        let values = parts.iter().map(|part| i64::try_from(value(part)).unwrap_or(i64::MAX));
        columns.push((name, Arc::new(Int64Array::from_iter_values(values))));
    }
    for (name, value) in AMOUNTS {
        let values = parts.iter().map(|part| value(part));
        columns.push((name, Arc::new(Float64Array::from_iter_values(values))));
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Rounds to three digits: more would promise what an estimate cannot give.
fn significant(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        assert_eq!(significant(0.000_123_456), 0.000_123);
        assert_eq!(significant(12_345.0), 12_300.0);
        assert_eq!(significant(0.0), 0.0);
    }

    #[test]
    fn each_part_is_a_row() {
        let part = |tasks| PartEstimate { tasks, ..PartEstimate::default() };
        let estimate = Estimate { stages: vec![part(2), part(3)], driver: part(1), total: part(6) };
        let rows = as_rows(&estimate).unwrap();
        let names = rows.column(0).as_any().downcast_ref::<StringArray>().unwrap();
        let tasks = rows.column(1).as_any().downcast_ref::<Int64Array>().unwrap();
        let names: Vec<_> = names.iter().flatten().collect();
        assert_eq!(names, ["stage 0", "stage 1", "driver", "total"]);
        assert_eq!(tasks.values(), &[2, 3, 1, 6]);
    }
}
