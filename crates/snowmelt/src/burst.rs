//! `snowmelt fn burst`: concurrent calls of a deployed function, with one line of output for each.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use snowmelt_api::{BurstAnswer, BurstCalls, Invocation, NetworkRequest};
use snowmelt_types::{Code, ErrorReport, InvocationId};

use crate::args::BurstArgs;
use crate::config::Config;
use crate::failure::Outcome;
use crate::functions::{Shown, event, parse_event, value, with_platform};
use crate::printer::{self, Printer};
use crate::{input, list, text};

/// Default time limit for the start of all functions.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// One function of a burst, as it is printed.
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
pub fn run(args: &BurstArgs, config: &Config, printer: Printer) -> Outcome {
    let calls = calls(args)?;
    let label = format!("{} of {}", text::counted(calls.events.len() as u64, "call"), args.name);
    let answer = with_platform(&args.platform, config, printer, &label, async |client| {
        client.burst_deployed(&args.name, &calls).await
    })?;
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
        None => vec![event(args.data.as_deref())?; args.functions.unwrap_or(1) as usize],
    };
    let start_within = args.start_within.unwrap_or(START_TIMEOUT);
    Ok(BurstCalls {
        events,
        start_within_ms: u64::try_from(start_within.as_millis()).unwrap_or(u64::MAX),
        network: args.network.then(NetworkRequest::default),
        most_hosts: args.hosts,
    })
}

/// One event per line; empty lines are skipped.
fn events(file: &Path) -> Result<Vec<Box<RawValue>>, ErrorReport> {
    let text = match file == Path::new("-") {
        true => input::stdin("events", "name their file with --events", true)?,
        false => input::file(file)?,
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let events: Vec<_> = lines.map(parse_event).collect::<Result<_, _>>()?;
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
            result: invocation.result.as_ref().map(value),
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

/// The first error; the errors of ranks that were ended because another failed come last.
fn first_failure(invocations: Vec<Invocation>) -> Option<ErrorReport> {
    let mut errors: Vec<_> = invocations.into_iter().filter_map(|one| one.error).collect();
    errors.sort_by_key(|error| error.code == Code::RANK_ENDED.code);
    errors.into_iter().next()
}
