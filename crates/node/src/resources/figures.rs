//! Figures of a host: the room that is reserved on it, and how long starts take, counted as they
//! happen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use snowmelt_api::{LedgerFigures, START_BOUNDS_US, Start, StartFigures, UseFigures};
use snowmelt_ledger::{Amount, Ledger, RoomFigures, Use};
use snowmelt_types::micros;

/// Returns the capacity, the reservations and the requests for room of the host.
pub(crate) fn of_ledger(ledger: &Ledger) -> LedgerFigures {
    let RoomFigures { capacity, reserved, uses, waiting, refused, waited } = ledger.figures();
    let of_use = |(use_, amount): (Use, Amount)| UseFigures {
        name: use_.name().to_owned(),
        memory_bytes: amount.memory.bytes(),
        cpu_millis: amount.cpu_millis,
        instances: amount.instances,
    };
    LedgerFigures {
        memory_bytes: capacity.memory.bytes(),
        instances: capacity.instances.into(),
        reserved_memory_bytes: reserved.memory.bytes(),
        reserved_cpu_millis: reserved.cpu_millis,
        reserved_instances: reserved.instances,
        uses: uses.into_iter().map(of_use).collect(),
        waiting,
        refused,
        waited,
    }
}

/// The durations of starts, from the request to the instance: a histogram for each kind of start.
#[derive(Debug, Default)]
pub(crate) struct Starts([Histogram; Start::ALL.len()]);

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; START_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Starts {
    pub fn observe(&self, start: Start, took: Duration) {
        let us = micros(took);
        let histogram = &self.0[start as usize];
        let bucket = START_BOUNDS_US.partition_point(|bound| *bound < us);
        histogram.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        histogram.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn figures(&self) -> Vec<StartFigures> {
        let of = |start: Start| {
            let histogram = &self.0[start as usize];
            let read = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
            StartFigures {
                kind: start,
                buckets: histogram.buckets.iter().map(read).collect(),
                sum_us: read(&histogram.sum_us),
            }
        };
        Start::ALL.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_in_the_bucket_that_holds_it() {
        let starts = Starts::default();
        for us in [100, 101, 20_000_000] {
            starts.observe(Start::Zygote, Duration::from_micros(us));
        }
        let figures = &starts.figures()[Start::Zygote as usize];
        assert_eq!((figures.kind, figures.count(), figures.sum_us), (Start::Zygote, 3, 20_000_201));
        assert_eq!((figures.buckets[0], figures.buckets[1]), (1, 1));
        assert_eq!(figures.buckets.last(), Some(&1));
    }
}
