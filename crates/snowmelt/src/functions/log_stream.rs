//! `snowmelt fn logs --follow`: prints what calls of a function write, as they end, until Ctrl-C.
//!
//! Invariant: each call is shown once, in the order in which they ended.

use std::collections::HashSet;
use std::time::Duration;

use snowmelt_api::LogEntry;
use snowmelt_control::client::ApiClient;
use snowmelt_types::{Code, ErrorReport, InvocationId};

use super::logs;
use crate::args::LogArgs;
use crate::config::Config;
use crate::platform::{self, CommandPlatform};
use crate::server;
use crate::terminal::{CommandOutcome, Printer};

/// The interval between two requests to the server.
const ASKED_EVERY: Duration = Duration::from_millis(500);

/// The greatest number of calls that can end between two requests without one being missed.
const MAX_BETWEEN: u32 = 1000;

/// The number of calls before the first request that are shown by default.
const FIRST: u32 = 10;

/// Prints entries of a running server; `shown` is the text of one.
///
/// # Errors
/// `SM-0503` if no server is running, `SM-0220` if there is no such function.
pub fn run(
    args: &LogArgs,
    config: &Config,
    printer: Printer,
    shown: fn(&LogEntry) -> String,
) -> CommandOutcome {
    let named = args.platform.server.as_deref();
    let followed =
        platform::with(CommandPlatform::server(named, config)?, printer, async |client, _| {
            follow(client, args, shown).await
        });
    match followed {
        // Ctrl-C is a normal exit here.
        Err(failure) if failure.report.code == Code::CANCELLED.code => Ok(0),
        followed => followed.map_err(|failure| server::explain_unreachable(failure, named, config)),
    }
}

async fn follow(
    client: &ApiClient,
    args: &LogArgs,
    shown: fn(&LogEntry) -> String,
) -> Result<u8, ErrorReport> {
    let id = args.invocation.clone().map(InvocationId::from);
    let mut known = LastCalls::default();
    loop {
        let entries = client.logs(&args.name, id.as_ref(), Some(MAX_BETWEEN)).await?;
        let first = args.tail.unwrap_or(FIRST) as usize;
        logs::print(&known.unseen(entries, first), args.output, shown)?;
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

/// The calls that were in the last answer.
#[derive(Default)]
struct LastCalls(Option<HashSet<String>>);

impl LastCalls {
    /// Returns the entries that were not in the last answer; of the first answer, the last `first`
    /// ones.
    fn unseen(&mut self, entries: Vec<LogEntry>, first: usize) -> Vec<LogEntry> {
        let ids = entries.iter().map(|entry| entry.invocation.as_str().to_owned()).collect();
        let skipped = entries.len().saturating_sub(first);
        match self.0.replace(ids) {
            None => entries.into_iter().skip(skipped).collect(),
            Some(before) => {
                let is_new = |entry: &LogEntry| !before.contains(entry.invocation.as_str());
                entries.into_iter().filter(is_new).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> LogEntry {
        LogEntry {
            invocation: InvocationId::from(format!("i-{number}")),
            accepted_ms: number,
            cold_because: None,
            text: String::new(),
            dropped_bytes: 0,
        }
    }

    #[test]
    fn each_call_is_shown_once_after_the_last_ones_of_the_first_answer() {
        let mut known = LastCalls::default();
        let mut shown = |numbers: &[u64]| -> Vec<u64> {
            let new = known.unseen(numbers.iter().copied().map(entry).collect(), 2);
            new.into_iter().map(|entry| entry.accepted_ms).collect()
        };
        assert_eq!(shown(&[5, 6, 7, 8]), [7, 8]);
        // A call that was accepted before others may end after them.
        assert_eq!(shown(&[5, 6, 7, 8, 9, 4]), [9, 4]);
        assert_eq!(shown(&[5, 6, 7, 8, 9, 4]), [0; 0]);
        assert_eq!(shown(&[9, 4, 10, 11]), [10, 11]);
    }
}
