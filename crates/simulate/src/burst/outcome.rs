//! The results of a simulation.

use serde::Serialize;

use crate::strategy::Strategy;

/// The seconds until the first, half, 99 % and the last of some things are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Seconds until the first is done.
    pub first: f64,
    /// Seconds until half are done.
    pub half: f64,
    /// Seconds until 99 % are done.
    pub most: f64,
    /// Seconds until the last is done.
    pub last: f64,
}

impl Spread {
    /// Computes a spread from moments in nanoseconds, each with the number of things that are done
    /// at it.
    pub(crate) fn new(mut moments: Vec<(u64, u64)>) -> Self {
        moments.sort_unstable();
        let total: u64 = moments.iter().map(|&(_, count)| count).sum();
        let at = |share: f64| {
            let wanted = ((total as f64 * share).ceil() as u64).max(1);
            let mut done = 0;
            let reached = moments.iter().find(|&&(_, count)| {
                done += count;
                done >= wanted
            });
            reached.map_or(0.0, |&(moment, _)| moment as f64 / 1e9)
        };
        Self { first: at(0.0), half: at(0.5), most: at(0.99), last: at(1.0) }
    }
}

/// The result of one simulation of a burst.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationOutcome {
    /// The way in which images reached the hosts.
    pub strategy: Strategy,
    /// The number of hosts that start containers, without those that failed.
    pub hosts: u64,
    /// The number of containers that started.
    pub containers: u64,
    /// The times until a host has the blocks of the start profile of a function.
    pub arrived: Spread,
    /// The times until a container has started.
    pub started: Spread,
    /// The times until a host has the whole image of a function.
    pub whole: Spread,
    /// Bytes that the registry sent.
    pub registry_bytes: u64,
    /// Bytes that the hosts received.
    pub received_bytes: u64,
    /// Bytes that were sent in vain, in blocks that were interrupted.
    pub lost_bytes: u64,
    /// The number of levels of the highest tree; 0 without trees.
    pub levels: u32,
    /// The number of hosts that failed.
    pub killed: u64,
    /// The number of times that a host got another parent.
    pub moves: u64,
    /// The number of streams that were simulated, each for a group of equal ones.
    pub streams: u64,
    /// The number of ends of blocks that were simulated.
    pub events: u64,
    /// The seed that gives this outcome again.
    pub seed: u64,
}
