//! A replay from its first call to its last.
//!
//! All events of one moment are handled before time goes on: first blocks that are whole, then
//! instances and calls in the order of [`ReplayEvent`], and then arrivals.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use snowmelt_schedule::{CallDemand, STARVED_AFTER, Scheduler, SchedulerPolicy as Placing};
use snowmelt_types::{Digest, HostName, Tenant};

use super::calls::ReplayCalls;
use super::failures::ReplayFailures;
use super::figures::{ReplayFigures, Replayed, Waits};
use super::hosts::ReplayHosts;
use super::images::ReplayImages;
use super::{ReplayPolicy, ReplayProgress};
use crate::error::Error;
use crate::setting::{MAX_STREAMS, Setting};
use crate::strategy::Strategy;
use crate::trace::Trace;

/// The number of moments between two reports of progress.
const REPORTED: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReplayEvent {
    /// The first instance of a member is ready.
    Ready(u32),
    /// A further instance is ready for a call. The second number is how often the call was lost
    /// before this was planned.
    Start(u32, u32),
    /// A call ends. The second number is how often the call was lost before this was planned.
    End(u32, u32),
    /// Hosts fail.
    Fail(u32),
    /// Control notices the failure of a host.
    Noticed(u32),
    /// A host joins in place of a failed one.
    Joins,
    /// Control checks which functions and images are taken back from hosts.
    Reclaim,
    /// Control tells the scheduler the places of hosts in trees.
    Roles,
    Sweep,
    /// An asynchronous call is requested again.
    Again(u32),
    /// The time of a waiting call is over.
    Wake,
}

pub(super) struct ReplayRun<'a> {
    pub trace: &'a Trace,
    pub setting: &'a Setting,
    pub policy: &'a ReplayPolicy,
    pub strategy: Strategy,
    pub scheduler: Scheduler,
    /// The requirements of a call of each function.
    pub needs: Vec<Arc<CallDemand>>,
    /// The number of each function by its digest.
    pub numbers: HashMap<Digest, u32>,
    pub names: Vec<HostName>,
    pub calls: ReplayCalls<'a>,
    pub failures: ReplayFailures,
    pub hosts: ReplayHosts,
    pub images: ReplayImages,
    pub figures: ReplayFigures,
    pub events: BinaryHeap<Reverse<(u64, ReplayEvent)>>,
    /// The call that arrives next.
    pub next: u32,
    pub now: u64,
    /// The last moment for which a check by control is planned of what is taken back from hosts.
    pub reclaims_at: Option<u64>,
    pub has_roles_due: bool,
    pub has_sweep_due: bool,
}

pub(super) type ReplayResult = Result<(), String>;

pub(super) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl<'a> ReplayRun<'a> {
    pub fn new(
        trace: &'a Trace,
        setting: &'a Setting,
        policy: &'a ReplayPolicy,
        strategy: Strategy,
    ) -> Self {
        let memory =
            |function: &crate::trace::TraceFunction| function.memory.unwrap_or(policy.memory);
        let memory: Vec<u64> = trace.functions.iter().map(memory).collect();
        let needs = (0_u64..).zip(&memory).map(|(number, &memory)| needs(number, memory, policy));
        let needs: Vec<_> = needs.collect();
        let mut random = Rng::with_seed(setting.seed);
        let moments = policy.kills.iter().map(|kill| nanoseconds(kill.at));
        let calls = asynchronous(policy.asynchronous, trace.calls.len(), &mut random.fork());
        let functions = trace.functions.len();
        let placing = Placing {
            instances_per_host: setting.per_host,
            near: None,
            starved_after: STARVED_AFTER,
            reclaim_after: policy.reclaim,
        };
        let keep_idle = nanoseconds(policy.keep_idle);
        Self {
            trace,
            setting,
            policy,
            strategy,
            scheduler: Scheduler::new(placing),
            numbers: needs.iter().map(|call| call.function.clone()).zip(0..).collect(),
            needs,
            names: Vec::new(),
            calls: ReplayCalls::new(&trace.calls, functions, calls),
            failures: ReplayFailures::new(setting.hosts, moments.collect(), random),
            hosts: ReplayHosts::new(setting.hosts, policy.host_memory, keep_idle, memory),
            images: ReplayImages::new(setting, strategy, functions),
            figures: ReplayFigures::new(nanoseconds(trace.length()), nanoseconds(policy.every)),
            events: BinaryHeap::new(),
            next: 0,
            now: 0,
            reclaims_at: None,
            has_roles_due: false,
            has_sweep_due: false,
        }
    }

    /// Replays all calls.
    ///
    /// # Errors
    /// Fails as [`super::replay`].
    pub fn replay(
        mut self,
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Replayed, Error> {
        let broken =
            |now: u64, seed: u64, what: String| Error::Invariant { what, nanoseconds: now, seed };
        let seed = self.setting.seed;
        self.report_hosts().map_err(|what| broken(0, seed, what))?;
        self.warm_up()?;
        self.plan_failures();
        for moment in 0_u64.. {
            if moment.is_multiple_of(REPORTED) {
                let ended = self.calls.over;
                let calls = self.trace.calls.len();
                let progressed =
                    ReplayProgress { ended, calls, now: Duration::from_nanos(self.now) };
                if progress(progressed).is_break() {
                    return Err(Error::Cancelled);
                }
                if self.images.streams() > MAX_STREAMS {
                    let what = format!("there are more than {MAX_STREAMS} streams of blocks");
                    return Err(Error::Setting(what));
                }
            }
            let stepped = self.step().map_err(|what| broken(self.now, seed, what))?;
            if !stepped {
                break;
            }
        }
        let ended = self.now;
        let minutes = self.figures.host_minutes(ended);
        self.finish().map_err(|what| broken(self.now, seed, what))?;
        Ok(self.replayed(ended, minutes))
    }

    /// Handles the next moment. Returns false if all calls are over.
    fn step(&mut self) -> Result<bool, String> {
        let calls = &self.trace.calls;
        let arrival = calls.get(self.next as usize).map(|call| call.at);
        let event = self.events.peek().map(|Reverse((time, _))| *time);
        if self.calls.over == calls.len() {
            return Ok(false);
        }
        let Some(now) = [arrival, event, self.images.engine.next()].into_iter().flatten().min()
        else {
            self.calls.check()?;
            return Ok(false);
        };
        self.now = now;
        self.figures.pass(now, self.images.engine.from_registry);
        self.images.engine.run(Some(now), &mut self.images.local)?;
        while let Some(member) = self.images.local.news.pop() {
            self.plan_start(member);
        }
        while let Some(&Reverse((time, event))) = self.events.peek() {
            if time > now {
                break;
            }
            self.events.pop();
            self.happens(event)?;
        }
        while self.trace.calls.get(self.next as usize).is_some_and(|call| call.at == now) {
            self.arrives(self.next)?;
            self.next += 1;
        }
        Ok(true)
    }

    fn happens(&mut self, event: ReplayEvent) -> ReplayResult {
        match event {
            ReplayEvent::Ready(member) => self.ready(member),
            ReplayEvent::Start(call, losses) if losses == self.calls.losses(call) => {
                self.start(call)
            }
            ReplayEvent::End(call, losses) if losses == self.calls.losses(call) => self.end(call),
            // The host was lost with it meanwhile.
            ReplayEvent::Start(..) | ReplayEvent::End(..) => Ok(()),
            ReplayEvent::Fail(kill) => self.fail(kill),
            ReplayEvent::Noticed(host) => self.noticed(host),
            ReplayEvent::Joins => self.joins(),
            ReplayEvent::Reclaim => self.reclaim(),
            ReplayEvent::Roles => {
                self.tell_roles();
                Ok(())
            }
            ReplayEvent::Sweep => self.sweep(),
            ReplayEvent::Again(call) => self.ask(call),
            ReplayEvent::Wake => self.decide(),
        }
    }

    /// Completes, after the last call, the images that are under way.
    fn finish(&mut self) -> ReplayResult {
        self.calls.check()?;
        match self.scheduler.waiting() {
            0 => {}
            waiting => return Err(format!("{waiting} calls wait that are over")),
        }
        self.notice_all()?;
        self.check_hosts()?;
        self.images.engine.run(None, &mut self.images.local)?;
        self.images.check_all()
    }

    pub fn clock(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    fn replayed(self, ended: u64, host_minutes: f64) -> Replayed {
        let figures = self.figures;
        let engine = self.images.engine;
        let expired = figures.expired;
        let refused = figures.refused;
        let cold_starts = figures.cold_starts;
        let reclaimed = figures.reclaimed;
        let provisioned = figures.provisioned;
        let ran = figures.ran;
        let most_hosts = figures.most_hosts;
        let (waits, provisioning, windows) = figures.into_windows(engine.from_registry);
        let recorded = &self.trace.recorded;
        Replayed {
            strategy: self.strategy,
            origin: self.trace.origin,
            synthetic: self.trace.origin.is_synthetic(),
            calls: self.trace.calls.len() as u64,
            ran,
            expired,
            refused,
            cold_starts,
            provisioned,
            reclaimed,
            wait: Waits::new(waits),
            provisioning: Waits::new(provisioning),
            recorded: (!recorded.is_empty()).then(|| Waits::new(recorded.clone())),
            most_hosts,
            host_minutes,
            registry_bytes: engine.from_registry.round() as u64,
            lost_bytes: engine.lost.round() as u64,
            moves: self.images.moves,
            levels: self.images.levels as u64,
            seconds: ended as f64 / 1e9,
            events: engine.handled,
            seed: self.setting.seed,
            losses: self.failures.into_losses(),
            windows,
        }
    }
}

/// Returns the number of a host from its name.
pub(super) fn number(host: &HostName) -> Result<u32, String> {
    let number = host.as_str().trim_start_matches('h');
    number.parse().map_err(|_| format!("there is no host {host}"))
}

/// Decides at random for each call whether it is asynchronous. Empty if no part of the calls is.
fn asynchronous(part: f64, calls: usize, random: &mut Rng) -> Vec<bool> {
    let count = if part > 0.0 { calls } else { 0 };
    (0..count).map(|_| random.f64() < part).collect()
}

/// The requirements of the calls of a function, for the scheduler. All functions belong to one
/// tenant.
fn needs(number: u64, memory: u64, policy: &ReplayPolicy) -> Arc<CallDemand> {
    let digest = Digest::of(number.to_le_bytes());
    Arc::new(CallDemand {
        tenant: Tenant::default(),
        function: digest.clone(),
        image: Some(digest),
        memory,
        cpu_millis: policy.cpu_millis,
        concurrency: 1,
        idle: policy.keep_idle,
        only: None,
        near_first: false,
    })
}
