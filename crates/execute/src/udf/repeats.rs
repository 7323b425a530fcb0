//! Equal arguments of a deterministic function: one call for all of them.
//!
//! A row of a batch goes to the function only if no earlier row of the batch has its arguments, and
//! no result is kept for them. Arguments are compared by their bytes, so that values which only
//! compare as equal (0.0 and -0.0) are different ones.
//!
//! To find repeated arguments costs time, too. The search goes on only as long as it saves enough
//! calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{interleave, take_record_batch};
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use snowmelt_udf::CallError;

use super::result_cache::{CacheMemory, ResultCache, ResultPlace};

/// Batches that decide whether repeated arguments are looked for.
const TRIAL_BATCHES: u32 = 4;

/// Batches that are sent whole after a trial that saved too little. Then there is another trial,
/// because the next rows may repeat more.
const PAUSE_BATCHES: u32 = 60;

/// The least share of rows that must be saved, in percent.
const LEAST_PERCENT: u64 = 10;

/// Finds repeated arguments of one function.
#[derive(Debug)]
pub(super) struct Repeats {
    converter: RowConverter,
    kept: ResultCache,
    worth: Worth,
}

/// Calls the function with some rows.
type Caller<'a> = &'a mut dyn FnMut(&RecordBatch) -> Result<ArrayRef, CallError>;

/// The place of the result of a row.
#[derive(Clone, Copy)]
enum RowResult {
    /// A place in the young generation of kept results.
    Kept(u32, u32),
    /// A row of the results of this batch.
    New(u32),
}

/// The different arguments of a batch that have no young result.
#[derive(Default)]
struct Different {
    /// For each of the different arguments, the first row with them, and the kept result of the old
    /// generation.
    rows: Vec<(u32, Option<(u32, u32)>)>,
    /// The places of the results, one for each row of the batch.
    places: Vec<RowResult>,
}

impl Repeats {
    /// Creates the search for a function with `arguments`; `None` if there are none, or if their
    /// type has no form in which it can be compared.
    pub(super) fn of(arguments: &Schema, room: Option<CacheMemory>) -> Option<Self> {
        let fields = arguments.fields().iter();
        let fields: Vec<SortField> =
            fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let supported = !fields.is_empty() && RowConverter::supports_fields(&fields);
        let converter = supported.then(|| RowConverter::new(fields))?.ok()?;
        Some(Self { converter, kept: ResultCache::new(room), worth: Worth::default() })
    }

    /// The results of all rows.
    pub(super) fn call(
        &mut self,
        batch: &RecordBatch,
        send: Caller<'_>,
    ) -> Result<ArrayRef, CallError> {
        if !self.worth.try_next() {
            return send(batch);
        }
        let Ok(rows) = self.converter.convert_columns(batch.columns()) else { return send(batch) };
        let different = self.different(&rows);
        let sent = different.rows.iter().filter(|(_, old)| old.is_none()).count();
        self.worth.note(batch.num_rows() as u64, sent as u64);
        let Some(results) = self.results(batch, &different, send)? else { return send(batch) };
        let all = if different.rows.len() == batch.num_rows() {
            Some(Arc::clone(&results))
        } else {
            self.distributed(&different, &results).ok()
        };
        let keys = different.rows.iter().map(|(row, _)| rows.row(*row as usize).data());
        self.kept.add(keys, &results);
        match all {
            Some(all) => Ok(all),
            // Larger than an array can be.
            None => send(batch),
        }
    }

    fn different(&self, rows: &Rows) -> Different {
        let mut different = Different::default();
        let mut seen: HashMap<&[u8], u32> = HashMap::with_capacity(rows.num_rows());
        for (index, row) in rows.iter().enumerate() {
            let key = row.data();
            let place = match seen.entry(key) {
                Entry::Occupied(known) => RowResult::New(*known.get()),
                Entry::Vacant(free) => {
                    let old = match self.kept.find(key) {
                        Some(ResultPlace::Young((array, row))) => {
                            different.places.push(RowResult::Kept(array, row));
                            continue;
                        }
                        Some(ResultPlace::Old(place)) => Some(place),
                        None => None,
                    };
                    let place = *free.insert(different.rows.len() as u32);
                    different.rows.push((index as u32, old));
                    RowResult::New(place)
                }
            };
            different.places.push(place);
        }
        different
    }

    /// A result for each of the different arguments; `None` if Arrow refuses to select rows.
    fn results(
        &self,
        batch: &RecordBatch,
        different: &Different,
        send: Caller<'_>,
    ) -> Result<Option<ArrayRef>, CallError> {
        let is_new = |(row, old): &(u32, Option<_>)| old.is_none().then_some(*row);
        let new: Vec<u32> = different.rows.iter().filter_map(is_new).collect();
        let called = if new.len() == batch.num_rows() {
            send(batch)?
        } else {
            let rows = take_record_batch(batch, &UInt32Array::from(new.clone()));
            let Ok(rows) = rows else { return Ok(None) };
            send(&rows).map_err(|error| at_rows(error, &new))?
        };
        if new.len() == different.rows.len() {
            return Ok(Some(called));
        }
        // What was found in the old generation becomes young.
        let mut arrays: Vec<&dyn Array> = self.kept.old().iter().map(AsRef::as_ref).collect();
        arrays.push(called.as_ref());
        let last = arrays.len() - 1;
        let mut next = 0..;
        let place = |(_, old): &(u32, Option<(u32, u32)>)| match old {
            Some((array, row)) => (*array as usize, *row as usize),
            None => (last, next.next().unwrap_or_default()),
        };
        let places: Vec<(usize, usize)> = different.rows.iter().map(place).collect();
        Ok(interleave(&arrays, &places).ok())
    }

    fn distributed(
        &self,
        different: &Different,
        results: &ArrayRef,
    ) -> Result<ArrayRef, ArrowError> {
        let mut arrays: Vec<&dyn Array> = self.kept.young().iter().map(AsRef::as_ref).collect();
        arrays.push(results.as_ref());
        let last = arrays.len() - 1;
        let place = |place: &RowResult| match *place {
            RowResult::Kept(array, row) => (array as usize, row as usize),
            RowResult::New(row) => (last, row as usize),
        };
        interleave(&arrays, &different.places.iter().map(place).collect::<Vec<_>>())
    }
}

/// Replaces the row of an error, which counts the rows that were sent, by the row of the caller's
/// batch.
fn at_rows(error: CallError, sent: &[u32]) -> CallError {
    let CallError::Failed(mut failure) = error else { return error };
    let row = |row: u64| sent.get(usize::try_from(row).ok()?).map(|row| u64::from(*row));
    failure.row = failure.row.and_then(row);
    CallError::Failed(failure)
}

/// Decides by the rows of the last batches whether repeated arguments are looked for.
#[derive(Debug, Default)]
struct Worth {
    /// Batches left of a pause.
    pause: u32,
    /// Batches, rows and rows that were sent, of the current trial.
    batches: u32,
    rows: u64,
    sent: u64,
}

impl Worth {
    fn try_next(&mut self) -> bool {
        let is_tried = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_tried
    }

    fn note(&mut self, rows: u64, sent: u64) {
        self.batches += 1;
        self.rows += rows;
        self.sent += sent;
        if self.batches < TRIAL_BATCHES {
            return;
        }
        let saved = self.rows.saturating_sub(self.sent);
        self.pause = match saved * 100 >= self.rows * LEAST_PERCENT {
            true => 0,
            false => PAUSE_BATCHES,
        };
        (self.batches, self.rows, self.sent) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array, Int64Array};
    use arrow::datatypes::{DataType, Field, Float64Type};
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use snowmelt_wire::{FailureKind, FunctionFailure};

    use super::*;

    fn room(most_bytes: usize) -> Option<CacheMemory> {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        Some(CacheMemory::of(&pool, "half", most_bytes))
    }

    fn repeats(room: Option<CacheMemory>) -> Repeats {
        let schema = Schema::new(vec![Field::new("a", DataType::Float64, true)]);
        Repeats::of(&schema, room).unwrap()
    }

    fn batch(values: impl IntoIterator<Item = Option<f64>>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Float64Array::from_iter(values));
        RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
    }

    /// Calls a function that halves, checks each result, and returns the rows that it was sent.
    fn call(repeats: &mut Repeats, values: &[Option<f64>]) -> usize {
        let mut sent = 0;
        let results = repeats.call(&batch(values.iter().copied()), &mut |rows| {
            sent += rows.num_rows();
            let halves =
                rows.column(0).as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v / 2.0);
            Ok(Arc::new(halves))
        });
        let results = results.unwrap();
        let found = results.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits));
        let expected = values.iter().map(|value| value.map(|value| (value / 2.0).to_bits()));
        assert!(found.eq(expected), "{results:?}");
        sent
    }

    fn range(values: std::ops::Range<u32>) -> Vec<Option<f64>> {
        values.map(|value| Some(f64::from(value))).collect()
    }

    #[test]
    fn equal_rows_are_sent_once_and_compared_by_their_bytes() {
        let mut repeats = repeats(None);
        let values = [Some(1.0), None, Some(1.0), Some(0.0), Some(-0.0), None, Some(f64::NAN)];
        assert_eq!(call(&mut repeats, &values), 5);
        // Without room nothing is kept.
        assert_eq!(call(&mut repeats, &values), 5);
    }

    #[test]
    fn results_are_kept_from_batch_to_batch() {
        let mut repeats = repeats(room(1 << 20));
        assert_eq!(call(&mut repeats, &range(0..100)), 100);
        assert_eq!(call(&mut repeats, &range(50..150)), 50);
        assert_eq!(call(&mut repeats, &[range(0..150), range(0..10)].concat()), 0);
    }

    #[test]
    fn results_that_are_used_stay_within_the_bound() {
        let mut repeats = repeats(room(64 << 10));
        let often = range(0..50);
        assert_eq!(call(&mut repeats, &often), 50);
        for step in 1..100 {
            let values = [often.clone(), range(step * 100..step * 100 + 40)].concat();
            assert_eq!(call(&mut repeats, &values), 40, "step {step}");
        }
    }

    #[test]
    fn rows_that_do_not_repeat_are_soon_sent_unseen() {
        let mut repeats = repeats(room(1 << 20));
        for step in 0..TRIAL_BATCHES {
            call(&mut repeats, &range(step * 100..step * 100 + 100));
        }
        // The pause: repeated rows are not looked for.
        for _ in 0..PAUSE_BATCHES {
            assert_eq!(call(&mut repeats, &[Some(1.0), Some(1.0)]), 2);
        }
        assert!(call(&mut repeats, &[Some(-1.0), Some(-1.0)]) < 2);
    }

    #[test]
    fn a_failing_row_is_that_of_the_whole_batch() {
        let mut repeats = repeats(room(1 << 20));
        call(&mut repeats, &[Some(1.0), Some(2.0)]);
        let failed = repeats.call(&batch([1.0, 2.0, 2.0, 7.0].map(Some)), &mut |rows| {
            assert_eq!(rows.num_rows(), 1);
            Err(CallError::Failed(Box::new(FunctionFailure {
                kind: FailureKind::Raised,
                function: "half".to_owned(),
                exception: "ValueError: 7".to_owned(),
                location: None,
                traceback: Vec::new(),
                row: Some(0),
                input: None,
                failed: 1,
                calls: 1,
                limit: None,
                peak: None,
                hint: None,
            })))
        });
        let CallError::Failed(failure) = failed.unwrap_err() else { panic!("it failed") };
        assert_eq!(failure.row, Some(3));
        // What failed is not kept.
        assert_eq!(call(&mut repeats, &[Some(7.0), Some(7.0)]), 1);
    }

    #[test]
    fn functions_without_arguments_are_left_alone() {
        assert!(Repeats::of(&Schema::empty(), None).is_none());
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let schema = RecordBatch::try_from_iter([("n", number)]).unwrap().schema();
        assert!(Repeats::of(&schema, None).is_some());
    }
}
