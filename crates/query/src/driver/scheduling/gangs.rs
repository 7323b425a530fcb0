//! The pairs of stages of a query whose tasks run at the same time, as a gang.
//!
//! Invariant: a stage is in at most one pair (`plan` decides which), and a pair streams at
//! most once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use snowmelt_execute::exchange::Exchange;
use snowmelt_plan::stages::Stage;

use crate::driver::tasks::{AttemptEnd, Live};

/// Two stages of which the second reads the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagePair {
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
}

/// The tasks of a pair that runs.
pub(crate) struct PairGang {
    pub(crate) pair: StagePair,
    pub(crate) senders: Range<u32>,
    pub(crate) receivers: Range<u32>,
    /// Tasks of the gang that have ended well, or because a stream broke.
    pub(crate) done: Vec<(Live, AttemptEnd)>,
    /// When the first stream of the gang broke, if no task has said why.
    pub(crate) broken: Option<Instant>,
}

impl PairGang {
    pub(crate) fn tasks(&self) -> impl Iterator<Item = u32> + use<> {
        self.senders.clone().chain(self.receivers.clone())
    }
}

/// The pairs of a query.
#[derive(Default)]
pub(crate) struct Gangs {
    /// Pairs that have not begun.
    pub(crate) pairs: Vec<StagePair>,
    pub(crate) live: Vec<PairGang>,
}

impl Gangs {
    pub(crate) fn of(stages: &[Stage]) -> Self {
        let streamed = |stage: &Stage| stage.exchange().is_some_and(Exchange::is_streamed);
        let senders = (0..stages.len()).filter(|stage| streamed(&stages[*stage]));
        let pair = |sender: usize| {
            let receiver =
                stages.iter().position(|stage| stage.reads.contains(&(sender as u32)))?;
            Some(StagePair { sender, receiver })
        };
        Self { pairs: senders.filter_map(pair).collect(), live: Vec::new() }
    }

    /// True if a stage begins together with another one.
    pub(crate) fn waits(&self, stage: usize) -> bool {
        self.pairs.iter().any(|pair| pair.sender == stage || pair.receiver == stage)
    }

    /// True if a task belongs to a gang that runs.
    pub(crate) fn holds(&self, task: u32) -> bool {
        self.position(task).is_some()
    }

    /// The tasks of the gang of a task.
    pub(crate) fn members(&self, task: u32) -> BTreeSet<u32> {
        let gang = self.position(task).map(|index| &self.live[index]);
        gang.into_iter().flat_map(PairGang::tasks).collect()
    }

    pub(crate) fn position(&self, task: u32) -> Option<usize> {
        let holds =
            |gang: &PairGang| gang.senders.contains(&task) || gang.receivers.contains(&task);
        self.live.iter().position(holds)
    }

    pub(crate) fn take(&mut self, task: u32) -> Option<PairGang> {
        self.position(task).map(|index| self.live.swap_remove(index))
    }
}
