//! The properties of a link: rate and delay, with their text forms.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A text is not a valid rate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a rate from 8kbit to 400gbit: write for example 100mbit or 1gbit")]
pub struct ParseRateError(String);

/// Bits per second. Text form: `1gbit`, `100mbit`, `64kbit`, with decimal prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitRate(u64);

const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
const MIN: u64 = 8_000;
const MAX: u64 = 400_000_000_000;

impl BitRate {
    /// The rate in bytes per second.
    pub const fn bytes(self) -> u64 {
        self.0 / 8
    }

    /// The rate divided by `by`, but at least the minimum rate.
    pub const fn divided(self, by: u64) -> Self {
        let rate = self.0 / by;
        Self(if rate < MIN { MIN } else { rate })
    }
}

impl FromStr for BitRate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseRateError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let (number, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, *factor)))
            .ok_or_else(refused)?;
        let number: f64 = number.trim().parse().map_err(|_| refused())?;
        let rate = number * factor as f64;
        // NaN is in no range.
        if !(MIN as f64..=MAX as f64).contains(&rate) {
            return Err(refused());
        }
        Ok(Self(rate as u64))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) =
            UNITS.iter().find(|(_, factor)| self.0 >= *factor).unwrap_or(&UNITS[2]);
        write!(f, "{}{unit}", self.0 as f64 / *factor as f64)
    }
}

/// The link between a host and the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabLink {
    /// The rate in each direction. `None` for no limit.
    pub rate: Option<BitRate>,
    /// The delay of each packet that leaves a host.
    pub delay: Option<Duration>,
}

impl LabLink {
    /// The link with a hundredth of its rate, or 10 Mbit/s if it is unlimited.
    pub(crate) fn slowed(self) -> Self {
        let rate = self.rate.map_or(BitRate(10_000_000), |rate| rate.divided(100));
        Self { rate: Some(rate), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_rates() {
        assert_eq!("1gbit".parse(), Ok(BitRate(1_000_000_000)));
        assert_eq!("2.5Gbit".parse(), Ok(BitRate(2_500_000_000)));
        assert_eq!("64 kbit".parse(), Ok(BitRate(64_000)));
        for text in ["1gbit", "100mbit", "2.5gbit", "8kbit"] {
            assert_eq!(text.parse::<BitRate>().map(|rate| rate.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn invalid_rates_are_refused() {
        for bad in ["", "1", "gbit", "-1gbit", "0mbit", "1e9gbit", "nangbit", "1MiB", "7kbit"] {
            assert!(bad.parse::<BitRate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_slow_link_has_a_hundredth_of_its_rate_but_at_least_the_minimum() {
        let link = |rate: &str| LabLink { rate: rate.parse().ok(), delay: None };
        assert_eq!(link("1gbit").slowed(), link("10mbit"));
        assert_eq!(link("10kbit").slowed(), link("8kbit"));
        assert_eq!(LabLink::default().slowed(), link("10mbit"));
    }
}
