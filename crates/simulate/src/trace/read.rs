//! Reads traces from CSV. The header decides the format and the order of the columns. Further
//! columns are not read.
//!
//! Invariant: an unexpected line ends the reading, with an error that has its number.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::time::Duration;

use super::fields::{count, memory, name, seconds, split};
use super::{Trace, TraceFunction, TraceOrigin, TraceRow};
use crate::error::Error;

const FAASNET: [&str; 5] = ["__time__", "functionName", "latency", "runtime", "memoryMB"];
const AZURE: [&str; 4] = ["app", "func", "end_timestamp", "duration"];
/// The named columns of Azure's format of 2019. Beside them there is a column for each minute of a
/// day, named by its number.
const AZURE_2019: [&str; 2] = ["HashApp", "HashFunction"];
const MINUTES: std::ops::RangeInclusive<u64> = 1..=1440;
const MINUTE: f64 = 60e9;
/// The factor that spreads the moments of different functions over a minute, so that they do not
/// come at the same moments.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

/// The greatest number of calls in a trace: functions and hosts are numbers of 32 bits, and all
/// calls are in memory.
const MAX_CALLS: usize = 100_000_000;

/// The length of the longest line in bytes: a file without line ends must not fill the memory.
const LONGEST_LINE: u64 = 1 << 20;

/// The state of reading a trace.
struct TraceReader {
    origin: TraceOrigin,
    /// The positions of the format's columns in a line.
    places: Vec<usize>,
    /// The columns of the minutes of a day: position and minute.
    minutes: Vec<(usize, u64)>,
    /// The number of columns in the header.
    columns: usize,
    /// The duration in nanoseconds of calls for which the trace has none.
    duration: u64,
    numbers: HashMap<(String, Option<u64>), u32>,
    functions: Vec<TraceFunction>,
    rows: Vec<TraceRow>,
    recorded: Vec<u64>,
}

impl Trace {
    /// Reads a trace in the format of FaaSNet's artifact (`__time__`, `functionName`, `latency`,
    /// `runtime`, `memoryMB`), or of Azure Functions 2021 (`app`, `func`, `end_timestamp`,
    /// `duration`), where times are seconds, or of a day of Azure Functions 2019 (`HashApp`,
    /// `HashFunction`, and calls in the minutes `1` to `1440`), whose calls are spread over their
    /// minute. `file` is the name for errors, `duration` the duration of calls if the trace has
    /// none.
    ///
    /// # Errors
    /// [`Error::Trace`] with the first unexpected line; a file without calls.
    pub fn read(file: &str, mut input: impl BufRead, duration: Duration) -> Result<Self, Error> {
        let wrong = |line: usize, what: String| Error::Trace { file: file.to_owned(), line, what };
        let mut bytes = Vec::new();
        let mut reader: Option<TraceReader> = None;
        for number in 1.. {
            bytes.clear();
            let read = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            let read =
                read.map_err(|error| wrong(number, format!("it cannot be read: {error}")))?;
            if read == 0 {
                break;
            }
            let line = line(&bytes).map_err(|what| wrong(number, what))?;
            // Nothing is called by an empty line, as there may be at the end.
            if line.trim().is_empty() {
                continue;
            }
            let done = match &mut reader {
                Some(reader) => reader.row(line),
                None => TraceReader::new(line, duration).map(|made| reader = Some(made)),
            };
            done.map_err(|what| wrong(number, what))?;
        }
        let reader =
            reader.ok_or_else(|| wrong(1, format!("it is empty, expected {}", known())))?;
        if reader.rows.is_empty() {
            return Err(wrong(1, "there are no calls below the header".to_owned()));
        }
        Self::in_order(reader.origin, reader.functions, reader.rows, reader.recorded)
    }
}

/// The text of a line, without its end.
fn line(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() as u64 == LONGEST_LINE && !bytes.ends_with(b"\n") {
        return Err(format!("it has more than {LONGEST_LINE} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(text.trim_end_matches(['\n', '\r']))
}

fn too_many() -> String {
    format!("it has more than {MAX_CALLS} calls")
}

fn known() -> String {
    let faasnet = FAASNET.join(", ");
    let azure = AZURE.join(", ");
    let minutes = AZURE_2019.join(", ");
    format!("the columns {faasnet} or {azure} or {minutes}, 1, 2, ...")
}

impl TraceReader {
    fn new(header: &str, duration: Duration) -> Result<Self, String> {
        let found = split(header)?;
        let places = |columns: &[&str]| -> Option<Vec<usize>> {
            columns.iter().map(|wanted| found.iter().position(|found| found == wanted)).collect()
        };
        let minute = |name: &str| name.parse().ok().filter(|minute| MINUTES.contains(minute));
        let minutes: Vec<_> =
            (0..).zip(&found).filter_map(|(column, name)| Some((column, minute(name)?))).collect();
        let by_minute = places(&AZURE_2019).filter(|_| !minutes.is_empty());
        let (origin, places) = match (places(&FAASNET), places(&AZURE), by_minute) {
            (Some(places), None, None) => (TraceOrigin::FaasNet, places),
            (None, Some(places), None) => (TraceOrigin::Azure2021, places),
            (None, None, Some(places)) => (TraceOrigin::Azure2019, places),
            _ => return Err(format!("the header is `{header}`, expected {}", known())),
        };
        let duration = duration.as_nanos().try_into().unwrap_or(u64::MAX);
        let columns = found.len();
        let numbers = HashMap::new();
        let functions = Vec::new();
        let rows = Vec::new();
        let recorded = Vec::new();
        Ok(Self { origin, places, minutes, columns, duration, numbers, functions, rows, recorded })
    }

    fn row(&mut self, line: &str) -> Result<(), String> {
        let fields = split(line)?;
        if fields.len() != self.columns {
            return Err(format!("it has {} fields, expected {}", fields.len(), self.columns));
        }
        match self.origin {
            TraceOrigin::FaasNet => self.faasnet(&fields).and_then(|row| self.add([row])),
            TraceOrigin::Azure2019 => self.minutes(&fields),
            _ => self.azure(&fields).and_then(|row| self.add([row])),
        }
    }

    fn add(&mut self, rows: impl IntoIterator<Item = TraceRow>) -> Result<(), String> {
        for row in rows {
            if self.rows.len() == MAX_CALLS {
                return Err(too_many());
            }
            self.rows.push(row);
        }
        Ok(())
    }

    /// Adds the calls of a function in each minute, at equal distances.
    fn minutes(&mut self, fields: &[Cow<'_, str>]) -> Result<(), String> {
        let text = |column: usize| (AZURE_2019[column], &*fields[self.places[column]]);
        let app = name(text(0).0, text(0).1)?;
        let function = format!("{app}/{}", name(text(1).0, text(1).1)?);
        let function = self.function((function, None));
        let offset = (f64::from(function) * GOLDEN_RATIO).fract();
        for (column, minute) in self.minutes.clone() {
            let calls = count(&minute.to_string(), &fields[column])?;
            if calls > MAX_CALLS as u64 {
                return Err(too_many());
            }
            let begin = (minute - 1) as f64;
            let at = |call: u64| begin + (call as f64 + offset) / calls as f64;
            let duration = self.duration;
            let row = |call| TraceRow { at: (at(call) * MINUTE) as i64, duration, function };
            self.add((0..calls).map(row))?;
        }
        Ok(())
    }

    fn faasnet(&mut self, fields: &[Cow<'_, str>]) -> Result<TraceRow, String> {
        let text = |column: usize| (FAASNET[column], &*fields[self.places[column]]);
        let of = |(column, text)| seconds(column, text);
        let at = of(text(0))?;
        let latency = of(text(2))?;
        let function = name(text(1).0, text(1).1)?.to_owned();
        let bytes = memory(text(4).0, text(4).1)?;
        self.recorded.push(latency);
        // Its limits are a part of a function.
        let function = self.function((function, Some(bytes)));
        Ok(TraceRow { at: at as i64, duration: self.duration, function })
    }

    fn azure(&mut self, fields: &[Cow<'_, str>]) -> Result<TraceRow, String> {
        let text = |column: usize| (AZURE[column], &*fields[self.places[column]]);
        let of = |(column, text)| seconds(column, text);
        let end = of(text(2))?;
        let duration = of(text(3))?;
        let app = name(text(0).0, text(0).1)?;
        // The names of functions are unique only within an application.
        let function = format!("{app}/{}", name(text(1).0, text(1).1)?);
        let function = self.function((function, None));
        // What ran when the trace began had arrived before: that is a negative time.
        Ok(TraceRow { at: end as i64 - duration as i64, duration, function })
    }

    fn function(&mut self, key: (String, Option<u64>)) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.functions.len() as u32;
        self.functions.push(TraceFunction { name: key.0.clone(), memory: key.1 });
        self.numbers.insert(key, number);
        number
    }
}
