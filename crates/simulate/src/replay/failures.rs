//! The hosts that have failed, the functions and calls that they had, and the counts of losses.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::figures::{Losses, Waits};

/// The time after a failure in nanoseconds within which calls count as around it.
const AROUND: u64 = 60_000_000_000;

/// The failures of a replay.
pub(super) struct ReplayFailures {
    random: Rng,
    /// The numbers of the hosts that have not failed.
    pub alive: Vec<u32>,
    /// The hosts whose failure nobody has noticed yet.
    pub unnoticed: BTreeMap<u32, Silent>,
    /// The moments of failures in nanoseconds, in ascending order.
    moments: Vec<u64>,
    pub losses: Losses,
    around: Vec<u64>,
    otherwise: Vec<u64>,
}

/// A host that has failed and does not answer.
#[derive(Default)]
pub(super) struct Silent {
    /// The functions that were on the host.
    pub functions: BTreeSet<u32>,
    /// The calls that were sent to the host.
    pub sent: Vec<u32>,
    /// The calls for functions that were not prepared on the host.
    pub unsent: Vec<u32>,
}

impl ReplayFailures {
    /// Makes the state for a number of hosts, with failures at these moments in nanoseconds.
    pub fn new(hosts: u32, mut moments: Vec<u64>, random: Rng) -> Self {
        moments.sort_unstable();
        Self {
            random,
            alive: (0..hosts).collect(),
            unnoticed: BTreeMap::new(),
            moments,
            losses: Losses::default(),
            around: Vec::new(),
            otherwise: Vec::new(),
        }
    }

    /// Returns a random host that has not failed, and marks it as failed.
    ///
    /// # Errors
    /// No such host is left.
    pub fn pick(&mut self) -> Result<u32, String> {
        match self.alive.len() {
            0 => Err("no host is left that could fail".to_owned()),
            count => Ok(self.alive.swap_remove(self.random.usize(..count))),
        }
    }

    /// Whether a host has failed and nobody has noticed it yet.
    pub fn is_silent(&self, host: u32) -> bool {
        self.unnoticed.contains_key(&host)
    }

    /// Counts the answer to a call.
    pub fn answers(&mut self, arrived: u64, now: u64) {
        if self.moments.is_empty() {
            return;
        }
        let first = self.moments.partition_point(|at| at.saturating_add(AROUND) < arrived);
        let is_around = self.moments.get(first).is_some_and(|at| *at <= now);
        let responses = if is_around { &mut self.around } else { &mut self.otherwise };
        responses.push(now - arrived);
    }

    /// Returns the counts, or `None` if no hosts were to fail.
    pub fn into_losses(self) -> Option<Losses> {
        let Self { losses, moments, around, otherwise, .. } = self;
        let response_around = Waits::new(around);
        let response_otherwise = Waits::new(otherwise);
        (!moments.is_empty()).then_some(Losses { response_around, response_otherwise, ..losses })
    }
}
