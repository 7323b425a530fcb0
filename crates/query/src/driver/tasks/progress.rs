//! Sums the progress of all tasks for the user.

use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_wire::TaskProgress;

use crate::driver::runner::OnProgress;
use crate::driver::{Reporter, RunProgress};

/// The progress of the tasks of a query. A stage counts as one task until it begins.
pub(crate) struct ProgressTracker {
    reporter: Arc<dyn Reporter>,
    bytes_total: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: Vec<TaskProgress>,
    stages_left: u32,
    done: u32,
}

impl ProgressTracker {
    pub(crate) fn new(stages: usize, bytes_total: u64, reporter: Arc<dyn Reporter>) -> Self {
        let state = Mutex::new(State { stages_left: stages as u32, ..State::default() });
        let tracker = Self { reporter, bytes_total, state };
        tracker.update(|_| ());
        tracker
    }

    /// Notes that a stage begins with `tasks` tasks.
    pub(crate) fn begin(&self, tasks: usize) {
        self.update(|state| {
            state.stages_left -= 1;
            state.tasks.resize(state.tasks.len() + tasks, TaskProgress::default());
        });
    }

    pub(crate) fn callback(self: &Arc<Self>, task: u32) -> OnProgress {
        let tracker = Arc::clone(self);
        Arc::new(move |progress| tracker.update(|state| state.set(task, progress.clone())))
    }

    pub(crate) fn done(&self, task: u32, progress: &TaskProgress) {
        self.update(|state| {
            state.set(task, progress.clone());
            state.done += 1;
        });
    }

    /// Discards the progress of a lost attempt.
    pub(crate) fn retried(&self, task: u32, why: &str) {
        self.update(|state| state.set(task, TaskProgress::default()));
        self.reporter.note(&format!("task {task} is retried: {why}"));
    }

    /// Discards the progress of an attempt without a note to the user: another task is the reason.
    pub(crate) fn restarted(&self, task: u32) {
        self.update(|state| state.set(task, TaskProgress::default()));
    }

    /// Discards the progress of a task that was done: it runs again.
    pub(crate) fn again(&self, task: u32, why: &str) {
        self.update(|state| {
            state.set(task, TaskProgress::default());
            state.done -= 1;
        });
        self.reporter.note(&format!("task {task} is run again: {why}"));
    }

    /// Passes a note on to the user.
    pub(crate) fn note(&self, text: &str) {
        self.reporter.note(text);
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let progress = state.sum(self.bytes_total);
        drop(state);
        self.reporter.progress(progress);
    }
}

impl State {
    fn set(&mut self, task: u32, progress: TaskProgress) {
        if let Some(entry) = self.tasks.get_mut(task as usize) {
            *entry = progress;
        }
    }

    fn sum(&self, bytes_total: u64) -> RunProgress {
        let begun = self.tasks.len() as u32;
        let sum = |of: fn(&TaskProgress) -> u64| self.tasks.iter().map(of).sum();
        RunProgress {
            tasks: begun + self.stages_left,
            running: begun - self.done,
            done: self.done,
            rows: sum(|task| task.rows_read),
            bytes: sum(|task| task.bytes_read),
            bytes_total,
            udf_rows: sum(|task| task.udf_rows),
        }
    }
}
