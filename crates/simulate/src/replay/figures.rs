//! What a replay found.

use serde::Serialize;

use crate::strategy::Strategy;
use crate::trace::Origin;

/// Seconds that some things took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// The mean.
    pub mean: f64,
    /// The shortest.
    pub least: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// 90 % of them.
    pub p90: f64,
    /// 99 % of them.
    pub p99: f64,
    /// 99.9 % of them.
    pub p999: f64,
    /// The longest.
    pub most: f64,
}

impl Waits {
    /// From nanoseconds.
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

/// What happened in one part of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// When it begins, in seconds from the first call.
    pub start: f64,
    /// Calls that arrived in it.
    pub arrived: u64,
    /// Those of them that started.
    pub started: u64,
    /// Their mean wait, in seconds.
    pub wait_mean: f64,
    /// Their longest wait, in seconds.
    pub wait_most: f64,
    /// Instances that were started in it.
    pub cold_starts: u64,
    /// Hosts that have a function at its end.
    pub hosts: u32,
    /// Bytes that the registry sent in it.
    pub registry_bytes: u64,
    /// Calls whose loss with their host was noticed in it.
    pub failed: u64,
}

/// What hosts that failed came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// Hosts that failed.
    pub hosts: u32,
    /// Hosts that joined in place of them.
    pub joined: u32,
    /// Calls that were sent to a host that failed, and are not asynchronous.
    pub failed: u64,
    /// Times that an asynchronous call was run again after such a loss.
    pub run_again: u64,
    /// Times that a call was placed again, because the host that failed had not begun with it.
    pub placed_again: u64,
    /// From the arrival to the answer of calls that were under way at a failure or arrived within the
    /// minute after one.
    pub response_around: Waits,
    /// The same of all other calls.
    pub response_otherwise: Waits,
}

/// One replay of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// How the images reached the hosts.
    pub strategy: Strategy,
    /// Where the trace is from.
    pub origin: Origin,
    /// Whether it was made up.
    pub synthetic: bool,
    /// Calls that arrived.
    pub calls: u64,
    /// Calls that ran.
    pub ran: u64,
    /// Calls for which no host had room in time.
    pub expired: u64,
    /// Calls for which no host ever has room.
    pub refused: u64,
    /// Instances that were started.
    pub cold_starts: u64,
    /// Times that a host began to read the image of a function.
    pub provisioned: u64,
    /// Times that a host was reclaimed from a function.
    pub reclaimed: u64,
    /// From a call's arrival to its first start, of those that started.
    pub wait: Waits,
    /// From a host's first call of a function to the start of its first instance.
    pub provisioning: Waits,
    /// The starts that were recorded with the trace, for comparison.
    pub recorded: Option<Waits>,
    /// The most hosts that had a function at the same time.
    pub most_hosts: u32,
    /// Time of hosts that had a function, in minutes of a host.
    pub host_minutes: f64,
    /// What the registry sent.
    pub registry_bytes: u64,
    /// What was sent in vain, in blocks that were interrupted.
    pub lost_bytes: u64,
    /// Hosts that got another parent, once for each time.
    pub moves: u64,
    /// Levels of the highest tree at any time; 0 without trees.
    pub levels: u64,
    /// When the last call ended, in seconds from the first.
    pub seconds: f64,
    /// Ends of blocks that were simulated.
    pub events: u64,
    /// The seed that gives this outcome again.
    pub seed: u64,
    /// What the failures of hosts came to, if hosts fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// The table over time, until the last call arrived.
    pub windows: Vec<Window>,
}

/// What is counted on the way.
pub(super) struct Figures {
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
    /// Nanoseconds of active hosts until `since`.
    host_time: u128,
    hosts: u32,
    since: u64,
    windows: Vec<Window>,
    /// Windows that are over.
    closed: usize,
    /// Bytes of the registry until then.
    registry_bytes: f64,
}

impl Figures {
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

    /// So many hosts have a function from now on.
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

    /// A call fails with its host.
    pub fn fails(&mut self, now: u64) {
        self.window(now).failed += 1;
    }

    /// Minutes of hosts until now.
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

    /// The window of a moment; what is after the last arrival counts in the last one.
    fn window(&mut self, at: u64) -> &mut Window {
        let number = ((at / self.every) as usize).min(self.windows.len() - 1);
        &mut self.windows[number]
    }
}
