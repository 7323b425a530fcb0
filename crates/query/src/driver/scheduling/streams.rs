//! Begins gangs, and decides what their tasks count for.
//!
//! A gang begins once all inputs that its two stages read of other stages are complete. It counts
//! as a whole: the rows of its tasks are used only when all of them have ended well. If one is
//! lost, or there is no room for all of them at once, both stages run as others do, and the rows
//! between them are stored. So a loss costs one more run of both stages, and never a second stream.

use std::sync::Arc;
use std::time::Instant;

use snowmelt_plan::tasks::{PlannedTask, partitions_read};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{GangAsk, GangTask, MAX_STREAMS, Receiver, TaskStreams};

use super::gangs::{PairGang, StagePair};
use super::{AttemptRuns, Board};
use crate::Result;
use crate::driver::TaskError;
use crate::driver::runner::reserve;
use crate::driver::tasks::{AttemptEnd, How, Live};

/// The reason that is given for an attempt of a gang that did not count.
const BROKEN: &str = "stream broken";

impl<'q> Board<'q> {
    /// Begins the pairs that can begin.
    pub(crate) fn begin_gangs(&mut self, running: &mut AttemptRuns<'q>) -> Result<()> {
        let is_ready = |pair: &StagePair| {
            self.graph.can_begin(pair.sender, None)
                && self.graph.can_begin(pair.receiver, Some(pair.sender as u32))
        };
        let pairs = self.gangs.pairs.iter().copied();
        let (ready, later) = pairs.partition::<Vec<_>, _>(is_ready);
        self.gangs.pairs = later;
        for pair in ready {
            self.begin_gang(pair, running)?;
        }
        Ok(())
    }

    fn begin_gang(&mut self, pair: StagePair, running: &mut AttemptRuns<'q>) -> Result<()> {
        self.begin(pair.sender, None)?;
        self.begin(pair.receiver, Some(pair.sender as u32))?;
        let senders = self.graph.tasks_of(pair.sender);
        let receivers = self.graph.tasks_of(pair.receiver);
        let gang = PairGang { pair, senders, receivers, done: Vec::new(), broken: None };
        let ask = GangAsk {
            senders: gang.senders.clone().map(|task| self.asked(task)).collect(),
            receivers: gang.receivers.clone().map(|task| self.asked(task)).collect(),
        };
        // They read what the senders have stored, if they do not stream.
        for receiver in gang.receivers.clone() {
            self.entries[receiver as usize].reads_later = true;
        }
        if ask.streams() > MAX_STREAMS || ask.streams() == 0 {
            self.not_streamed(pair, "too many streams");
            return Ok(());
        }
        let receivers = self.receivers(&gang);
        let stage = pair.sender as u32;
        let reserving = reserve(Arc::clone(&self.shared.runner), ask);
        for task in gang.tasks() {
            let streams = match gang.senders.contains(&task) {
                true => TaskStreams::Send(receivers.clone()),
                false => TaskStreams::Receive { stage },
            };
            self.graph.started(task);
            self.try_task(task, How::Gang(reserving.clone(), streams), running);
        }
        self.gangs.live.push(gang);
        Ok(())
    }

    fn asked(&self, task: u32) -> GangTask {
        let PlannedTask { udfs, s3, files, .. } = &*self.entries[task as usize].planned;
        let network = !s3.is_empty();
        GangTask { task, udfs: udfs.clone(), network, files: files.clone() }
    }

    /// Returns the partitions of the first stage that each task of the second stage reads.
    fn receivers(&self, gang: &PairGang) -> Vec<Receiver> {
        let stage = &self.query.cut.stages[gang.pair.receiver];
        let receiver = |task: u32| {
            let own = &self.entries[task as usize].planned.partitions;
            let partitions = partitions_read(stage, own).remove(&(gang.pair.sender as u32));
            Receiver { task, partitions: partitions.unwrap_or_default() }
        };
        gang.receivers.clone().map(receiver).collect()
    }

    /// True if a task reads streams of all `senders`.
    pub(crate) fn streams_from(&self, task: u32, senders: &[u32]) -> bool {
        let members = self.gangs.members(task);
        senders.iter().all(|sender| members.contains(sender))
    }

    /// Handles a task of a gang that has ended well, or because a stream broke. Its results count
    /// when all tasks of the gang have ended well.
    pub(crate) fn done_in_gang(&mut self, live: Live, ended: AttemptEnd) -> Result<()> {
        let Some(index) = self.gangs.position(ended.task) else { return Ok(()) };
        let gang = &mut self.gangs.live[index];
        if has_failed(&ended) {
            gang.broken.get_or_insert_with(Instant::now);
        }
        gang.done.push((live, ended));
        if gang.done.len() < gang.tasks().count() {
            return Ok(());
        }
        if gang.broken.is_some() {
            return self.broke(index);
        }
        let mut done = self.gangs.live.swap_remove(index).done;
        // Those that sent first: the others have read what these gave.
        done.sort_by_key(|(_, ended)| ended.task);
        for (live, ended) in done {
            self.renew_late(ended.task);
            self.succeeded(live, ended)?;
        }
        Ok(())
    }

    /// Gives up gangs of which a stream broke although none of their tasks was lost: the hosts of
    /// the stream's two tasks cannot reach each other any more. The sender may not notice it for
    /// minutes.
    pub(crate) fn end_broken(&mut self) -> Result<()> {
        let limit = self.options.stragglers.unexplained;
        let is_late = |gang: &PairGang| gang.broken.is_some_and(|at| at.elapsed() > limit);
        while let Some(index) = self.gangs.live.iter().position(is_late) {
            self.broke(index)?;
        }
        Ok(())
    }

    /// Gives up a gang of which a stream broke, without a reason from any of its tasks.
    fn broke(&mut self, index: usize) -> Result<()> {
        let gang = &mut self.gangs.live[index];
        gang.broken = None;
        let failed = gang.done.iter().position(|(_, ended)| has_failed(ended));
        let Some((live, ended)) = failed.map(|failed| gang.done.swap_remove(failed)) else {
            return Ok(());
        };
        let Some(Err(TaskError::LostInputs { tasks, why })) = ended.result else { return Ok(()) };
        self.lost_inputs(ended.task, &live, &tasks, &why)
    }

    /// Gives up the gang of a task that has failed: the results of its other tasks do not count.
    /// The task itself is left to the caller.
    pub(crate) fn break_gang(&mut self, of: u32, why: &str) -> Result<()> {
        let Some(gang) = self.gangs.take(of) else { return Ok(()) };
        let StagePair { sender, receiver } = gang.pair;
        let text = format!("stages {sender} and {receiver} run again and store their rows: {why}");
        self.shared.tracker.note(&text);
        self.not_streamed(gang.pair, BROKEN);
        for (live, ended) in &gang.done {
            self.discarded(ended.task, live, BROKEN);
        }
        let report = ErrorReport::new(Code::WORKER_LOST, why);
        for task in gang.tasks().filter(|task| *task != of) {
            self.cancel(task, BROKEN);
            self.shared.tracker.restarted(task);
            self.further(task, &report)?;
            self.graph.failed(task);
        }
        Ok(())
    }

    /// Gives up a gang for which there is no room: its stages run one after another.
    pub(crate) fn no_room(&mut self, task: u32) {
        let Some(gang) = self.gangs.take(task) else { return };
        for task in gang.tasks() {
            // None of them was asked for.
            self.entries[task as usize].cancel();
            self.graph.failed(task);
            let stage = self.entries[task as usize].stage;
            self.count(stage, |counts| counts.attempts -= 1);
        }
        self.not_streamed(gang.pair, "no room for all tasks at once");
    }

    /// Notes why a pair does not stream.
    fn not_streamed(&self, pair: StagePair, why: &'static str) {
        self.records().not_streamed.insert(pair.sender, why);
    }
}

fn has_failed(ended: &AttemptEnd) -> bool {
    !matches!(ended.result, Some(Ok(_)))
}
