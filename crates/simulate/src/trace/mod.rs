//! Traces: which function is called when, and how long each call takes.
//!
//! Invariant: the calls are in the order of their arrivals, the first of which is at 0.

mod fields;
mod read;
mod synthetic;

use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::setting::MAX_SECONDS;

pub use synthetic::Profile;

/// Calls over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Where it is from.
    pub origin: Origin,
    /// The functions, by the numbers that calls have.
    pub functions: Vec<Function>,
    /// The calls, by their arrival.
    pub calls: Vec<Arrival>,
    /// The latencies of starts that were recorded with it, in nanoseconds.
    pub recorded: Vec<u64>,
}

/// Where a trace is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The cold starts of FaaSNet's artifact. It does not say how long calls take.
    FaasNet,
    /// Azure Functions, 2019: calls of each minute. It does not say how long they take, nor when in
    /// the minute they came.
    Azure2019,
    /// Azure Functions, 2021.
    Azure2021,
    /// Made up, after the IoT application of FaaSNet 4.2.
    SyntheticIot,
    /// Made up, after the gaming application of FaaSNet 4.2.
    SyntheticGaming,
}

/// A function of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name there.
    pub name: String,
    /// Bytes of memory of an instance, if the trace says so.
    pub memory: Option<u64>,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds from the first call.
    pub at: u64,
    /// Nanoseconds that it runs.
    pub duration: u64,
    /// The number of its function.
    pub function: u32,
}

/// A row of a trace, before the rows are in order. Times are nanoseconds of the trace's own clock.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: i64,
    duration: u64,
    function: u32,
}

impl Trace {
    /// Puts the rows of a trace in the order of their arrivals; equal ones stay in the order in
    /// which they came.
    fn in_order(
        origin: Origin,
        functions: Vec<Function>,
        mut rows: Vec<Row>,
        recorded: Vec<u64>,
    ) -> Result<Self, Error> {
        rows.sort_by_key(|row| row.at);
        let first = rows.first().map_or(0, |row| row.at);
        let arrival = |row: &Row| Arrival {
            at: row.at.abs_diff(first),
            duration: row.duration,
            function: row.function,
        };
        let calls: Vec<_> = rows.iter().map(arrival).collect();
        let last = calls.last().map_or(0, |call| call.at);
        if last as f64 > MAX_SECONDS * 1e9 {
            return Err(Error::Setting("the trace takes decades".to_owned()));
        }
        Ok(Self { origin, functions, calls, recorded })
    }

    /// From the first arrival to the last.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.calls.last().map_or(0, |call| call.at))
    }
}

impl Origin {
    /// Whether it says how long calls take.
    pub fn has_durations(self) -> bool {
        !matches!(self, Self::FaasNet | Self::Azure2019)
    }

    /// Whether it was made up.
    pub fn is_synthetic(self) -> bool {
        matches!(self, Self::SyntheticIot | Self::SyntheticGaming)
    }
}
