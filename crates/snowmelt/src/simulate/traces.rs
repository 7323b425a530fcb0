//! Calls over time: the replay of a trace for each strategy.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use snowmelt_simulate::{
    Error, Kill, Profile, ReplayPolicy, ReplayProgress as Passed, Replayed, Setting, Strategy,
    TRACE_ASSUMPTIONS, Trace, TraceOrigin, Window, replay,
};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio_util::sync::CancellationToken;

use super::{name, setting, size, strategy, trace_file};
use crate::args::{Application, KillSpec, ListFormat, SimulateArgs, TraceArgs};
use crate::config::Config;
use crate::output::list;
use crate::platform;
use crate::terminal::{CommandFailure, CommandOutcome, Printer, ProgressDisplay, Signals, text};

/// The length of a row of the table over time in JSON, if no other one is asked for.
const EVERY: Duration = Duration::from_secs(60);

/// The time in which a cancelled replay must notice that.
const END_TIMEOUT: Duration = Duration::from_millis(500);

const STRATEGIES: [Strategy; 4] =
    [Strategy::Tree, Strategy::Registry, Strategy::Stripes, Strategy::Pull];

const HEADINGS: [&str; 14] = [
    "strategy",
    ">calls",
    ">not run",
    ">cold starts",
    ">mean wait",
    ">p50",
    ">p90",
    ">p99",
    ">p99.9",
    ">longest",
    ">start of a host",
    ">most hosts",
    ">host-minutes",
    ">registry sent",
];
const LOSS_HEADINGS: [&str; 12] = [
    "strategy",
    ">lost hosts",
    ">joined",
    ">failed",
    ">run again",
    ">placed again",
    ">moves",
    ">p50 around",
    ">p99 around",
    ">longest around",
    ">p99 otherwise",
    ">longest otherwise",
];
const TIME_HEADINGS: [&str; 8] = [
    "strategy",
    ">from",
    ">calls/s",
    ">mean wait",
    ">longest",
    ">cold starts",
    ">hosts",
    ">registry sent",
];

/// The output of `-o json`.
#[derive(Serialize)]
struct ReplayOutput<'a> {
    simulated: bool,
    synthetic: bool,
    trace: String,
    functions: usize,
    assumptions: [&'static str; TRACE_ASSUMPTIONS.len()],
    replays: &'a [Replayed],
}

/// The simulation to run, apart from the command's own arguments.
struct SimulationTask {
    calls: CallSource,
    setting: Setting,
    policy: ReplayPolicy,
    strategies: Vec<Strategy>,
}

enum CallSource {
    File(std::path::PathBuf, Duration),
    Synthetic(Profile, u32, Duration),
}

/// Replays the trace for each strategy.
pub fn run(args: &SimulateArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let (trace, replays) = simulated(task(args)?, config, printer)?;
    show(args, &trace, &replays)?;
    let of = source(&args.calls, &trace);
    printer.note(&format!(
        "simulated, not measured: waits in seconds from the arrival of a call to its start, of {of}, seed {}",
        args.seed
    ));
    if !trace.origin.has_durations() {
        let duration = text::setting(args.calls.duration);
        printer.note(&format!("the trace does not say how long calls take: here {duration}"));
    }
    Ok(0)
}

fn task(args: &SimulateArgs) -> Result<SimulationTask, ErrorReport> {
    let calls = &args.calls;
    let source = match (&calls.replayed.trace, calls.replayed.synthetic) {
        (Some(file), _) => CallSource::File(file.clone(), calls.duration),
        (None, Some(Application::Gaming)) => {
            CallSource::Synthetic(Profile::Gaming, args.functions, calls.duration)
        }
        (None, _) => CallSource::Synthetic(Profile::Iot, args.functions, calls.duration),
    };
    let chosen: Vec<_> = args.strategy.iter().map(|&way| strategy(way)).collect();
    let policy = ReplayPolicy {
        host_memory: calls.host_memory.bytes(),
        memory: calls.memory.bytes(),
        cpu_millis: calls.cpu.0,
        keep_idle: calls.keep_idle,
        reclaim: calls.reclaim,
        patience: calls.patience,
        every: calls.every.unwrap_or(EVERY),
        warm: calls.warm,
        kills: args.kill.iter().map(kill).collect::<Result<_, _>>()?,
        absent: calls.absent.filter(|absent| !absent.is_zero()),
        asynchronous: calls.asynchronous,
    };
    let strategies = if chosen.is_empty() { STRATEGIES.to_vec() } else { chosen };
    Ok(SimulationTask { calls: source, setting: setting(args), policy, strategies })
}

fn kill(spec: &KillSpec) -> Result<Kill, ErrorReport> {
    let hosts = spec.hosts;
    let at = spec.at.ok_or_else(|| {
        let message = format!("--kill {hosts} does not say when the hosts of a trace fail");
        ErrorReport::new(Code::OPTION, message).hint(format!("write --kill {hosts}@10m"))
    })?;
    Ok(Kill { hosts, at })
}

/// Replays in a thread of its own, until it is done or a signal arrives.
fn simulated(
    task: SimulationTask,
    config: &Config,
    printer: Printer,
) -> Result<(Trace, Vec<Replayed>), CommandFailure> {
    let runtime = platform::server_runtime()?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let label = "reading the trace";
        let progress =
            Arc::new(ProgressDisplay::on_terminal(config.progress.value, printer, label));
        let shown = Arc::clone(&progress);
        let stopped = signals.token().clone();
        let mut working = tokio::task::spawn_blocking(move || work(&task, &shown, &stopped));
        let done = tokio::select! {
            biased;
            () = signals.token().cancelled() => {
                // It looks at the token, unless it reads: then nothing is left behind by leaving
                // it.
                let _ = tokio::time::timeout(END_TIMEOUT, working).await;
                return Err(signals.failure());
            }
            done = &mut working => done,
        };
        match done {
            Ok(done) => done.map_err(CommandFailure::from),
            Err(error) => Err(ErrorReport::new(Code::INTERNAL, error.to_string()).into()),
        }
    });
    // A trace that is still being read must not delay the exit.
    runtime.shutdown_background();
    done
}

fn work(
    task: &SimulationTask,
    progress: &ProgressDisplay,
    stopped: &CancellationToken,
) -> Result<(Trace, Vec<Replayed>), ErrorReport> {
    let trace = trace(&task.calls, task.setting.seed)?;
    let length = minutes(trace.length());
    let replayed = |&strategy: &Strategy| {
        let mut passed = |passed: Passed| {
            let now = minutes(passed.now);
            let ended = text::count(passed.ended as u64);
            let calls = passed.calls as u64;
            let calls = text::counted(calls, "call");
            progress
                .set_label(format!("{}: {now} of {length}, {ended} of {calls}", name(strategy)));
            match stopped.is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        replay(&trace, &task.setting, &task.policy, strategy, &mut passed)
    };
    let replays: Result<Vec<_>, Error> = task.strategies.iter().map(replayed).collect();
    let replays = replays.map_err(|error| error.report())?;
    Ok((trace, replays))
}

fn trace(calls: &CallSource, seed: u64) -> Result<Trace, ErrorReport> {
    let read = match calls {
        CallSource::File(path, duration) => {
            Trace::read(&trace_file::name(path), trace_file::open(path)?, *duration)
        }
        CallSource::Synthetic(profile, functions, duration) => {
            Trace::synthetic(*profile, *functions, *duration, seed)
        }
    };
    read.map_err(|error| error.report())
}

fn show(args: &SimulateArgs, trace: &Trace, replays: &[Replayed]) -> Result<(), ErrorReport> {
    let answer = ReplayOutput {
        simulated: true,
        synthetic: trace.origin.is_synthetic(),
        trace: source(&args.calls, trace),
        functions: trace.functions.len(),
        assumptions: TRACE_ASSUMPTIONS,
        replays,
    };
    let totals: Vec<_> = replays.iter().map(row).collect();
    let print =
        |headings: &[&str], rows: &[Vec<String>]| list::print(args.output, headings, rows, &answer);
    let losses: Vec<_> = replays.iter().filter_map(loss_row).collect();
    let print_totals = || match (args.output, losses.is_empty()) {
        (ListFormat::Table, false) => {
            print(&HEADINGS, &totals)?;
            print(&LOSS_HEADINGS, &losses)
        }
        // One file of CSV has one header.
        (ListFormat::Csv, false) => {
            let headings: Vec<_> =
                HEADINGS.into_iter().chain(LOSS_HEADINGS[1..].to_vec()).collect();
            let joined =
                totals.iter().zip(&losses).map(|(total, loss)| [&total[..], &loss[1..]].concat());
            print(&headings, &joined.collect::<Vec<_>>())
        }
        _ => print(&HEADINGS, &totals),
    };
    let Some(every) = args.calls.every.filter(|_| args.output != ListFormat::Json) else {
        return print_totals();
    };
    let windows = |replay: &Replayed| {
        let strategy = replay.strategy;
        replay.windows.iter().map(|window| time_row(strategy, window, every)).collect::<Vec<_>>()
    };
    let rows: Vec<_> = replays.iter().flat_map(windows).collect();
    print(&TIME_HEADINGS, &rows)?;
    // One file of CSV has one header.
    match args.output {
        ListFormat::Table => print_totals(),
        _ => Ok(()),
    }
}

fn row(replay: &Replayed) -> Vec<String> {
    let wait = &replay.wait;
    let waits = [wait.mean, wait.p50, wait.p90, wait.p99, wait.p999, wait.most];
    let mut cells = vec![
        name(replay.strategy).to_owned(),
        replay.calls.to_string(),
        (replay.calls - replay.ran).to_string(),
        replay.cold_starts.to_string(),
    ];
    cells.extend(waits.map(|seconds| format!("{seconds:.3}")));
    cells.extend([
        format!("{:.3}", replay.provisioning.p50),
        replay.most_hosts.to_string(),
        format!("{:.0}", replay.host_minutes),
        size(replay.registry_bytes as f64 / 1e6),
    ]);
    cells
}

fn loss_row(replay: &Replayed) -> Option<Vec<String>> {
    let losses = replay.losses.as_ref()?;
    let around = &losses.response_around;
    let otherwise = &losses.response_otherwise;
    let times = [around.p50, around.p99, around.most, otherwise.p99, otherwise.most];
    let mut cells = vec![
        name(replay.strategy).to_owned(),
        losses.hosts.to_string(),
        losses.joined.to_string(),
        losses.failed.to_string(),
        losses.run_again.to_string(),
        losses.placed_again.to_string(),
        replay.moves.to_string(),
    ];
    cells.extend(times.map(|seconds| format!("{seconds:.3}")));
    Some(cells)
}

fn time_row(strategy: Strategy, window: &Window, every: Duration) -> Vec<String> {
    vec![
        name(strategy).to_owned(),
        minutes(Duration::from_secs_f64(window.start)),
        format!("{:.1}", window.arrived as f64 / every.as_secs_f64()),
        format!("{:.3}", window.wait_mean),
        format!("{:.3}", window.wait_most),
        window.cold_starts.to_string(),
        window.hosts.to_string(),
        size(window.registry_bytes as f64 / 1e6),
    ]
}

/// The origin of the calls, in words.
fn source(args: &TraceArgs, trace: &Trace) -> String {
    match (&args.replayed.trace, trace.origin) {
        (Some(file), _) => trace_file::name(file),
        (None, TraceOrigin::SyntheticGaming) => {
            "a synthetic trace after FaaSNet's gaming application".to_owned()
        }
        (None, _) => "a synthetic trace after FaaSNet's IoT application".to_owned(),
    }
}

/// Minutes and seconds, for example `12:05`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
