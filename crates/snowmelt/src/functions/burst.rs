//! `snowmelt fn burst`: concurrent calls of a deployed function, with one line of output for each;
//! `snowmelt burst`: the bursts that run, and those whose outcomes are kept.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use snowmelt_api::{
    BurstAnswer, BurstCalls, BurstRoom, BurstState, BurstStatus, Invocation, NetworkRequest,
};
use snowmelt_control::client::ApiClient;
use snowmelt_types::{ByteSize, Code, ErrorReport, InvocationId, JobId};

use super::answer::{self, Shown};
use crate::args::{BurstArgs, BurstCommand, BurstLsArgs, PlatformArgs};
use crate::config::Config;
use crate::input;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay, printer, text};

/// Default time limit for the start of all functions.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Default time that a burst goes on without its command.
const CLIENT_RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Default time that a burst which was started with `--async` goes on without a command.
const UNATTENDED: Duration = Duration::from_secs(24 * 3600);

/// The interval at which the progress of a burst is requested.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// The output for one function of a burst.
#[derive(Serialize)]
struct Line<'a> {
    rank: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<&'a str>,
}

/// Runs a burst and prints its results.
///
/// # Errors
/// Errors of the platform, `SM-0222` for events, and the first failure of a function once all
/// lines are printed.
pub fn run(args: &BurstArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let calls = calls(args)?;
    let label = format!("{} of {}", text::counted(calls.events.len() as u64, "call"), args.name);
    if args.asynchronous {
        return start(args, calls, config, printer);
    }
    let job = JobId::new();
    let platform = CommandPlatform::find(&args.platform, config)?;
    let done = platform::with(platform, printer, async |client, _| {
        let progress = ProgressDisplay::on_terminal(config.progress.value, printer, label.as_str());
        let answer = client.burst_deployed(&args.name, &job, calls);
        until_answered(client, &job, &label, &progress, answer).await
    });
    if done.as_ref().is_err_and(|failure| failure.report.code == Code::CANCELLED.code) {
        cancel(&args.platform, config, printer, &job);
    }
    print(done?, printer)
}

/// Runs one of the commands of `snowmelt burst`.
///
/// # Errors
/// `SM-0503` if no platform is running, `SM-0707` for an unknown burst; those of the burst.
pub fn manage(command: &BurstCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        BurstCommand::Ls(args) => ls(args, config, printer),
        BurstCommand::Wait(args) => {
            let platform = CommandPlatform::server(args.server.as_deref(), config)?;
            let waiting = platform::with(platform, printer, async |client, _| {
                let label = args.job.as_str();
                let progress = ProgressDisplay::on_terminal(config.progress.value, printer, label);
                let answer = client.wait_for_burst(&args.job);
                until_answered(client, &args.job, label, &progress, answer).await
            });
            print(waiting?, printer)
        }
        BurstCommand::Cancel(args) => {
            let platform = CommandPlatform::server(args.server.as_deref(), config)?;
            platform::with(platform, printer, async |client, _| {
                client.remove_burst(&args.job).await
            })?;
            Ok(0)
        }
    }
}

/// Waits for the answer of a burst, and shows meanwhile what the burst waits for.
async fn until_answered(
    client: &ApiClient,
    job: &JobId,
    label: &str,
    progress: &ProgressDisplay,
    answer: impl Future<Output = Result<BurstAnswer, ErrorReport>>,
) -> Result<BurstAnswer, ErrorReport> {
    tokio::select! {
        answer = answer => answer,
        never = show_waits(client, job, label, progress) => match never {},
    }
}

async fn show_waits(
    client: &ApiClient,
    job: &JobId,
    label: &str,
    progress: &ProgressDisplay,
) -> Infallible {
    loop {
        tokio::time::sleep(SHOWN_EVERY).await;
        // Without an answer the display stays as it is.
        if let Ok(BurstStatus { waits_for, .. }) = client.burst(job).await {
            progress.set_label(match waits_for {
                Some(room) => format!("{label} · waits for room: {}", shown_room(room)),
                None => label.to_owned(),
            });
        }
    }
}

fn shown_room(BurstRoom { needed, free, hosts }: BurstRoom) -> String {
    let hosts = text::counted(hosts.into(), "host");
    format!("{} needed, {} free on {hosts}", ByteSize(needed), ByteSize(free))
}

fn start(args: &BurstArgs, calls: BurstCalls, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.platform.server.as_deref(), config)?;
    let started = platform::with(platform, printer, async |client, _| {
        client.start_burst(&args.name, calls).await
    })?;
    printer::print(&format!("{}\n", started.job))?;
    Ok(0)
}

fn ls(args: &BurstLsArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let bursts = platform::with(platform, printer, async |client, _| client.bursts().await)?;
    let headings = ["job", "function", "state", ">ended", ">functions", "hosts", "since"];
    let rows: Vec<_> = bursts.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &bursts)?;
    if bursts.is_empty() {
        printer.note("no burst is running, and no outcome is kept");
    }
    Ok(0)
}

fn row(burst: &BurstStatus) -> Vec<String> {
    let hosts: Vec<_> = burst.hosts.iter().map(|host| host.as_str()).collect();
    let state = match burst.state {
        BurstState::Waiting => "waiting",
        BurstState::Starting => "starting",
        BurstState::Running => "running",
        BurstState::Ended => "ended",
        BurstState::Failed => "failed",
    };
    vec![
        burst.job.to_string(),
        burst.function.to_string(),
        state.to_owned(),
        burst.ended.to_string(),
        burst.functions.to_string(),
        hosts.join(" "),
        text::moment(burst.since_ms),
    ]
}

/// Ends a burst whose command was interrupted; an embedded platform has ended with it.
fn cancel(platform: &PlatformArgs, config: &Config, printer: Printer, job: &JobId) {
    if platform.embedded {
        return;
    }
    let platform = CommandPlatform::server(platform.server.as_deref(), config);
    let Ok(platform) = platform else { return };
    // A server that is gone ends the burst by itself.
    drop(platform::with(platform, printer, async |client, _| client.remove_burst(job).await));
}

fn print(answer: BurstAnswer, printer: Printer) -> CommandOutcome {
    printer::print(&lines(&answer)?)?;
    printer.note(&summary(&answer));
    match first_failure(answer.invocations) {
        Some(error) => Err(error.into()),
        None => Ok(0),
    }
}

fn calls(args: &BurstArgs) -> Result<BurstCalls, ErrorReport> {
    let events = match &args.events {
        Some(file) => events(file)?,
        None => vec![input::event(args.data.as_deref())?; args.functions.unwrap_or(1) as usize],
    };
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let unattended = if args.asynchronous { UNATTENDED } else { CLIENT_RETURN_TIMEOUT };
    Ok(BurstCalls {
        events,
        start_within_ms: milliseconds(args.start_within.unwrap_or(START_TIMEOUT)),
        network: args.network.then(NetworkRequest::default),
        most_hosts: args.hosts,
        job: None,
        asynchronous: false,
        claim_within_ms: milliseconds(args.unattended.unwrap_or(unattended)),
    })
}

/// Reads events from a file, one on each line; empty lines are skipped.
fn events(file: &Path) -> Result<Vec<Box<RawValue>>, ErrorReport> {
    let text = match file == Path::new("-") {
        true => input::stdin("events", "name their file with --events", true)?,
        false => input::file(file)?,
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let events: Vec<_> = lines.map(input::parse_event).collect::<Result<_, _>>()?;
    match events.is_empty() {
        true => Err(ErrorReport::new(Code::FUNCTION_EVENT, "no events were given")
            .hint("write one JSON value on each line")),
        false => Ok(events),
    }
}

fn lines(answer: &BurstAnswer) -> Result<String, ErrorReport> {
    let logs = answer.logs.iter().map(|entry| (&entry.invocation, entry.text.as_str()));
    let logs: HashMap<&InvocationId, &str> = logs.collect();
    let line = |(rank, invocation): (usize, &Invocation)| {
        list::line(&Line {
            rank,
            result: invocation.result.as_ref().map(answer::value),
            error: invocation.error.as_ref(),
            log: logs.get(&invocation.id).copied(),
        })
    };
    answer.invocations.iter().enumerate().map(line).collect()
}

fn summary(answer: &BurstAnswer) -> String {
    let failed = answer.invocations.iter().filter(|one| one.error.is_some()).count();
    let failed = if failed == 0 { String::new() } else { format!(" · {failed} failed") };
    format!(
        "{} · {} on {} · started in {} · {}{failed}",
        answer.job,
        text::counted(answer.invocations.len() as u64, "function"),
        text::counted(answer.hosts.len() as u64, "host"),
        text::micros(answer.started_us),
        text::micros(answer.wall_us),
    )
}

/// Returns the first error. Errors of ranks that were ended because another failed come last.
fn first_failure(invocations: Vec<Invocation>) -> Option<ErrorReport> {
    let mut errors: Vec<_> = invocations.into_iter().filter_map(|one| one.error).collect();
    errors.sort_by_key(|error| error.code == Code::RANK_ENDED.code);
    errors.into_iter().next()
}
