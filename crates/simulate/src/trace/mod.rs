//! Traces: the calls of functions over time, with the duration of each call.
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

/// The calls of functions over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The origin of the trace.
    pub origin: TraceOrigin,
    /// The functions, by the numbers in calls.
    pub functions: Vec<TraceFunction>,
    /// The calls in the order of their arrival.
    pub calls: Vec<Arrival>,
    /// The latencies of starts that were recorded with the trace, in nanoseconds.
    pub recorded: Vec<u64>,
}

/// The origin of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOrigin {
    /// The cold starts of FaaSNet's artifact. They come without the durations of calls.
    FaasNet,
    /// Azure Functions, 2019: the number of calls in each minute, without their durations and their
    /// moments in the minute.
    Azure2019,
    /// Azure Functions, 2021.
    Azure2021,
    /// A made-up trace after the IoT application of FaaSNet 4.2.
    SyntheticIot,
    /// A made-up trace after the gaming application of FaaSNet 4.2.
    SyntheticGaming,
}

/// A function of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFunction {
    /// The name of the function in the trace.
    pub name: String,
    /// The memory of an instance in bytes. `None` if the trace does not say it.
    pub memory: Option<u64>,
}

/// A call of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The arrival, in nanoseconds from the first call.
    pub at: u64,
    /// The duration in nanoseconds.
    pub duration: u64,
    /// The number of the called function.
    pub function: u32,
}

/// A row of a trace, before the rows are in order. Times are nanoseconds of the trace's own clock.
#[derive(Clone, Copy, Debug)]
struct TraceRow {
    at: i64,
    duration: u64,
    function: u32,
}

impl Trace {
    /// Puts the rows of a trace in the order of their arrivals. Rows with equal arrivals stay in
    /// the order in which they came.
    fn in_order(
        origin: TraceOrigin,
        functions: Vec<TraceFunction>,
        mut rows: Vec<TraceRow>,
        recorded: Vec<u64>,
    ) -> Result<Self, Error> {
        rows.sort_by_key(|row| row.at);
        let first = rows.first().map_or(0, |row| row.at);
        let arrival = |row: &TraceRow| Arrival {
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

    /// The time from the first arrival to the last.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.calls.last().map_or(0, |call| call.at))
    }
}

impl TraceOrigin {
    /// Whether traces of this origin say how long calls take.
    pub fn has_durations(self) -> bool {
        !matches!(self, Self::FaasNet | Self::Azure2019)
    }

    /// Whether traces of this origin are made up.
    pub fn is_synthetic(self) -> bool {
        matches!(self, Self::SyntheticIot | Self::SyntheticGaming)
    }
}
