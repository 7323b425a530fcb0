//! The error that a user reads when the process of a function has ended.

use std::fmt::Display;
use std::time::Duration;

use snowmelt_types::{Code, End, ErrorReport, Outcome};

/// Makes the report of a function whose process ended, with the last lines that it wrote.
pub(crate) fn report(
    name: &str,
    outcome: &Outcome,
    throttled: Option<Duration>,
    output: &[String],
) -> ErrorReport {
    let mut message = format!("`{name}` {}", outcome.end);
    let (code, hint) = match &outcome.end {
        End::Exit { .. } => (
            Code::FUNCTION_EXIT,
            "the function must return; it must not end its process. A program of its own (--command, \
             --image) runs on and answers calls on the socket SNOWMELT_CHANNEL_FD (docs/reference/runtimes.md)"
                .to_owned(),
        ),
        End::Signal { .. } => (
            Code::FUNCTION_SIGNAL,
            "native code in one of its packages crashed; call it locally to find out where"
                .to_owned(),
        ),
        End::OutOfMemory { peak, .. } => {
            let more = (peak.bytes() >> 20).max(128) * 2;
            let hint = format!("give it more with memory=\"{more}MiB\" (fn deploy --memory)");
            (Code::FUNCTION_MEMORY, hint)
        }
        End::PidsLimit { .. } => (
            Code::FUNCTION_PIDS,
            "start fewer processes and threads; a deployed function gets more with pids= (fn \
             deploy --pids)"
                .to_owned(),
        ),
        End::Timeout { limit_ms } => {
            let limit = Duration::from_millis(*limit_ms);
            if let Some(throttled) = throttled.filter(|held| *held * 10 >= limit) {
                message += &format!(
                    "; its processor limit held it back for {:.1} s of {:.1} s",
                    throttled.as_secs_f64(),
                    limit.as_secs_f64()
                );
            }
            (Code::FUNCTION_TIMEOUT, more_time(limit, throttled))
        }
        End::Killed => (Code::CANCELLED, "it was stopped because its query ended".to_owned()),
        End::SpawnerLost => {
            (Code::SPAWNER_LOST, "call it again: another spawner is started".to_owned())
        }
    };
    ErrorReport::new(code, message).excerpt(output.iter().cloned()).hint(hint)
}

/// Returns the hint for a call whose time was up: a larger processor share if the lack of one took
/// at least half of the time, else only more time.
fn more_time(limit: Duration, throttled: Option<Duration>) -> String {
    let time = "give it more time with timeout=\"5m\" (fn deploy --timeout)";
    if throttled.is_some_and(|held| held * 2 >= limit) {
        return format!("give it a larger share with cpu=2 (fn deploy --cpu), or {time}");
    }
    time.to_owned()
}

/// Adds to the report of a program that ended without a word that it said nothing on its channel,
/// and how a program answers calls.
pub(crate) fn of_silent(ended: ErrorReport, silence: &impl Display) -> ErrorReport {
    const CHANNEL: &str = "a program of its own (--command, --image) answers calls on the socket \
                           SNOWMELT_CHANNEL_FD (docs/reference/runtimes.md). A server of another protocol, such \
                           as HTTP, needs a program before it that passes calls on to it \
                           (docs/reference/images.md)";
    let message = format!("{}; {silence}", ended.message);
    // A program that starts slowly has said nothing, either.
    let hint = match &ended.hint {
        Some(hint) => format!("{hint}. {CHANNEL}"),
        None => CHANNEL.to_owned(),
    };
    ErrorReport { message, ..ended }.hint(hint)
}

#[cfg(test)]
mod tests {
    use snowmelt_types::ByteSize;

    use super::*;

    #[test]
    fn out_of_memory_says_limit_peak_and_setting() {
        let end = End::OutOfMemory { limit: ByteSize::mib(512), peak: ByteSize::mib(512) };
        let outcome = Outcome { end, peak_memory: None, cpu: None, wall: Duration::ZERO };
        let shown = report("score", &outcome, None, &[]).to_string();
        assert!(
            shown.contains("`score` ran out of memory: limit 512 MiB, peak 512 MiB"),
            "{shown}"
        );
        assert!(shown.contains("memory=\"1024MiB\""), "{shown}");
    }

    #[test]
    fn a_throttled_time_out_names_the_share() {
        let outcome = Outcome {
            end: End::Timeout { limit_ms: 10_000 },
            peak_memory: None,
            cpu: None,
            wall: Duration::from_secs(10),
        };
        let throttled = Some(Duration::from_millis(8_100));
        let report = report("f", &outcome, throttled, &[]);
        assert!(report.message.ends_with("held it back for 8.1 s of 10.0 s"), "{report}");
        let hint = report.hint.unwrap_or_default();
        assert!(hint.contains("--cpu") && hint.contains("--timeout"), "{hint}");
    }
}
