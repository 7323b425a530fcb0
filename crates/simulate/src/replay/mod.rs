//! Replays of traces in simulated time: calls arrive over hours, each is placed by control's
//! scheduler, and images get to hosts through control's trees.
//!
//! Boundary: all decisions are made by `snowmelt-schedule` and `snowmelt-tree`. The work of hosts
//! (instances, images, failures) is a model.
//! Invariant: each call arrives once, and then runs once, or expires, is refused, or fails with its
//! host.

mod calls;
mod failures;
mod figures;
mod host_failures;
mod hosts;
mod images;
mod initial_hosts;
mod moment_events;
mod run;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::setting::Setting;
use crate::strategy::Strategy;
use crate::trace::Trace;

#[cfg(test)]
pub(crate) use calls::{ReplayCalls, State};
pub use figures::{Losses, Replayed, Waits, Window};

/// The greatest number of rows in the table over time.
const MAX_WINDOWS: u128 = 1_000_000;

/// The longest time in a policy, 31 years, so that moments fit into 64 bits as nanoseconds.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// The rules by which calls are placed, and what hosts keep. Links, images and starts are those of
/// [`Setting`].
#[derive(Clone, Debug)]
pub struct ReplayPolicy {
    /// The memory that the instances on a host may have together, in bytes.
    pub host_memory: u64,
    /// The memory of an instance in bytes, if the trace does not say it.
    pub memory: u64,
    /// The share of cores that an instance counts for, in thousandths of a core.
    pub cpu_millis: u32,
    /// The time for which an instance without calls is kept.
    pub keep_idle: Duration,
    /// The time without a call after which a function is taken back from a host (FaaSNet 3.2).
    pub reclaim: Duration,
    /// The time for which a call waits for a host.
    pub patience: Duration,
    /// The length of one row of the table over time.
    pub every: Duration,
    /// The number of instances of each function that are idle when the trace begins, on hosts that
    /// have its image.
    pub warm: u32,
    /// The failures of hosts.
    pub kills: Vec<Kill>,
    /// The time from the failure of a host until another one joins in place of it. `None` if none
    /// joins.
    pub absent: Option<Duration>,
    /// The part of the calls that are asynchronous, from 0 to 1. An asynchronous call is run again
    /// when its host is lost, or when no host had room for it in time.
    pub asynchronous: f64,
}

/// Several hosts that fail at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The number of hosts, which are chosen at random among those that are left.
    pub hosts: u32,
    /// The time of the failure from the first call on.
    pub at: Duration,
}

/// The simplifications in the model of a replay, in place of [`crate::ASSUMPTIONS`].
pub const TRACE_ASSUMPTIONS: [&str; 9] = [
    "links share their rate fairly (max-min) between streams, without loss, headers or ramp-up",
    "the network between the hosts' links is never the bottleneck",
    "every host gets the blocks in the same order: those of the start profile, then the rest",
    "a call runs as long as the trace says, however many share its host",
    "an instance takes one call at a time; it is forked if another one of its function is on the host, and else started from the image there",
    "a host that is reclaimed from a function has nothing of its image any more",
    "all functions are of one tenant, and have images of one size that share no blocks",
    "hosts join trees when they get their first call; the scheduler is told their places once a second",
    "a host that fails does not answer any more; control and the hosts below it in trees notice that at the same time",
];

/// The progress of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayProgress {
    /// The number of calls that have ended.
    pub ended: usize,
    /// The number of all calls.
    pub calls: usize,
    /// Simulated time since the first call.
    pub now: Duration,
}

/// Replays a trace. The numbers of functions, containers and failures in `setting` are not used.
/// `progress` is called now and then, and may end the replay.
///
/// # Errors
/// Settings that contradict each other, invariants that do not hold, and [`Error::Cancelled`].
pub fn replay(
    trace: &Trace,
    setting: &Setting,
    policy: &ReplayPolicy,
    strategy: Strategy,
    progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
) -> Result<Replayed, Error> {
    let setting = Setting { functions: 1, containers: 1, kill: 0, ..setting.clone() };
    setting.check_model()?;
    check(trace, &setting, policy, strategy)?;
    run::ReplayRun::new(trace, &setting, policy, strategy).replay(progress)
}

fn check(
    trace: &Trace,
    setting: &Setting,
    policy: &ReplayPolicy,
    strategy: Strategy,
) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Setting(what.to_owned()));
    if trace.calls.is_empty() {
        return wrong("the trace has no calls");
    }
    if strategy == Strategy::Layers {
        return wrong("layers are simulated for single bursts, not for traces");
    }
    let trees = trace.functions.len() as u64 * u64::from(strategy.parts(setting));
    if trees > u64::from(u32::MAX) {
        return wrong("the trace has too many functions");
    }
    if policy.memory == 0 || policy.host_memory == 0 || policy.cpu_millis == 0 {
        return wrong("there is no memory or no processor time for an instance");
    }
    if policy.every.is_zero() {
        return wrong("the rows of the table over time have no time");
    }
    if trace.length().as_nanos() / policy.every.as_nanos() >= MAX_WINDOWS {
        return wrong("the table over time has more than a million rows: make them longer");
    }
    if policy.patience.is_zero() {
        return wrong("calls wait for no time, so that none would run");
    }
    let absent = policy.absent.unwrap_or_default();
    let times = [policy.keep_idle, policy.reclaim, policy.patience, policy.every, absent];
    if times.iter().any(|time| *time > LONGEST) {
        return wrong("times are longer than decades");
    }
    if !(0.0..=1.0).contains(&policy.asynchronous) {
        return wrong("the part of calls that are asynchronous is not from 0 to 1");
    }
    check_kills(trace, setting, policy)
}

/// Checks that some host is left at any time, and that no host fails after the end of the trace.
fn check_kills(trace: &Trace, setting: &Setting, policy: &ReplayPolicy) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::Setting(what));
    let mut kills = policy.kills.clone();
    kills.sort_unstable_by_key(|kill| kill.at);
    let mut killed = 0_u64;
    for kill in &kills {
        let hosts = u64::from(kill.hosts);
        let at = kill.at;
        if hosts == 0 {
            return wrong(format!("no host fails at {at:?}"));
        }
        if at > trace.length() {
            let length = trace.length();
            return wrong(format!("hosts fail at {at:?}, but the last call arrives at {length:?}"));
        }
        let earlier = kills.iter().filter(|kill| {
            policy.absent.and_then(|end| kill.at.checked_add(end)).is_some_and(|end| end < at)
        });
        let joined: u64 = earlier.map(|kill| u64::from(kill.hosts)).sum();
        killed += hosts;
        if killed >= u64::from(setting.hosts) + joined {
            return wrong(format!("no host is left if {hosts} fail at {at:?}"));
        }
    }
    Ok(())
}
