//! How far the work is, on stderr.
//!
//! Invariant: nothing is drawn in the first 300 ms, and nothing of it is left on the terminal once
//! the display is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use snowmelt_api::{Event, Phase, Progress as Figures};
use snowmelt_types::ByteSize;
use tokio::task::JoinHandle;

use crate::args::ProgressMode;
use crate::printer::Printer;
use crate::text;

const QUIET_FOR: Duration = Duration::from_millis(300);
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// Between the first two lines in a log; each pause is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// A progress display. Must be made inside a runtime.
pub struct Progress {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    bar: ProgressBar,
    printer: Printer,
}

#[derive(Debug)]
struct State {
    began: Instant,
    label: String,
    phase: Option<Phase>,
    figures: Figures,
}

impl Progress {
    /// Starts the display; `label` is shown until the first phase begins.
    pub fn start(mode: ProgressMode, printer: Printer, label: impl Into<String>) -> Self {
        let (phase, figures) = (None, Figures::default());
        let state = State { began: Instant::now(), label: label.into(), phase, figures };
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        let shared = Arc::new(Shared { state: Mutex::new(state), bar, printer });
        let ticker = match mode {
            ProgressMode::Quiet => None,
            ProgressMode::Tty | ProgressMode::Auto if printer.terminal() => {
                Some(tokio::spawn(draw(shared.clone())))
            }
            _ => Some(tokio::spawn(print(shared.clone()))),
        };
        Self { shared, ticker }
    }

    /// Starts a display only where someone watches: a short command adds no line to a log.
    pub fn watched(mode: ProgressMode, printer: Printer, label: impl Into<String>) -> Self {
        let mode = match mode {
            ProgressMode::Auto if !printer.terminal() => ProgressMode::Quiet,
            mode => mode,
        };
        Self::start(mode, printer, label)
    }

    /// Says what is being done, where there are no phases.
    pub fn doing(&self, label: impl Into<String>) {
        self.shared.state().label = label.into();
    }

    /// Takes what happened.
    pub fn event(&self, event: Event) {
        match event {
            Event::Accepted { .. } => {}
            Event::Phase { phase } => self.shared.state().phase = Some(phase),
            Event::Progress(figures) => self.shared.state().figures = figures,
            Event::Note { text } => {
                let Shared { bar, printer, .. } = &*self.shared;
                bar.suspend(|| printer.note(&text));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(ticker) = self.ticker.take() {
            ticker.abort();
        }
        self.shared.bar.finish_and_clear();
        // The ticker may be in the middle of its last step on another thread.
        self.shared.bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_bar(&self) {
        let (share, line) = {
            let state = self.state();
            (state.share(), state.line())
        };
        self.bar.set_position((share * STEPS as f64) as u64);
        self.bar.set_message(line);
    }
}

async fn draw(shared: Arc<Shared>) {
    tokio::time::sleep(QUIET_FOR).await;
    let template = "{spinner:.cyan} {bar:20.cyan/dim} {msg}";
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ")
        .progress_chars("━╸─");
    shared.bar.set_style(style);
    shared.update_bar();
    shared.bar.set_draw_target(ProgressDrawTarget::stderr());
    let mut due = tokio::time::interval(DRAWN_EVERY);
    loop {
        due.tick().await;
        shared.update_bar();
        shared.bar.tick();
    }
}

async fn print(shared: Arc<Shared>) {
    tokio::time::sleep(QUIET_FOR).await;
    let mut pause = FIRST_PAUSE;
    loop {
        let line = shared.state().line();
        shared.printer.line(&line);
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

/// A log of an hour needs no line for each second.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

impl State {
    /// How much is done, from 0 to 1. Bytes alone would end early, because columns and row groups
    /// that nobody needs are never read.
    fn share(&self) -> f64 {
        let part = |done: u64, all: u64| if all == 0 { 0.0 } else { done as f64 / all as f64 };
        let figures = &self.figures;
        part(figures.done.into(), figures.tasks.into())
            .max(part(figures.bytes, figures.bytes_total))
            .min(1.0)
    }

    fn line(&self) -> String {
        let figures = &self.figures;
        let mut parts = vec![self.doing()];
        if figures.tasks > 0 {
            let (done, tasks, running) = (figures.done, figures.tasks, figures.running);
            parts.push(format!("{done} of {tasks} tasks, {running} running"));
        }
        if figures.cold + figures.warm > 0 {
            parts.push(format!("{} cold, {} warm", figures.cold, figures.warm));
        }
        if figures.bytes_total > 0 {
            // Footers are read twice, and are no part of what there is to scan.
            let all = figures.bytes_total;
            parts.push(format!("{} of {}", ByteSize(figures.bytes.min(all)), ByteSize(all)));
        }
        if figures.rows > 0 {
            parts.push(text::counted(figures.rows, "row"));
        }
        if figures.udf_rows > 0 {
            parts.push(format!("{} in UDFs", text::count(figures.udf_rows)));
        }
        parts.push(format!("{:.1} s", self.began.elapsed().as_secs_f64()));
        parts.join(" · ")
    }

    fn doing(&self) -> String {
        match self.phase {
            None => self.label.clone(),
            Some(Phase::Packages) => "resolving packages".to_owned(),
            Some(Phase::Plan) => "planning".to_owned(),
            Some(Phase::Start) if self.figures.tasks > 0 => {
                format!("starting {}", text::counted(self.figures.tasks.into(), "worker"))
            }
            Some(Phase::Start) => "starting workers".to_owned(),
            Some(Phase::Run) => "running".to_owned(),
            Some(Phase::Merge) => "merging".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: Option<Phase>, figures: Figures) -> State {
        State { began: Instant::now(), label: "connecting".into(), phase, figures }
    }

    #[test]
    fn says_what_runs_and_how_far_it_is() {
        let figures = Figures {
            tasks: 8,
            running: 5,
            done: 3,
            cold: 8,
            warm: 0,
            rows: 1_200_000,
            bytes: 60 << 20,
            bytes_total: 125 << 20,
            udf_rows: 40_000,
        };
        let line = state(Some(Phase::Run), figures).line();
        let expected = "running · 3 of 8 tasks, 5 running · 8 cold, 0 warm · 60 MiB of 125 MiB · \
                        1,200,000 rows · 40,000 in UDFs · ";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn no_more_is_read_than_there_is() {
        let figures = Figures { bytes: 40 << 20, bytes_total: 39 << 20, ..Figures::default() };
        let line = state(Some(Phase::Run), figures).line();
        assert!(line.contains("39 MiB of 39 MiB"), "{line}");
    }

    #[test]
    fn an_hour_is_told_in_few_lines() {
        let pauses = std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause)));
        let moments = pauses.scan(Duration::ZERO, |at, pause| {
            *at += pause;
            Some(*at)
        });
        let lines = moments.take_while(|at| *at < Duration::from_secs(3600)).count();
        assert!((50..80).contains(&lines), "{lines}");
    }

    #[test]
    fn names_each_phase() {
        assert!(state(None, Figures::default()).line().starts_with("connecting · "));
        let figures = Figures { tasks: 1, ..Figures::default() };
        assert_eq!(state(Some(Phase::Start), figures).doing(), "starting 1 worker");
    }

    #[test]
    fn pruned_bytes_do_not_hold_the_bar_back() {
        let figures =
            Figures { tasks: 4, done: 4, bytes: 1, bytes_total: 100, ..Figures::default() };
        assert_eq!(state(Some(Phase::Run), figures).share(), 1.0);
    }
}
