//! Measurements of one thing done many times: how long a series goes on, and how it is printed.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

/// One row of figures, printed as a line of JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many at once.
    pub concurrency: usize,
    /// How many in all.
    pub count: usize,
    /// From the request to the first byte from inside, in microseconds, sorted.
    pub first_byte_us: Vec<u64>,
    /// From the request to the end, in microseconds, sorted.
    pub whole_us: Vec<u64>,
    /// Whole lives a second.
    pub per_second: f64,
    /// Processor time of the whole machine for each, in milliseconds.
    pub cpu_ms_each: f64,
}

/// One sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// From the request to the first byte from inside.
    pub first_byte: Duration,
    /// From the request to the end.
    pub whole: Duration,
}

/// How long a series goes on: until one of both is reached.
#[derive(Args, Clone, Copy, Debug)]
pub struct Bounds {
    /// The most samples in each series.
    #[arg(long, default_value_t = 500)]
    pub count: usize,
    /// After so many seconds no further sample begins.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

/// The samples of a series that are still to be taken, shared by all who take them.
#[derive(Debug)]
pub struct Turns {
    left: AtomicUsize,
    deadline: Instant,
}

impl Turns {
    /// As many as the bounds allow from now on.
    pub fn new(bounds: Bounds) -> Self {
        let deadline = Instant::now() + Duration::from_secs(bounds.seconds);
        Self { left: AtomicUsize::new(bounds.count), deadline }
    }

    /// Whether there is one more to take.
    pub fn take(&self) -> bool {
        let one = |left: usize| left.checked_sub(1);
        Instant::now() < self.deadline
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok()
    }
}

/// A clock over a series of samples.
pub struct Series {
    begun: Instant,
    busy_ticks: u64,
}

impl Series {
    /// Starts the clock.
    pub fn begin() -> Result<Self> {
        Ok(Self { begun: Instant::now(), busy_ticks: busy_ticks()? })
    }

    /// Stops it.
    pub fn end(self, concurrency: usize, samples: &[Sample]) -> Result<Report> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let ticks = busy_ticks()? - self.busy_ticks;
        let count = samples.len().max(1) as f64;
        Ok(Report {
            concurrency,
            count: samples.len(),
            first_byte_us: sorted(samples.iter().map(|sample| sample.first_byte)),
            whole_us: sorted(samples.iter().map(|sample| sample.whole)),
            per_second: samples.len() as f64 / seconds,
            // A tick is 10 ms on every kernel that we run on.
            cpu_ms_each: ticks as f64 * 10.0 / count,
        })
    }
}

fn sorted(durations: impl Iterator<Item = Duration>) -> Vec<u64> {
    let mut all: Vec<u64> =
        durations.map(|d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX)).collect();
    all.sort_unstable();
    all
}

/// Ticks that the machine's processors were not idle: the first line of `/proc/stat` without its
/// fields 4 and 5, idle and waiting. All of the machine, because what a container costs is spread
/// over daemons and the kernel.
fn busy_ticks() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let fields = line.split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
}
