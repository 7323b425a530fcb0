//! The progress display on stderr.
//!
//! Invariant: nothing is drawn in the first 300 ms, and the terminal is clear once the display is
//! dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use snowmelt_api::{Event, Phase, Progress as Metrics};
use snowmelt_types::ByteSize;
use tokio::task::JoinHandle;

use super::printer::Printer;
use super::text;
use crate::args::ProgressMode;

const SHOW_AFTER: Duration = Duration::from_millis(300);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between the first two lines in a log; each pause doubles, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The rest of the line is cut at the width of the terminal: a line that wraps cannot be redrawn.
const TEMPLATE: &str = "{spinner:.cyan} {bar:20.cyan/dim} {wide_msg}";
/// Length of the bar.
const STEPS: u64 = 1000;

/// A progress display. Must be created inside a runtime.
pub struct ProgressDisplay {
    shared: Arc<DisplayState>,
    ticker: Option<JoinHandle<()>>,
}

struct DisplayState {
    state: Mutex<State>,
    bar: ProgressBar,
    printer: Printer,
}

#[derive(Debug)]
struct State {
    began: Instant,
    label: String,
    phase: Option<Phase>,
    metrics: Metrics,
}

impl ProgressDisplay {
    /// Starts the display; `label` is shown until the first phase begins.
    pub fn start(mode: ProgressMode, printer: Printer, label: impl Into<String>) -> Self {
        let phase = None;
        let metrics = Metrics::default();
        let state = State { began: Instant::now(), label: label.into(), phase, metrics };
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        let shared = Arc::new(DisplayState { state: Mutex::new(state), bar, printer });
        let ticker = match mode {
            ProgressMode::Quiet => None,
            ProgressMode::Tty | ProgressMode::Auto if printer.terminal() => {
                Some(tokio::spawn(draw(shared.clone())))
            }
            _ => Some(tokio::spawn(print(shared.clone()))),
        };
        Self { shared, ticker }
    }

    /// Starts a display only on a terminal: a short command adds no lines to a log.
    pub fn on_terminal(mode: ProgressMode, printer: Printer, label: impl Into<String>) -> Self {
        let mode = match mode {
            ProgressMode::Auto if !printer.terminal() => ProgressMode::Quiet,
            mode => mode,
        };
        Self::start(mode, printer, label)
    }

    /// Changes the label, for work without phases.
    pub fn set_label(&self, label: impl Into<String>) {
        self.shared.state().label = label.into();
    }

    /// Shows an event of the query.
    pub fn event(&self, event: Event) {
        match event {
            Event::Accepted { .. } => {}
            Event::Phase { phase } => self.shared.state().phase = Some(phase),
            Event::Progress(metrics) => self.shared.state().metrics = metrics,
            Event::Printed { function, text } => {
                text.lines().for_each(|line| self.note(&format!("{function}: {line}")));
            }
            Event::Note { text } => self.note(&text),
        }
    }
}

impl ProgressDisplay {
    fn note(&self, text: &str) {
        let DisplayState { bar, printer, .. } = &*self.shared;
        bar.suspend(|| printer.note(text));
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(ticker) = self.ticker.take() {
            ticker.abort();
        }
        self.shared.bar.finish_and_clear();
        // The ticker may still be drawing on another thread.
        self.shared.bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

impl DisplayState {
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

async fn draw(shared: Arc<DisplayState>) {
    tokio::time::sleep(SHOW_AFTER).await;
    let style = ProgressStyle::with_template(TEMPLATE)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ")
        .progress_chars("━╸─");
    shared.bar.set_style(style);
    shared.update_bar();
    shared.bar.set_draw_target(ProgressDrawTarget::stderr());
    let mut due = tokio::time::interval(REDRAW_INTERVAL);
    loop {
        due.tick().await;
        shared.update_bar();
        shared.bar.tick();
    }
}

async fn print(shared: Arc<DisplayState>) {
    tokio::time::sleep(SHOW_AFTER).await;
    let mut pause = FIRST_PAUSE;
    loop {
        let line = shared.state().line();
        shared.printer.line(&line);
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

/// Returns the next pause, which keeps the log of a query of an hour short.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

impl State {
    /// Completed share, from 0 to 1. Bytes alone would stay below 1, because columns and row groups
    /// that the query does not need are never read.
    fn share(&self) -> f64 {
        let part = |done: u64, all: u64| if all == 0 { 0.0 } else { done as f64 / all as f64 };
        let metrics = &self.metrics;
        part(metrics.done.into(), metrics.tasks.into())
            .max(part(metrics.bytes, metrics.bytes_total))
            .min(1.0)
    }

    fn line(&self) -> String {
        let metrics = &self.metrics;
        let mut parts = vec![self.activity()];
        if metrics.tasks > 0 {
            let done = metrics.done;
            let tasks = metrics.tasks;
            let running = metrics.running;
            parts.push(format!("{done} of {tasks} tasks, {running} running"));
        }
        if metrics.cold + metrics.warm > 0 {
            parts.push(format!("{} cold, {} warm", metrics.cold, metrics.warm));
        }
        if metrics.bytes_total > 0 {
            // Footers are read twice, and do not count in the total.
            let all = metrics.bytes_total;
            parts.push(format!("{} of {}", ByteSize(metrics.bytes.min(all)), ByteSize(all)));
        }
        if metrics.rows > 0 {
            parts.push(text::counted(metrics.rows, "row"));
        }
        if metrics.udf_rows > 0 {
            parts.push(format!("{} in UDFs", text::count(metrics.udf_rows)));
        }
        parts.push(format!("{:.1} s", self.began.elapsed().as_secs_f64()));
        parts.join(" · ")
    }

    fn activity(&self) -> String {
        match self.phase {
            None => self.label.clone(),
            Some(Phase::Packages) => "resolving packages".to_owned(),
            Some(Phase::Plan) => "planning".to_owned(),
            Some(Phase::Start) if self.metrics.tasks > 0 => {
                format!("starting {}", text::counted(self.metrics.tasks.into(), "worker"))
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

    fn state(phase: Option<Phase>, metrics: Metrics) -> State {
        State { began: Instant::now(), label: "connecting".into(), phase, metrics }
    }

    #[test]
    fn the_line_shows_phase_tasks_bytes_and_rows() {
        let metrics = Metrics {
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
        let line = state(Some(Phase::Run), metrics).line();
        let expected = "running · 3 of 8 tasks, 5 running · 8 cold, 0 warm · 60 MiB of 125 MiB · \
                        1,200,000 rows · 40,000 in UDFs · ";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn bytes_read_are_capped_at_the_total() {
        let metrics = Metrics { bytes: 40 << 20, bytes_total: 39 << 20, ..Metrics::default() };
        let line = state(Some(Phase::Run), metrics).line();
        assert!(line.contains("39 MiB of 39 MiB"), "{line}");
    }

    /// A terminal that keeps what is written.
    #[derive(Clone, Debug, Default)]
    struct Narrow(Arc<Mutex<String>>);

    impl indicatif::TermLike for Narrow {
        fn width(&self) -> u16 {
            40
        }
        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> std::io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> std::io::Result<()> {
            self.write_str("\n")
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_is_cut_at_the_width_of_the_terminal() {
        let terminal = Narrow::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        bar.set_style(ProgressStyle::with_template(TEMPLATE).unwrap());
        bar.set_message("running · 3 of 8 tasks, 5 running · 8 cold, 0 warm · 60 MiB of 125 MiB");
        bar.tick();
        let shown = terminal.0.lock().unwrap().clone();
        assert!(shown.contains("running"), "{shown:?}");
        let widest = shown.lines().map(|line| console_width(line.trim_end())).max();
        assert!(widest.is_some_and(|width| width <= 40), "{shown:?}");
    }

    /// The width of a line without the sequences of colours.
    fn console_width(line: &str) -> usize {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or_default().chars().count();
        let rest =
            parts.map(|part| part.split_once('m').map_or(0, |parts| parts.1.chars().count()));
        first + rest.sum::<usize>()
    }

    #[test]
    fn the_log_of_an_hour_has_few_lines() {
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
        assert!(state(None, Metrics::default()).line().starts_with("connecting · "));
        let metrics = Metrics { tasks: 1, ..Metrics::default() };
        assert_eq!(state(Some(Phase::Start), metrics).activity(), "starting 1 worker");
    }

    #[test]
    fn the_bar_is_full_when_all_tasks_end_even_if_bytes_were_pruned() {
        let metrics =
            Metrics { tasks: 4, done: 4, bytes: 1, bytes_total: 100, ..Metrics::default() };
        assert_eq!(state(Some(Phase::Run), metrics).share(), 1.0);
    }
}
