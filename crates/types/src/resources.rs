//! Amounts of memory, processor time and wall time, with their text forms.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text is not a valid amount; the message says what is expected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not {expected}")]
pub struct ParseResourceError {
    text: String,
    expected: &'static str,
}

/// An amount of bytes. Text form: `512MiB`, `2GB`, `1048576`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// An amount in mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

const UNITS: [(&str, u64); 13] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("b", 1),
    ("", 1),
];

impl FromStr for ByteSize {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseResourceError {
            text: text.to_owned(),
            expected: "an amount of memory: write for example 512MiB, 2GiB or a count of bytes",
        };
        let (number, unit) = split_number(text).ok_or_else(refused)?;
        let unit = unit.to_ascii_lowercase();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let bytes = number * (*factor as f64);
        if !(0.0..=9.0e18).contains(&bytes) {
            return Err(refused());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= factor {
                let amount = self.0 as f64 / factor as f64;
                return if amount.fract() == 0.0 {
                    write!(f, "{amount:.0} {unit}")
                } else {
                    write!(f, "{amount:.1} {unit}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Thousandths of one processor core. Text form: `500m` or `1.5`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
pub struct CpuMillis(pub u32);

impl FromStr for CpuMillis {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseResourceError {
            text: text.to_owned(),
            expected: "an amount of processor: write for example 500m, 1 or 1.5",
        };
        let (number, unit) = split_number(text).ok_or_else(refused)?;
        let millis = match unit {
            "m" => number,
            "" => number * 1000.0,
            _ => return Err(refused()),
        };
        // The kernel refuses a quota of less than 1 ms in a period of 100 ms.
        if !(10.0..=1_024_000.0).contains(&millis) {
            return Err(refused());
        }
        Ok(Self(millis as u32))
    }
}

impl fmt::Display for CpuMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}m", self.0)
    }
}

/// Whole microseconds, at most `u64::MAX`.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Parses `250ms`, `30s`, `5m`, `1h`, `30d`, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, ParseResourceError> {
    let refused = || ParseResourceError {
        text: text.to_owned(),
        expected: "a length of time: write for example 250ms, 30s, 5m or 1h",
    };
    let (number, unit) = split_number(text).ok_or_else(refused)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(refused()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_are_parsed_and_displayed() {
        assert_eq!("512MiB".parse(), Ok(ByteSize::mib(512)));
        assert_eq!("1.5 GiB".parse(), Ok(ByteSize::mib(1536)));
        assert_eq!("2GB".parse(), Ok(ByteSize(2_000_000_000)));
        assert_eq!("77".parse(), Ok(ByteSize(77)));
        assert_eq!(ByteSize::mib(1536).to_string(), "1.5 GiB");
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for bad in ["", "MiB", "-1", "5 parsecs", "1e400", "nan"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processor_amounts_are_parsed() {
        assert_eq!("500m".parse(), Ok(CpuMillis(500)));
        assert_eq!("1.5".parse(), Ok(CpuMillis(1500)));
        assert!("0".parse::<CpuMillis>().is_err());
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
    }
}
