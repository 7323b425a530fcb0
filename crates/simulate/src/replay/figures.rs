//! The results of a replay.

use serde::Serialize;

use crate::strategy::Strategy;
use crate::trace::TraceOrigin;

/// The distribution of times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// The mean, in seconds.
    pub mean: f64,
    /// The shortest time, in seconds.
    pub least: f64,
    /// The median, in seconds.
    pub p50: f64,
    /// The 90th percentile, in seconds.
    pub p90: f64,
    /// The 99th percentile, in seconds.
    pub p99: f64,
    /// The 99.9th percentile, in seconds.
    pub p999: f64,
    /// The longest time, in seconds.
    pub most: f64,
}

impl Waits {
    /// Computes the distribution from times in nanoseconds.
    pub(super) fn new(mut times: Vec<u64>) -> Self {
        if times.is_empty() {
            return Self::default();
        }
        times.sort_unstable();
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let sum: u128 = times.iter().map(|&time| u128::from(time)).sum();
        let at = |share: f64| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            seconds(times[rank.clamp(1, times.len()) - 1])
        };
        Self {
            mean: sum as f64 / times.len() as f64 / 1e9,
            least: at(0.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            most: at(1.0),
        }
    }
}

/// The events in one part of the simulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// The begin of the window, in seconds from the first call.
    pub start: f64,
    /// The number of calls that arrived in the window.
    pub arrived: u64,
    /// The number of calls of this window that started.
    pub started: u64,
    /// The mean wait of these calls, in seconds.
    pub wait_mean: f64,
    /// The longest wait of these calls, in seconds.
    pub wait_most: f64,
    /// The number of instances that were started in the window.
    pub cold_starts: u64,
    /// The number of hosts that have a function at the end of the window.
    pub hosts: u32,
    /// Bytes that the registry sent in the window.
    pub registry_bytes: u64,
    /// The number of calls whose loss with their host was noticed in the window.
    pub failed: u64,
}

/// The effect of failed hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// The number of hosts that failed.
    pub hosts: u32,
    /// The number of hosts that joined in place of failed ones.
    pub joined: u32,
    /// The number of calls that failed because they were sent to a host that failed, and are not
    /// asynchronous.
    pub failed: u64,
    /// The number of times that an asynchronous call was run again after its host had failed.
    pub run_again: u64,
    /// The number of times that a call was placed again because the failed host had not begun with
    /// it.
    pub placed_again: u64,
    /// The times from arrival to answer of calls that were under way at a failure or arrived within
    /// the minute after one.
    pub response_around: Waits,
    /// The times from arrival to answer of all other calls.
    pub response_otherwise: Waits,
}

/// The result of one replay of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// The way in which images reached the hosts.
    pub strategy: Strategy,
    /// The origin of the trace.
    pub origin: TraceOrigin,
    /// Whether the trace was made up.
    pub synthetic: bool,
    /// The number of calls that arrived.
    pub calls: u64,
    /// The number of calls that ran.
    pub ran: u64,
    /// The number of calls for which no host had room in time.
    pub expired: u64,
    /// The number of calls for which no host ever has room.
    pub refused: u64,
    /// The number of instances that were started.
    pub cold_starts: u64,
    /// The number of times that a host began to read the image of a function.
    pub provisioned: u64,
    /// The number of times that a function was taken back from a host.
    pub reclaimed: u64,
    /// The times from the arrival of a call to its first start, for calls that started.
    pub wait: Waits,
    /// The times from a host's first call of a function to the start of its first instance.
    pub provisioning: Waits,
    /// The times of starts that were recorded with the trace, for comparison. `None` if it has
    /// none.
    pub recorded: Option<Waits>,
    /// The greatest number of hosts that had a function at the same time.
    pub most_hosts: u32,
    /// The sum of the times for which hosts had a function, in host-minutes.
    pub host_minutes: f64,
    /// Bytes that the registry sent.
    pub registry_bytes: u64,
    /// Bytes that were sent in vain, in blocks that were interrupted.
    pub lost_bytes: u64,
    /// The number of times that a host got another parent.
    pub moves: u64,
    /// The number of levels of the highest tree at any time; 0 without trees.
    pub levels: u64,
    /// The end of the last call, in seconds from the first call.
    pub seconds: f64,
    /// The number of ends of blocks that were simulated.
    pub events: u64,
    /// The seed that gives this outcome again.
    pub seed: u64,
    /// The effect of failed hosts. `None` if no hosts were to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// The table over time, until the last call arrived.
    pub windows: Vec<Window>,
}

/// The counts of a replay that is under way.
pub(super) struct ReplayFigures {
    every: u64,
    pub waits: Vec<u64>,
    pub provisioning: Vec<u64>,
    pub ran: u64,
    pub expired: u64,
    pub refused: u64,
    pub cold_starts: u64,
    pub provisioned: u64,
    pub reclaimed: u64,
    pub most_hosts: u32,
    /// The time of active hosts until the moment `since`, in nanoseconds.
    host_time: u128,
    hosts: u32,
    since: u64,
    windows: Vec<Window>,
    /// The number of windows that are over.
    closed: usize,
    /// Bytes that the registry had sent when the last window was closed.
    registry_bytes: f64,
}

impl ReplayFigures {
    pub fn new(length: u64, every: u64) -> Self {
        let count = length / every + 1;
        let window =
            |number: u64| Window { start: (number * every) as f64 / 1e9, ..Window::default() };
        Self {
            every,
            waits: Vec::new(),
            provisioning: Vec::new(),
            ran: 0,
            expired: 0,
            refused: 0,
            cold_starts: 0,
            provisioned: 0,
            reclaimed: 0,
            most_hosts: 0,
            host_time: 0,
            hosts: 0,
            since: 0,
            windows: (0..count).map(window).collect(),
            closed: 0,
            registry_bytes: 0.0,
        }
    }

    /// Closes the windows that end before now, with what the registry has sent so far.
    pub fn pass(&mut self, now: u64, registry_bytes: f64) {
        while self.closed < self.windows.len() && (self.closed as u64 + 1) * self.every <= now {
            self.close(registry_bytes);
        }
    }

    /// Sets how many hosts have a function from now on.
    pub fn hosts(&mut self, hosts: u32, now: u64) {
        self.host_time += u128::from(self.hosts) * u128::from(now - self.since);
        (self.hosts, self.since) = (hosts, now);
        self.most_hosts = self.most_hosts.max(hosts);
    }

    pub fn arrives(&mut self, at: u64) {
        self.window(at).arrived += 1;
    }

    pub fn starts(&mut self, at: u64, wait: u64) {
        self.waits.push(wait);
        let window = self.window(at);
        let seconds = wait as f64 / 1e9;
        // The sum, until the end.
        window.wait_mean += seconds;
        window.wait_most = window.wait_most.max(seconds);
        window.started += 1;
    }

    pub fn is_cold(&mut self, now: u64) {
        self.cold_starts += 1;
        self.window(now).cold_starts += 1;
    }

    /// Counts a call that fails with its host.
    pub fn fails(&mut self, now: u64) {
        self.window(now).failed += 1;
    }

    /// The host-minutes until now.
    pub fn host_minutes(&mut self, now: u64) -> f64 {
        self.hosts(self.hosts, now);
        self.host_time as f64 / 60e9
    }

    pub fn into_windows(mut self, registry_bytes: f64) -> (Vec<u64>, Vec<u64>, Vec<Window>) {
        while self.closed < self.windows.len() {
            self.close(registry_bytes);
        }
        for window in &mut self.windows {
            window.wait_mean /= (window.started as f64).max(1.0);
        }
        (self.waits, self.provisioning, self.windows)
    }

    fn close(&mut self, registry_bytes: f64) {
        let window = &mut self.windows[self.closed];
        window.hosts = self.hosts;
        window.registry_bytes = (registry_bytes - self.registry_bytes).round() as u64;
        self.registry_bytes = registry_bytes;
        self.closed += 1;
    }

    /// The window of a moment in nanoseconds. Moments after the last arrival belong to the last
    /// window.
    fn window(&mut self, at: u64) -> &mut Window {
        let number = ((at / self.every) as usize).min(self.windows.len() - 1);
        &mut self.windows[number]
    }
}
