//! What a simulation found.

use serde::Serialize;

use crate::strategy::Strategy;

/// Seconds until the first, half, 99 % and the last of some things are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The first.
    pub first: f64,
    /// Half of them.
    pub half: f64,
    /// 99 % of them.
    pub most: f64,
    /// The last.
    pub last: f64,
}

impl Spread {
    /// From moments in nanoseconds, each with the number of things that are done then.
    pub(crate) fn new(mut moments: Vec<(u64, u64)>) -> Self {
        moments.sort_unstable();
        let total: u64 = moments.iter().map(|&(_, count)| count).sum();
        let at = |share: f64| {
            let (wanted, mut done) = (((total as f64 * share).ceil() as u64).max(1), 0);
            let reached = moments.iter().find(|&&(_, count)| {
                done += count;
                done >= wanted
            });
            reached.map_or(0.0, |&(moment, _)| moment as f64 / 1e9)
        };
        Self { first: at(0.0), half: at(0.5), most: at(0.99), last: at(1.0) }
    }
}

/// One simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// How the images reached the hosts.
    pub strategy: Strategy,
    /// Hosts that start containers, without those that failed.
    pub hosts: u64,
    /// Containers that started.
    pub containers: u64,
    /// Until a host has the blocks of the start profile of a function.
    pub arrived: Spread,
    /// Until a container has started.
    pub started: Spread,
    /// Until a host has the whole image of a function.
    pub whole: Spread,
    /// What the registry sent.
    pub registry_bytes: u64,
    /// What the hosts got.
    pub received_bytes: u64,
    /// What was sent in vain, in blocks that were interrupted.
    pub lost_bytes: u64,
    /// Levels of the highest tree; 0 without trees.
    pub levels: u32,
    /// Hosts that failed.
    pub killed: u64,
    /// Hosts that got another parent, once for each time.
    pub moves: u64,
    /// Streams that were simulated, each for a group of equal ones.
    pub streams: u64,
    /// Ends of blocks that were simulated.
    pub events: u64,
    /// The seed that gives this outcome again.
    pub seed: u64,
}
