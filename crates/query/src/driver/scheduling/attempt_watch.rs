//! Looks for attempts that are slow or silent. A slow one gets a second attempt that races it, and
//! a silent one is given up as lost.

use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::MAX_FURTHER_ATTEMPTS;

use super::stragglers::{Sample, TwinCandidate, has_quorum, most_twins, slow};
use super::{AttemptRuns, Board};
use crate::Result;
use crate::driver::tasks::{How, Live, TaskAttempts};

/// The most attempts of one task that race another one.
const MAX_TWINS: u32 = 4;

impl<'q> Board<'q> {
    /// Looks for slow and silent attempts. To be called several times a second.
    pub(crate) fn look(&mut self, running: &mut AttemptRuns<'q>) -> Result<()> {
        self.end_silent()?;
        self.end_broken()?;
        if self.options.stragglers.racing && !self.waits_for_workers() {
            for stage in 0..self.query.cut.stages.len() {
                self.race(stage, running);
            }
        }
        Ok(())
    }

    /// Gives up attempts whose workers report nothing any more.
    fn end_silent(&mut self) -> Result<()> {
        let limit = self.options.stragglers.silence;
        let mut silent = Vec::new();
        for (task, entry) in self.entries.iter().enumerate() {
            let silence = |live: &&Live| live.clock.silent_for();
            let is_silent = |live: &&Live| silence(live).is_some_and(|silence| silence > limit);
            silent.extend(entry.live.iter().filter(is_silent).map(|live| (task, live.id)));
        }
        for (task, id) in silent {
            let Some(live) = self.entries[task].ended(id) else { continue };
            live.cancel();
            let seconds = limit.as_secs_f64();
            let message = format!("the worker of task {task} reported nothing for {seconds} s");
            self.lost(task as u32, &live, ErrorReport::new(Code::WORKER_LOST, message))?;
        }
        Ok(())
    }

    /// True if an attempt waits for room or for its worker: then there is no room to spare for
    /// races.
    fn waits_for_workers(&self) -> bool {
        let mut live = self.entries.iter().flat_map(|entry| &entry.live);
        live.any(|live| live.clock.runs_for().is_none())
            || self.query.accepted.elapsed() < self.no_race_before
    }

    /// Starts a second attempt for each slow task of a stage.
    fn race(&mut self, stage: usize, running: &mut AttemptRuns<'q>) {
        let tasks = self.graph.tasks_of(stage);
        let rules = self.options.stragglers;
        let done = tasks.len() - self.graph.open(stage);
        if !has_quorum(&rules, tasks.len(), done) {
            return;
        }
        let entries = &self.entries[tasks.start as usize..tasks.end as usize];
        let done: Vec<Sample> = entries.iter().filter_map(sample).collect();
        let racing = entries.iter().filter(|entry| entry.live.len() > 1).count();
        let mut candidates: Vec<TwinCandidate> = entries.iter().filter_map(candidate).collect();
        candidates.retain(|candidate| self.may_race(stage, candidate.task));
        let most = most_twins(tasks.len()).saturating_sub(racing);
        for task in slow(&rules, &done, &candidates).into_iter().take(most) {
            self.entries[task as usize].twins += 1;
            self.count(stage, |counts| counts.twins += 1);
            let text = format!("task {task} is slow: a second attempt is started");
            self.shared.tracker.note(&text);
            self.try_task(task, How::Twin, running);
        }
    }

    /// True if a task may have a second attempt while nothing is wrong. A function of the user may
    /// have effects, so it is not called twice for the same rows. Rows that are passed on at once
    /// can be given by one attempt only.
    fn may_race(&self, stage: usize, task: u32) -> bool {
        let entry = &self.entries[task as usize];
        let queue = self.query.cut.stages[stage].queue();
        entry.planned.udfs.is_empty()
            && queue.is_none_or(|queue| !queue.is_streaming())
            && entry.twins < MAX_TWINS
            && entry.further + entry.twins < MAX_FURTHER_ATTEMPTS
            && self.graph.can_read(task)
            && !self.gangs.holds(task)
    }
}

fn sample(entry: &TaskAttempts) -> Option<Sample> {
    Some(Sample { work: entry.planned.work(), took: entry.took? })
}

/// A task with a single attempt, which runs.
fn candidate(entry: &TaskAttempts) -> Option<TwinCandidate> {
    let [live] = entry.live.as_slice() else { return None };
    let runs_for = live.clock.runs_for()?;
    Some(TwinCandidate { task: entry.planned.task, work: entry.planned.work(), runs_for })
}
