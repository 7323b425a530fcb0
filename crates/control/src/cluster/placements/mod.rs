//! On which hosts calls of functions, bursts and tasks of queries run: the scheduler with the hosts
//! that report, and those who wait for its decisions.
//!
//! Invariant: whoever was given a host tells the scheduler when the call is over, also if the call
//! is dropped. On a platform of one host no calls are placed: the account of that host has a queue.

mod acquisition;
mod arrivals;
mod callee;
mod gangs;
mod peers;
mod placement;
mod preparations;
mod reclaim;
mod refusals;
mod remote_calls;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_api::{HostFacts, HostSummary};
use snowmelt_node::{Node, TreePlace};
use snowmelt_schedule::{
    CallDemand, Decision, HostRoom, STARVED_AFTER, Scheduler, SchedulerPolicy, Ticket,
};
use snowmelt_types::{Code, Digest, ErrorReport, HostName};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::hosts::{BEAT, ClusterHost, Hosts};
use super::trees::{self, OwnPlaces, TreeRole, Trees};
use crate::access::quotas::Quotas;
use crate::state::records::FunctionRecord;

pub(crate) use acquisition::{Acquired, MAX_FAILURES};
use arrivals::JOINED_AGAIN;
pub(crate) use callee::{Callee, FunctionTransfer, Whose};
pub(crate) use gangs::{NoHosts, PlacedGang};
pub(crate) use peers::QueryPeers;
pub(crate) use placement::CallPlacement;
use preparations::Preparations;
pub(crate) use remote_calls::{Ran, is_unanswered};

/// The least time for which a call waits for a host. A call whose time limit is longer waits for
/// that long, because the calls before it may take that time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of an operator for placements.
#[derive(Clone, Copy, Debug)]
pub struct PlacementSettings {
    /// The most instances of a function on one host.
    pub instances_per_host: u32,
    /// A host is reclaimed from a function that was not called there for this long; with 0 it is
    /// never reclaimed.
    pub reclaim_after: Duration,
    /// How long a burst waits for room.
    pub burst_wait: Duration,
    /// True if hosts may be started when calls wait.
    pub is_elastic: bool,
}

/// A time after which something is taken back; 0 means never.
pub(crate) fn or_never(after: Duration) -> Duration {
    if after.is_zero() { Duration::MAX } else { after }
}

/// The placements of a platform. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Placements {
    inner: Arc<Inner>,
    quotas: Quotas,
}

#[derive(Debug)]
struct Inner {
    node: Node,
    hosts: Hosts,
    trees: Trees,
    /// True if all calls run on control's own host.
    is_alone: AtomicBool,
    began: Instant,
    // Held for a decision only.
    state: Mutex<State>,
    prepared: Preparations,
    is_elastic: bool,
    burst_wait: Duration,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    hosts: BTreeMap<HostName, Arc<ClusterHost>>,
    waiting: HashMap<Ticket, oneshot::Sender<Decided>>,
    /// Hosts that were asked which functions they have.
    asked: HashSet<HostName>,
    /// True if hosts may be started.
    may_start: bool,
    /// The time until which hosts of an earlier control may join again.
    joined_again: Duration,
}

/// The decision of the scheduler that a waiting call, burst or task is told.
#[derive(Debug)]
enum Decided {
    On(Arc<ClusterHost>),
    /// All ranks of a burst are placed.
    OnAll(Vec<(Arc<ClusterHost>, u32)>),
    Expired,
    Refused,
}

impl Placements {
    pub fn new(node: Node, hosts: Hosts, trees: Trees, settings: PlacementSettings) -> Self {
        let policy = SchedulerPolicy {
            instances_per_host: settings.instances_per_host.max(1),
            near: Some(hosts.local().name.clone()),
            starved_after: STARVED_AFTER,
            reclaim_after: or_never(settings.reclaim_after),
        };
        let scheduler = Scheduler::new(policy);
        let joined_again = if hosts.may_grow() { JOINED_AGAIN } else { Duration::ZERO };
        let (hosts_by_name, waiting, asked) = Default::default();
        let state = State {
            scheduler,
            hosts: hosts_by_name,
            waiting,
            asked,
            may_start: false,
            joined_again,
        };
        let inner = Inner {
            node,
            hosts,
            trees,
            is_alone: AtomicBool::new(true),
            began: Instant::now(),
            state: Mutex::new(state),
            prepared: Preparations::default(),
            is_elastic: settings.is_elastic,
            burst_wait: settings.burst_wait,
        };
        Self { inner: Arc::new(inner), quotas: Quotas::default() }
    }

    /// Places what has its share of these quotas.
    pub fn within(self, quotas: Quotas) -> Self {
        Self { quotas, ..self }
    }

    /// Returns the quotas of tenants, within which hosts are shared.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Follows the reports of hosts, until `over`.
    pub async fn follow(self, over: CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(BEAT) => self.take_reports(),
            }
        }
    }

    /// Returns control's own host, for a call that has an instance there already.
    pub fn here(&self) -> CallPlacement {
        CallPlacement::alone(self.clone(), self.inner.hosts.local())
    }

    /// Returns whether all calls run on control's own host, because there is no other.
    pub fn is_alone(&self) -> bool {
        self.inner.is_alone.load(Ordering::Relaxed)
    }

    /// Returns the name of control's own host.
    pub fn own_name(&self) -> HostName {
        self.inner.hosts.local().name.clone()
    }

    /// Waits for a host for a call of a function with this time limit.
    ///
    /// # Errors
    /// `SM-0514` if none has room in time, or ever.
    pub async fn place(
        &self,
        call: &Arc<CallDemand>,
        whose: Whose<'_>,
    ) -> Result<CallPlacement, ErrorReport> {
        if self.is_alone() {
            return Ok(CallPlacement::alone(self.clone(), self.inner.hosts.local()));
        }
        self.meet_new_hosts();
        let (sender, decided) = oneshot::channel();
        let patience = whose.limit.max(PATIENCE);
        let now = self.now();
        let ticket = {
            let mut state = self.lock();
            let ticket = state.scheduler.ask(Arc::clone(call), now, now + patience);
            state.waiting.insert(ticket, sender);
            state.decide(now);
            ticket
        };
        // Dropping it withdraws the call, also while it waits.
        let placed = CallPlacement::new(self.clone(), self.inner.hosts.local(), ticket);
        self.wait(placed, decided, call, whose).await
    }

    async fn wait(
        &self,
        mut placed: CallPlacement,
        decided: oneshot::Receiver<Decided>,
        call: &CallDemand,
        whose: Whose<'_>,
    ) -> Result<CallPlacement, ErrorReport> {
        match decided.await {
            Ok(Decided::On(host)) => {
                placed.host = host;
                Ok(placed)
            }
            Ok(Decided::Expired) => Err(self.no_room(call, whose)),
            Ok(Decided::Refused) => Err(self.too_large(call, whose)),
            Ok(Decided::OnAll(_)) | Err(_) => {
                Err(ErrorReport::new(Code::SERVER_ENDS, "the server is about to end"))
            }
        }
    }

    /// Returns the place of control's own host in the trees of a function's image.
    pub fn own_tree_place(&self, record: &FunctionRecord) -> Option<TreePlace> {
        self.own_places().of(&trees::image(record)?)
    }

    /// Returns the places of control's own host in the trees of images.
    pub fn own_places(&self) -> OwnPlaces {
        OwnPlaces { hosts: self.inner.hosts.clone(), trees: self.inner.trees.clone() }
    }

    /// Returns the number of a function's calls that run on control's own host.
    pub fn running_here(&self, function: &Digest) -> u32 {
        let own = &self.inner.hosts.local().name;
        let state = self.lock();
        let here = state.scheduler.running(function).find(|(host, _)| *host == own);
        here.map_or(0, |(_, calls)| calls)
    }

    /// Returns all known hosts for display, with the calls that run on each.
    pub fn list(&self) -> Vec<HostSummary> {
        let mut hosts = self.inner.hosts.list();
        let state = self.lock();
        let own = &self.inner.hosts.local().name;
        for host in &mut hosts {
            host.calls = state.scheduler.calls_on(&host.name);
            host.state = state.state_of(host, own);
        }
        hosts
    }

    /// Returns the number of idle instances of a function on other hosts, as far as they are known.
    pub fn idle_elsewhere(&self, call: &CallDemand) -> u32 {
        let own = &self.inner.hosts.local().name;
        self.lock()
            .scheduler
            .idle(call, self.now())
            .filter(|(host, _)| *host != own)
            .map(|(_, idle)| idle)
            .sum()
    }

    /// Returns whether control's own host may have an instance of a function at all.
    pub fn has_room_here(&self, call: &CallDemand) -> bool {
        let own = &self.inner.hosts.local().name;
        let room = self.lock().scheduler.memory(own);
        self.is_alone() || room.is_none_or(|(_, room)| room >= call.memory)
    }

    /// Tells the scheduler what hosts have reported.
    pub fn take_reports(&self) {
        let hosts = self.inner.hosts.all();
        let now = self.now();
        // Before the lock: for control's own host it asks the kernel.
        let reports: Vec<HostFacts> = hosts.iter().map(|host| host.facts()).collect();
        let mut state = self.lock();
        for (host, facts) in hosts.iter().zip(reports) {
            state.scheduler.report(&host.name, room(&facts));
            state.scheduler.drain(&host.name, host.is_drained());
            if facts.works() {
                state.scheduler.is_busy(&host.name, now);
            }
            if state.is_to_be_asked(host) {
                self.ask_what_it_has(Arc::clone(host));
            }
        }
        let known: BTreeMap<_, _> =
            hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        let lost: Vec<_> =
            state.hosts.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
        for host in lost {
            state.scheduler.remove(&host, now);
            self.inner.prepared.forget_host(&host);
            state.asked.remove(&host);
        }
        // A control that takes no functions waits for other hosts.
        let local = self.inner.hosts.local();
        let takes_some = local.memory_of_functions() > 0 && !local.is_drained();
        let may_grow = self.inner.hosts.may_grow();
        // Where hosts may be started, it is to be known which calls wait.
        let waits_alone = takes_some && !self.inner.is_elastic;
        let is_alone = known.len() == 1 && (waits_alone || !may_grow);
        self.inner.is_alone.store(is_alone, Ordering::Relaxed);
        state.hosts = known;
        state.take_roles(&self.inner.trees, now);
        state.scheduler.sweep(now);
        state.expect_hosts(now);
        self.reclaim(&mut state, now);
        state.decide(now);
    }

    /// Tells the scheduler that a call, burst or task is over, or that nobody waits for it.
    fn is_over(&self, ticket: Ticket, instances: Option<u32>) {
        self.end(ticket, |scheduler, now| scheduler.ended(ticket, instances, now));
    }

    /// Tells the scheduler that a call is over, and that its instance has ended with it.
    fn is_over_with_instance(&self, ticket: Ticket) {
        self.end(ticket, |scheduler, now| scheduler.ended_with_instance(ticket, now));
    }

    fn end(&self, ticket: Ticket, tell: impl FnOnce(&mut Scheduler, Duration)) {
        let now = self.now();
        let mut state = self.lock();
        state.waiting.remove(&ticket);
        tell(&mut state.scheduler, now);
        state.decide(now);
    }

    fn now(&self) -> Duration {
        self.inner.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn room(facts: &HostFacts) -> HostRoom {
    // The scheduler counts what it has placed, so that it counts once what has reserved by now.
    let of_ranks = facts.reserved.saturating_mul(facts.overcommit.into());
    HostRoom {
        memory: facts.functions.saturating_add(of_ranks).saturating_add(facts.of_tasks),
        cpu_millis: u64::from(facts.cores) * 1000,
        ranks: facts.memory.saturating_add(facts.reserved),
        tasks: facts.sandboxes.saturating_sub(facts.others),
        sandboxes: facts.sandboxes,
        overcommit: facts.overcommit,
    }
}

impl State {
    /// Tells the scheduler which hosts hold images, and which of them send to others.
    fn take_roles(&mut self, trees: &Trees, now: Duration) {
        let mut inner: HashMap<HostName, u32> = HashMap::new();
        let mut named = (String::new(), Digest::of(""));
        self.scheduler.forget_trees();
        trees.roles(|image, host, TreeRole { depth, is_inner, is_used }| {
            // The hosts of an image come one after the other.
            if named.0 != image {
                named = (image.to_owned(), Digest::of(image));
            }
            if is_used {
                self.scheduler.uses(host, &named.1, now);
            }
            self.scheduler.holds(host, &named.1, depth);
            *inner.entry(host.clone()).or_default() += u32::from(is_inner);
        });
        for host in self.hosts.keys() {
            self.scheduler.sends_in(host, inner.get(host).copied().unwrap_or_default());
        }
    }

    /// Takes all decisions that can be taken now, and tells those who wait.
    fn decide(&mut self, now: Duration) {
        while let Some(decision) = self.scheduler.next(now) {
            let (ticket, decided) = match decision {
                Decision::Run(ticket, host) => match self.hosts.get(&host) {
                    Some(host) => (ticket, Decided::On(Arc::clone(host))),
                    None => (ticket, Decided::Expired),
                },
                Decision::Start(ticket, parts) => {
                    let host = |name| self.hosts.get(name).cloned();
                    let hosts = parts.iter().map(|(name, ranks)| Some((host(name)?, *ranks)));
                    let hosts: Option<Vec<_>> = hosts.collect();
                    (ticket, hosts.map_or(Decided::Expired, Decided::OnAll))
                }
                Decision::Expired(ticket) => (ticket, Decided::Expired),
                Decision::Refused(ticket) => (ticket, Decided::Refused),
            };
            let told = self.waiting.remove(&ticket).map(|waiting| waiting.send(decided));
            if !matches!(told, Some(Ok(()))) {
                self.scheduler.withdraw(ticket, now);
            }
        }
    }
}
