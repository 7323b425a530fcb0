//! The answer of EXPLAIN: both halves of the cut, one row for each line.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};

use crate::Result;

/// Two columns: which half, and one line of its plan.
pub(super) fn answer(worker: &str, driver: &str) -> Result<RecordBatch> {
    let halves = [("driver", driver), ("workers", worker)];
    let lines = halves.iter().flat_map(|(half, text)| text.lines().map(move |line| (*half, line)));
    let (halves, lines): (Vec<&str>, Vec<&str>) = lines.unzip();
    Ok(RecordBatch::try_from_iter([
        ("runs_on", Arc::new(StringArray::from(halves)) as ArrayRef),
        ("plan", Arc::new(StringArray::from(lines)) as ArrayRef),
    ])?)
}
