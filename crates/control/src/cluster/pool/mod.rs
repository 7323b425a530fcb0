//! The pool of hosts: asks a provider for more when calls, bursts or tasks of queries wait for
//! room, and gives back hosts that have been free for long.
//!
//! Invariants: a host is released only after it was drained and nothing ran there any more; calls
//! never wait for the provider, and its failures end none.

mod command;
mod provider;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_api::{HostState, HostSummary, PoolStatus};
use snowmelt_schedule::{PoolHost, PoolPolicy, PoolScaler, PoolStep};
use snowmelt_types::{ErrorReport, HostName};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hosts::{BEAT, Hosts};
use super::placements::{Placements, or_never};
use command::PoolProgram;
use provider::{HostProvider, Static};

/// The number of reports of a drained host in which it runs nothing, before it is released.
const QUIET_BEATS: u32 = 3;

/// How long a released host may take to leave the cluster.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(60);

/// A program that starts and ends hosts.
#[derive(Clone, Debug)]
pub struct HostProgram {
    /// The path of the program.
    pub path: PathBuf,
    /// The least number of hosts, control's own included.
    pub least: u32,
    /// The most hosts, control's own included.
    pub most: u32,
}

/// The pool of a platform. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HostPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    provider: Arc<dyn HostProvider>,
    policy: PoolPolicy,
    hosts: Hosts,
    placements: Placements,
    // For display only.
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    provided: u32,
    failure: Option<(ErrorReport, Instant)>,
}

/// The knowledge of the pool between two looks.
struct State {
    pool: PoolScaler,
    began: Instant,
    /// The hosts of the cluster when the provider was last asked for its own.
    asked_with: BTreeSet<HostName>,
    /// The hosts that the provider runs or starts.
    provided: BTreeSet<HostName>,
}

impl HostPool {
    /// Makes the pool of a program's hosts, or of hosts that join by themselves.
    pub fn of(
        program: Option<&HostProgram>,
        release_after: Duration,
        hosts: Hosts,
        placements: Placements,
    ) -> Self {
        let (least, most) = program.map_or((1, 1), |program| (program.least, program.most));
        let provider: Arc<dyn HostProvider> = match program {
            Some(program) => Arc::new(PoolProgram::new(program.path.clone())),
            None => Arc::new(Static),
        };
        let policy = PoolPolicy { least, most, release_after: or_never(release_after) };
        let shown = Mutex::default();
        Self { inner: Arc::new(Inner { provider, policy, hosts, placements, shown }) }
    }

    /// Keeps the pool, until `over`. Returns at once with a provider that starts no hosts.
    pub async fn keep(self, over: CancellationToken) {
        if !self.inner.provider.is_elastic() {
            return;
        }
        let mut state = State {
            pool: PoolScaler::new(self.inner.policy),
            began: Instant::now(),
            asked_with: BTreeSet::new(),
            provided: BTreeSet::new(),
        };
        let keeping = async {
            loop {
                tokio::time::sleep(BEAT).await;
                self.look(&mut state).await;
            }
        };
        tokio::select! {
            () = over.cancelled() => {}
            () = keeping => {}
        }
    }

    /// Returns the status of the pool.
    pub fn status(&self) -> PoolStatus {
        let PoolPolicy { least, most, .. } = self.inner.policy;
        let shown = self.shown();
        let now = Instant::now();
        let failure = shown.failure.as_ref();
        let is_elastic = self.inner.provider.is_elastic();
        PoolStatus {
            provider: self.inner.provider.describe(),
            is_elastic,
            least,
            most,
            provided: shown.provided,
            // As it is now: what waited at the last look may have ended, and a look may take
            // minutes.
            lacking: if is_elastic { self.inner.placements.lacking() } else { 0 },
            failure: failure.map(|(error, _)| error.clone()),
            retry_ms: failure.map(|(_, at)| milliseconds(at.saturating_duration_since(now))),
        }
    }

    /// Takes one step, if one is due: starts hosts, or releases one.
    async fn look(&self, state: &mut State) {
        let lacking = self.inner.placements.lacking();
        let mut hosts = self.hosts(&state.provided);
        let names: BTreeSet<_> = hosts.iter().map(|host| host.name.clone()).collect();
        let now = state.began.elapsed();
        self.inner.placements.set_may_start(hosts.len() < self.inner.policy.most as usize);
        if names != state.asked_with && state.pool.may_ask(now) {
            match self.inner.provider.hosts().await {
                Ok(provided) => {
                    state.provided = provided.into_iter().collect();
                    state.asked_with = names;
                    hosts = self.hosts(&state.provided);
                    self.shown().provided = u32::try_from(state.provided.len()).unwrap_or(u32::MAX);
                }
                Err(error) => return self.over(state, Err(error)),
            }
        }
        let Some(step) = state.pool.step(&hosts, lacking, now) else { return };
        let done = match step {
            PoolStep::Grow(count) => self.grow(count, &hosts, &state.provided).await,
            PoolStep::Release(host) => self.release(&host).await,
        };
        // What it runs now is other than before.
        state.asked_with.clear();
        self.over(state, done);
    }

    fn over(&self, state: &mut State, done: Result<(), ErrorReport>) {
        let now = state.began.elapsed();
        state.pool.asked(done.is_ok(), now);
        let pause = state.pool.pause(now).unwrap_or_default();
        self.shown().failure = done.err().map(|error| {
            tracing::warn!(%error, ?pause, "the provider of hosts failed");
            (error, Instant::now() + pause)
        });
    }

    fn hosts(&self, provided: &BTreeSet<HostName>) -> Vec<PoolHost> {
        let own = self.inner.placements.own_name();
        let listed = self.inner.placements.list();
        let host = |host: HostSummary| PoolHost {
            is_free: host.state == HostState::Free,
            is_drained: self.inner.hosts.is_drained(&host.name),
            is_provided: host.name != own && provided.contains(&host.name),
            name: host.name,
        };
        listed.into_iter().map(host).collect()
    }

    /// Has the cluster grow to a number of hosts: the provider runs those that are not there
    /// without it.
    async fn grow(
        &self,
        count: u32,
        hosts: &[PoolHost],
        provided: &BTreeSet<HostName>,
    ) -> Result<(), ErrorReport> {
        let others = hosts.iter().filter(|host| !provided.contains(&host.name)).count();
        let count = count.saturating_sub(u32::try_from(others).unwrap_or(u32::MAX));
        tracing::info!(count, "the provider is asked for hosts");
        self.inner.provider.start(count).await
    }

    /// Drains a host and has the provider end it, unless it gets work meanwhile.
    async fn release(&self, host: &HostName) -> Result<(), ErrorReport> {
        let leaving = Leaving::begin(&self.inner.hosts, host);
        // Another one may come in its place.
        self.inner.placements.set_may_start(true);
        for _ in 0..QUIET_BEATS {
            tokio::time::sleep(BEAT).await;
            if !self.runs_nothing(host) || self.inner.placements.lacking() > 0 {
                tracing::debug!(%host, "a host is kept");
                return Ok(());
            }
        }
        tracing::info!(%host, "a host is released");
        self.inner.provider.release(host).await?;
        let is_there = || self.inner.hosts.all().iter().any(|known| known.name == *host);
        let left = async {
            while is_there() {
                tokio::time::sleep(BEAT / 4).await;
            }
        };
        // One that stays after all gets work again.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, left).await;
        drop(leaving);
        Ok(())
    }

    fn runs_nothing(&self, name: &HostName) -> bool {
        let listed = self.inner.placements.list();
        let is_idle = |host: &HostSummary| host.calls == 0 && !host.facts.works();
        // One that is gone has nothing.
        listed.iter().filter(|host| host.name == *name).all(is_idle)
            && !self.inner.placements.has_functions(name)
            && !self.inner.placements.has_ranks(name)
            && !self.inner.placements.has_tasks(name)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.inner.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host that gets no new work while it is being released.
struct Leaving<'a> {
    hosts: &'a Hosts,
    host: &'a HostName,
}

impl<'a> Leaving<'a> {
    fn begin(hosts: &'a Hosts, host: &'a HostName) -> Self {
        hosts.set_leaving(host, true);
        Self { hosts, host }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.hosts.set_leaving(self.host, false);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
