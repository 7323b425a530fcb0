//! Traces in simulated time: calls arrive over hours, each is placed by the scheduler of control, and
//! images get to hosts through the trees of control.
//!
//! Boundary: what is decided is decided by `snowmelt-schedule` and `snowmelt-tree`. What hosts do
//! (instances, images, reclaiming) is a model.
//! Invariant: each call arrives once, and then runs once, or expires, or is refused.

mod beginning;
mod calls;
mod figures;
mod hosts;
mod images;
mod placing;
mod run;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::setting::Setting;
use crate::strategy::Strategy;
use crate::trace::Trace;

#[cfg(test)]
pub(crate) use calls::Calls;
pub use figures::{Replayed, Waits, Window};

/// The most rows of the table over time.
const MOST_WINDOWS: u128 = 1_000_000;

/// No time of a policy is longer, so that moments are nanoseconds in 64 bits: 31 years.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// How calls are placed, and what hosts keep. Links, images and starts are those of [`Setting`].
#[derive(Clone, Debug)]
pub struct Policy {
    /// Bytes that the instances on a host may have together.
    pub host_memory: u64,
    /// Bytes of an instance, if the trace does not say it.
    pub memory: u64,
    /// Thousandths of a core that an instance counts for.
    pub cpu_millis: u32,
    /// How long an instance is kept without calls.
    pub keep_idle: Duration,
    /// After how long without a call a host is reclaimed from a function (FaaSNet 3.2).
    pub reclaim: Duration,
    /// How long a call waits for a host.
    pub patience: Duration,
    /// The time of one row of the table over time.
    pub every: Duration,
    /// Instances of each function that are idle when the trace begins, on hosts that have its image.
    pub warm: u32,
}

/// What a replay leaves out or takes as given, in place of [`crate::ASSUMPTIONS`].
pub const TRACE_ASSUMPTIONS: [&str; 8] = [
    "links share their rate fairly (max-min) between streams, without loss, headers or ramp-up",
    "the network between the hosts' links is never the bottleneck",
    "every host gets the blocks in the same order: those of the start profile, then the rest",
    "a call runs as long as the trace says, however many share its host",
    "an instance takes one call at a time; it is forked if another one of its function is on the host, and else started from the image there",
    "a host that is reclaimed from a function has nothing of its image any more",
    "all functions are of one tenant, and have images of one size that share no blocks",
    "hosts join trees when they get their first call; the scheduler is told their places once a second",
];

/// How far a replay is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Calls that have ended.
    pub ended: usize,
    /// All calls.
    pub calls: usize,
    /// Simulated time since the first call.
    pub now: Duration,
}

/// Replays a trace. Of `setting`, functions, containers and failures are not used. `progress` is
/// called now and then, and may end the replay.
///
/// # Errors
/// Settings that contradict each other, invariants that do not hold, and [`Error::Cancelled`].
pub fn replay(
    trace: &Trace,
    setting: &Setting,
    policy: &Policy,
    strategy: Strategy,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Replayed, Error> {
    let setting = Setting { functions: 1, containers: 1, kill: 0, ..setting.clone() };
    setting.check_model()?;
    check(trace, &setting, policy, strategy)?;
    run::Run::new(trace, &setting, policy, strategy).replay(progress)
}

fn check(
    trace: &Trace,
    setting: &Setting,
    policy: &Policy,
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
    if trace.length().as_nanos() / policy.every.as_nanos() >= MOST_WINDOWS {
        return wrong("the table over time has more than a million rows: make them longer");
    }
    if policy.patience.is_zero() {
        return wrong("calls wait for no time, so that none would run");
    }
    let times = [policy.keep_idle, policy.reclaim, policy.patience, policy.every];
    match times.iter().any(|time| *time > LONGEST) {
        true => wrong("times are longer than decades"),
        false => Ok(()),
    }
}
