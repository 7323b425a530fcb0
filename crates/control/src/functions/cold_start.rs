//! Explains why an instance had to be started for a call, with the setting that would have kept an
//! idle one.

use std::time::Duration;

use snowmelt_api::{ColdKind, ColdReason};
use snowmelt_node::{Node, RemovalReason};
use snowmelt_tasks::agent::api::ColdStart;
use snowmelt_types::ByteSize;

use super::preparation::Live;

/// Returns the reason for a call that has just been given a new instance.
pub(crate) fn reason(live: &Live, start: ColdStart) -> ColdReason {
    let ended = live.take_ended();
    let ColdStart { others, removed, budget } = start;
    match removed {
        _ if others > 0 => busy(others),
        Some(RemovalReason::Expired) => idle_time(live.limits.idle),
        Some(RemovalReason::Evicted) => room(ByteSize(budget)),
        None => ended.map_or_else(|| first(live.limits.idle), |code| after(&code)),
    }
}

/// Collects the facts that explain a start of an instance on control's own host.
pub(crate) fn started_here(node: &Node, live: &Live) -> ColdStart {
    ColdStart {
        others: u32::try_from(live.calls().saturating_sub(1)).unwrap_or(u32::MAX),
        removed: node.removal_reason(&live.unit, &live.limits),
        budget: node.figures().handlers.budget,
    }
}

fn busy(others: u32) -> ColdReason {
    let calls = if others == 1 { "1 call was".to_owned() } else { format!("{others} calls were") };
    ColdReason {
        kind: ColdKind::Busy,
        text: format!("{calls} under way"),
        hint: Some("have some ready with prewarmed=2 (fn deploy --prewarmed)".into()),
    }
}

fn idle_time(limit: Duration) -> ColdReason {
    ColdReason {
        kind: ColdKind::IdleTime,
        text: format!("the idle time of {} was over", shown(limit)),
        hint: Some("keep it longer with idle=\"10m\" (fn deploy --idle)".into()),
    }
}

fn room(budget: ByteSize) -> ColdReason {
    ColdReason {
        kind: ColdKind::Room,
        text: format!("idle instances had used up their {budget} of memory"),
        hint: Some("give them more with the setting cache.handlers".into()),
    }
}

fn after(code: &str) -> ColdReason {
    let text = format!("the one before ended with {code}");
    ColdReason { kind: ColdKind::Ended, text, hint: None }
}

fn first(idle: Duration) -> ColdReason {
    let (text, hint) = match idle.is_zero() {
        true => ("none is kept idle", Some("keep them with idle=\"1m\" (fn deploy --idle)".into())),
        false => ("there was none yet", None),
    };
    ColdReason { kind: ColdKind::First, text: text.to_owned(), hint }
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_secs() {
        whole if whole >= 120 && whole % 60 == 0 => format!("{} min", whole / 60),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_idle_time_names_limit_and_setting() {
        let reason = idle_time(Duration::from_secs(300));
        assert_eq!(reason.text, "the idle time of 5 min was over");
        assert!(reason.hint.is_some_and(|hint| hint.contains("--idle")));
        assert_eq!(idle_time(Duration::from_millis(1500)).text, "the idle time of 1.5 s was over");
    }

    #[test]
    fn the_others_are_counted() {
        assert_eq!(busy(1).text, "1 call was under way");
        assert_eq!(busy(7).text, "7 calls were under way");
    }
}
