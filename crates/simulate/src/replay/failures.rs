//! Which hosts have failed, what they had, and what is counted of them.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::figures::{Losses, Waits};

/// For how long after a failure calls count as those around it.
const AROUND: u64 = 60_000_000_000;

/// The failures of a replay.
pub(super) struct Failures {
    random: Rng,
    /// Hosts that have not failed.
    pub alive: Vec<u32>,
    /// Hosts that have failed, which nobody knows yet.
    pub unnoticed: BTreeMap<u32, Silent>,
    /// When hosts fail.
    moments: Vec<u64>,
    pub losses: Losses,
    around: Vec<u64>,
    otherwise: Vec<u64>,
}

/// A host that does not answer.
#[derive(Default)]
pub(super) struct Silent {
    /// The functions that it had.
    pub functions: BTreeSet<u32>,
    /// Calls that were sent to it.
    pub sent: Vec<u32>,
    /// Calls whose function it does not get prepared any more.
    pub unsent: Vec<u32>,
}

impl Failures {
    /// Of these hosts, at these moments.
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

    /// A random host that has not failed, which fails now.
    ///
    /// # Errors
    /// There is none.
    pub fn pick(&mut self) -> Result<u32, String> {
        match self.alive.len() {
            0 => Err("no host is left that could fail".to_owned()),
            count => Ok(self.alive.swap_remove(self.random.usize(..count))),
        }
    }

    /// Whether a host has failed and nobody knows it yet.
    pub fn is_silent(&self, host: u32) -> bool {
        self.unnoticed.contains_key(&host)
    }

    /// A call has its answer.
    pub fn answers(&mut self, arrived: u64, now: u64) {
        if self.moments.is_empty() {
            return;
        }
        let first = self.moments.partition_point(|at| at.saturating_add(AROUND) < arrived);
        let is_around = self.moments.get(first).is_some_and(|at| *at <= now);
        let responses = if is_around { &mut self.around } else { &mut self.otherwise };
        responses.push(now - arrived);
    }

    /// What they came to, if there are any.
    pub fn into_losses(self) -> Option<Losses> {
        let Self { losses, moments, around, otherwise, .. } = self;
        let (response_around, response_otherwise) = (Waits::new(around), Waits::new(otherwise));
        (!moments.is_empty()).then_some(Losses { response_around, response_otherwise, ..losses })
    }
}
