//! Made-up traces with random arrivals. The rates of calls are those that FaaSNet 4.2 gives for its
//! IoT and gaming applications. A comment at each number says where the paper gives none.

use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

use super::{Trace, TraceFunction, TraceOrigin, TraceRow};
use crate::error::Error;

/// The greatest deviation of a call's duration from the mean, as a part of the mean. The paper says
/// that calls take about 2 s.
const SPREAD: f64 = 0.25;

/// The shape of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// 55 minutes with 10 calls a second. From minute 9 to 27 there are 300 to 400, and from minute
    /// 40 on 100 for two minutes, and then 400.
    Iot,
    /// 30 minutes with one call a second, and two bursts of 100, at minutes 11 and 21.
    Gaming,
}

/// A piece of a rate over time, in calls a second. From the minute `minute` until the next piece
/// begins, the rate goes from the first number to the second.
struct RatePiece {
    minute: f64,
    from: f64,
    to: f64,
}

const fn piece(minute: f64, from: f64, to: f64) -> RatePiece {
    RatePiece { minute, from, to }
}

/// The rates of FaaSNet 4.2 and Figure 11. The paper does not say when the second burst ends: here,
/// at minute 52.
const IOT: [RatePiece; 8] = [
    piece(0.0, 10.0, 10.0),
    // The level of each minute is between 300 and 400.
    piece(9.0, LEVEL, LEVEL),
    piece(27.0, 350.0, 10.0),
    piece(28.0, 10.0, 10.0),
    piece(40.0, 100.0, 100.0),
    piece(42.0, 400.0, 400.0),
    piece(52.0, 400.0, 10.0),
    piece(53.0, 10.0, 10.0),
];
const IOT_MINUTES: f64 = 55.0;

/// The mark for a random level in place of a rate.
const LEVEL: f64 = -1.0;
const LEVELS: std::ops::Range<f64> = 300.0..400.0;

/// The rates of FaaSNet 4.2 and Figure 12. The paper does not say how long the bursts are: here,
/// two minutes.
const GAMING: [RatePiece; 5] = [
    piece(0.0, 1.0, 1.0),
    piece(11.0, 100.0, 100.0),
    piece(13.0, 1.0, 1.0),
    piece(21.0, 100.0, 100.0),
    piece(23.0, 1.0, 1.0),
];
const GAMING_MINUTES: f64 = 30.0;

impl Profile {
    fn shape(self) -> (&'static [RatePiece], f64, TraceOrigin) {
        match self {
            Self::Iot => (&IOT, IOT_MINUTES, TraceOrigin::SyntheticIot),
            Self::Gaming => (&GAMING, GAMING_MINUTES, TraceOrigin::SyntheticGaming),
        }
    }
}

impl Trace {
    /// Makes a synthetic trace of a number of functions, whose calls take about `duration`. The
    /// second function has half as many calls as the first one, the third a third of them, and so
    /// on (Zipf). Equal seeds give equal traces.
    ///
    /// # Errors
    /// The number of functions is 0.
    pub fn synthetic(
        profile: Profile,
        functions: u32,
        duration: Duration,
        seed: u64,
    ) -> Result<Self, Error> {
        if functions == 0 {
            return Err(Error::Setting("there are no functions".to_owned()));
        }
        let mut random = Rng::with_seed(seed);
        let (pieces, minutes, origin) = profile.shape();
        let levels: Vec<f64> = (0..minutes as usize)
            .map(|_| LEVELS.start + random.f64() * (LEVELS.end - LEVELS.start))
            .collect();
        let rate = |minute: f64| rate(pieces, minutes, &levels, minute);
        let shares = shares(functions);
        let mut rows = Vec::new();
        let mut second = 0.0;
        loop {
            // Arrivals at the highest rate, of which the rate's part is taken: a Poisson process.
            second -= (1.0 - random.f64()).ln() / LEVELS.end;
            let minute = second / 60.0;
            if minute >= minutes {
                break;
            }
            if random.f64() * LEVELS.end >= rate(minute) {
                continue;
            }
            let at = random.f64();
            let function = shares.partition_point(|&share| share <= at) as u32;
            let stretch = 1.0 + SPREAD * (2.0 * random.f64() - 1.0);
            let taken = (duration.as_nanos() as f64 * stretch) as u64;
            let function = function.min(functions - 1);
            rows.push(TraceRow { at: (second * 1e9) as i64, duration: taken, function });
        }
        let named =
            |number| TraceFunction { name: format!("function-{}", number + 1), memory: None };
        Self::in_order(origin, (0..functions).map(named).collect(), rows, Vec::new())
    }
}

fn rate(pieces: &[RatePiece], minutes: f64, levels: &[f64], minute: f64) -> f64 {
    let next = pieces.partition_point(|piece| piece.minute <= minute);
    let Some(piece) = next.checked_sub(1).and_then(|at| pieces.get(at)) else { return 0.0 };
    if piece.from == LEVEL {
        return levels.get(minute as usize).copied().unwrap_or(LEVELS.start);
    }
    let end = pieces.get(next).map_or(minutes, |next| next.minute);
    let part = (minute - piece.minute) / (end - piece.minute);
    piece.from + (piece.to - piece.from) * part
}

/// The cumulative shares of calls: a random number from 0 to 1 below the entry of a function, and
/// not below the one before, is a call of it.
fn shares(functions: u32) -> Vec<f64> {
    let all: f64 = (1..=functions).map(|rank| 1.0 / f64::from(rank)).sum();
    let mut sum = 0.0;
    (1..=functions)
        .map(|rank| {
            sum += 1.0 / f64::from(rank) / all;
            sum
        })
        .collect()
}
